#!/bin/sh
# Lists everything that this machine lacks for the local cluster, each with its remedy, and changes nothing. It reads files and runs
# df and, if it is there, pkg-config, so that it needs no second and no compiler. What only the kernel can answer is asked by
# test/cmd/look, once this script found Go.
#
#   hack/look.sh            prints the list, and exits 1 if it is not empty
#   hack/look.sh -files     prints only what this script finds
#   hack/look.sh -packages  prints the missing packages that can be installed without asking, by their Debian names
#
# LOOK_TESTS=1 adds what only the tests need. LOOK_ROOT is a folder with another machine's /proc and /sys and
# LOOK_CHECKOUT another checkout, for tests of this script.
set -u
top=$(cd -P "$(dirname "$0")/.." && pwd)
root=${LOOK_ROOT:-}
mode=${1:-}
found=0
apt='' dnf='' pacman='' apk='' packages=''

# lacks WHAT REMEDY adds a line to the list.
lacks() {
  found=$((found + 1))
  [ "$mode" = -packages ] || printf -- '- %s: %s\n' "$1" "$2"
}

has() { command -v "$1" > /dev/null 2>&1; }

# content FILE prints a file of one line. The shell's own read takes single bytes, which files below /proc/sys do not give.
content() { [ ! -r "$root$1" ] || cat "$root$1"; }

# number FILE prints the number in a file; nothing if there is none.
number() {
  first=$(content "$1")
  case $first in '' | *[!0-9]*) ;; *) echo "$first" ;; esac
}

# below FILE LIMIT is true if the file has a number smaller than the limit.
below() {
  value=$(number "$1")
  # Without a limit, the number may have more digits than a shell's number.
  [ -n "$value" ] && [ ${#value} -lt 18 ] && [ "$value" -lt "$2" ]
}

# field FILE NAME prints the words after NAME in a file with a name at the start of each line.
field() {
  [ -r "$root$1" ] || return 0
  while read -r name rest; do
    if [ "$name" = "$2" ]; then echo "$rest"; return 0; fi
  done < "$root$1"
}

installable() { has apt-get && [ -e /etc/debian_version ] && [ "$uid" = 0 ]; }

# package WHAT DEBIAN DNF PACMAN APK NOTE adds missing packages.
package() {
  packages="$packages $2"
  if ! installable; then
    lacks "$1" "install it, see below${6:-}"
    apt="$apt $2" dnf="$dnf $3" pacman="$pacman${4:+ $4}" apk="$apk${5:+ $5}"
  fi
}

owner=$(field /proc/self/status Uid:)
uid=${owner#*[	 ]}
uid=${uid%%[	 ]*}
caps=$(field /proc/self/status CapEff:)

# The user and the privileges.
if [ "$uid" != 0 ]; then
  lacks "root" "run it as root: sudo env PATH=\"\$PATH\" make TARGET"
else
  missing=''
  # For namespaces and links, and those that containerd gives to each container. The numbers are from linux/capability.h.
  for cap in 21:SYS_ADMIN 12:NET_ADMIN 0:CHOWN 1:DAC_OVERRIDE 3:FOWNER 4:FSETID 5:KILL 6:SETGID 7:SETUID 8:SETPCAP 10:NET_BIND_SERVICE \
    13:NET_RAW 18:SYS_CHROOT 27:MKNOD 29:AUDIT_WRITE 31:SETFCAP; do
    [ -z "$caps" ] || [ $((0x$caps >> ${cap%%:*} & 1)) = 1 ] || missing="$missing CAP_${cap#*:}"
  done
  [ -z "$missing" ] || lacks "capabilities$missing" "run it on a machine, in a virtual machine, or in a privileged container (docker run --privileged)"
  # With version 1, systemd mounts the folder of the trees read-only, and only the trees are written.
  trees=/sys/fs/cgroup
  [ -e "$root$trees/cgroup.controllers" ] || trees="$trees/cpuset $trees/memory $trees/pids"
  for dir in $trees /proc/sys/net/ipv4/ip_forward; do
    [ ! -e "$root$dir" ] || [ -w "$root$dir" ] || lacks "$dir can be written" "it is mounted read-only; run it in a privileged container (docker run --privileged)"
  done
  [ -e "$root/dev/kmsg" ] || lacks "/dev/kmsg, which a kubelet reads" "run it in a privileged container, or in LXC with lxc.mount.entry = /dev/kmsg dev/kmsg none bind,create=file"
fi

# The kernel.
release=$(content /proc/sys/kernel/osrelease)
if [ -n "$release" ]; then
  major=${release%%.*}
  minor=${release#*.}
  minor=${minor%%[!0-9]*}
  if [ $((major * 1000 + minor)) -lt 5002 ]; then
    lacks "Linux 5.2 or later" "this is $release, without the mount calls open_tree and move_mount; use a newer kernel, also of the machine that runs this container"
  fi
fi
for ns in cgroup ipc mnt net pid uts; do
  [ -e "$root/proc/self/ns/$ns" ] || lacks "namespaces of the kind $ns" "the kernel needs CONFIG_NAMESPACES with all of its kinds"
done
systems=' '
while read -r a b; do systems="$systems${b:-$a} "; done < "$root/proc/filesystems"
for system in tmpfs sysfs proc devpts mqueue; do
  case $systems in *" $system "*) ;; *) lacks "the file system $system" "the kernel needs it: CONFIG_TMPFS, CONFIG_SYSFS, CONFIG_UNIX98_PTYS, CONFIG_POSIX_MQUEUE" ;; esac
done
for file in sys/vm/overcommit_memory sys/vm/panic_on_oom sys/kernel/panic sys/kernel/panic_on_oops sys/kernel/keys/root_maxkeys \
  sys/kernel/keys/root_maxbytes sys/kernel/random/boot_id sys/kernel/seccomp/actions_avail sys/net/ipv4/ip_forward sys/fs/inotify/max_user_instances; do
  [ -e "$root/proc/$file" ] || lacks "/proc/$file" "mount /proc, and use a kernel with CONFIG_SYSCTL, CONFIG_KEYS, CONFIG_SECCOMP_FILTER and CONFIG_INOTIFY_USER"
done
for controller in cpu cpuset memory pids; do
  remedy="add cgroup_enable=$controller to the kernel's command line, or use a kernel that has it"
  if [ -r "$root/sys/fs/cgroup/cgroup.controllers" ]; then
    case " $(content /sys/fs/cgroup/cgroup.controllers) " in *" $controller "*) ;; *) lacks "the cgroup controller $controller" "$remedy" ;; esac
  elif [ ! -d "$root/sys/fs/cgroup/$controller" ]; then
    lacks "the cgroup controller $controller" "mount the cgroup file systems at /sys/fs/cgroup; if /proc/cgroups has it as disabled, $remedy"
  fi
done

# Limits.
cpus=$(content /sys/devices/system/cpu/online)
if [ -n "$cpus" ]; then
  case $cpus in *[-,]*) ;; *) lacks "two CPU cores" "this machine has one; a measurement needs one for each end" ;; esac
  allowed=$(content /sys/fs/cgroup/cpuset.cpus.effective)
  if [ -n "$allowed" ] && [ "$allowed" != "$cpus" ]; then
    lacks "all CPUs" "this container may use the CPUs $allowed, and the machine has $cpus; run it without --cpuset-cpus"
  fi
fi
total=$(field /proc/meminfo MemTotal:)
total=${total%% *}
if [ -n "$total" ] && [ "$total" -lt 1900000 ]; then lacks "2 GiB of memory" "this machine has $((total / 1024)) MiB"; fi
for file in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
  if below $file 1945600000; then lacks "2 GiB of memory" "$file limits this container to $((value / 1048576)) MiB; raise the limit"; fi
done
pids=$(number /sys/fs/cgroup/pids.max)
if [ -n "$pids" ] && [ "$((pids - $(number /sys/fs/cgroup/pids.current)))" -lt 1000 ]; then
  lacks "1000 processes and threads" "/sys/fs/cgroup/pids.max limits this container to $pids; raise it (docker run --pids-limit=-1)"
fi
files=$(ulimit -Hn)
if [ "$files" != unlimited ] && [ "$files" -lt 1024 ]; then lacks "1024 open files for a process" "the limit is $files; raise it: ulimit -Hn 4096, or docker run --ulimit nofile=4096"; fi
most=$(content /proc/sys/fs/file-nr)
if [ -n "$most" ]; then
  open=${most%%[!0-9]*} most=${most##*[!0-9]}
  # Without a limit, the number has more digits than a shell's number may have.
  if [ ${#most} -lt 15 ] && [ $((most - open)) -lt 4096 ]; then lacks "4096 open files on the machine" "sysctl -w fs.file-max=$((most + 100000))"; fi
fi
if below /proc/sys/fs/inotify/max_user_watches 8192; then lacks "8192 inotify watches" "sysctl -w fs.inotify.max_user_watches=65536"; fi

# Folders: for each, free space in MiB, and a file system from which programs run.
# exists DIR prints the folder, or the parent that exists, without symbolic links.
exists() {
  dir=$1
  while [ ! -d "$dir" ]; do dir=$(dirname "$dir"); done
  (cd -P "$dir" && pwd -P)
}

# options DIR prints the options of the mount of a folder.
options() {
  best=-1 result=''
  while read -r _ _ _ _ point opts _; do
    case $point in *\\*) point=$(printf '%b' "$(printf '%s' "$point" | sed 's/\\\([0-7][0-7][0-7]\)/\\0\1/g')") ;; esac
    point=${point%/}
    case $1/ in "$point"/*) if [ ${#point} -ge $best ]; then best=${#point} result=$opts; fi ;; esac
  done < "$root/proc/self/mountinfo"
  echo "$result"
}

# folder DIR MIB WHAT OTHERWISE looks at a folder in which programs are written and, unless noexec is set, run.
folder() {
  dir=$(exists "$1")
  opts=$(options "$dir")
  case ,$opts, in
    *,ro,*) lacks "$1 can be written ($3)" "its file system is mounted read-only; mount it read-write: mount -o remount,rw" ;;
    *) [ -n "$root" ] || [ "$uid" != 0 ] || [ -w "$dir" ] || lacks "$1 can be written ($3)" "root may not write to $dir, as in a home on NFS with root_squash; $4" ;;
  esac
  case ,$opts, in *,noexec,*) [ -n "$noexec" ] || lacks "programs in $1 can be run ($3)" "its file system is mounted with noexec; mount -o remount,exec, or $4" ;; esac
  # The name of a file system may have blanks.
  space=$(df -Pk "$dir" 2> /dev/null | sed -n 's/.* \([0-9][0-9]*\)  *[0-9]*% .*/\1/p')
  case $space in
    '' | *[!0-9]*) ;;
    *) [ "$space" -ge $(($2 * 1024)) ] || lacks "$2 MiB of free disk space for $1 ($3)" "$((space / 1024)) MiB are free; make space, or $4" ;;
  esac
}
noexec=''
home=${HOME:-}
cache=${XDG_CACHE_HOME:-${home:+$home/.cache}}
first=300 # for what is compiled
case $cache in
  '') lacks "HOME, the folder of the user" "set HOME or XDG_CACHE_HOME" ;;
  /*)
    need=1024
    ls "$cache"/tailgate/cluster-* > /dev/null 2>&1 || { need=8192 first=6144; } # Kubernetes is not built yet.
    folder "$cache" $need "what is built and downloaded" "set XDG_CACHE_HOME to another folder"
    ;;
  *) lacks "an absolute path in XDG_CACHE_HOME" "it is $cache" ;;
esac
gocache=${GOCACHE:-$(cd / && go env GOCACHE 2> /dev/null)}
case $gocache in /*) folder "$gocache" $first "programs that go run starts" "set GOCACHE to another folder" ;; esac
folder "${LOOK_CHECKOUT:-$top}" 300 "this checkout, for make build" "clone it elsewhere"
folder /var/lib/tailgate-localcluster 2048 "the cluster's state" "mount another file system on /var/lib"
# Only tests run in the folder for temporary files, because go run uses that of GOTMPDIR, see the Makefile.
noexec=${LOOK_TESTS:-may be}
[ "$noexec" = "may be" ] || noexec=''
folder "${TMPDIR:-/tmp}" 300 "temporary files" "set TMPDIR to another folder"
for dir in "${TMPDIR:-/tmp}" "${GOTMPDIR:-}"; do # Nothing makes these folders.
  [ -z "$dir" ] || [ -d "$dir" ] || lacks "the folder $dir for temporary files" "mkdir -m 1777 -p $dir, or set TMPDIR or GOTMPDIR to another folder"
done

# Commands.
has bash || package "bash" bash bash bash bash
has make || package "make" make make make make
wanted=''
while read -r name rest; do [ "$name" != go ] || wanted=$rest; done < "$top/go.mod"
if has go; then
  have=$(cd / && GOTOOLCHAIN=local go version 2> /dev/null)
  have=${have#go version go}
  have=${have%% *}
  old() { # The versions have two or three numbers.
    a=${1#*.} b=${2#*.}
    [ $((${1%%.*} * 1000 + ${a%%[!0-9]*})) -lt $((${2%%.*} * 1000 + ${b%%[!0-9]*})) ]
  }
  case $have in
    [0-9]*)
      if old "$have" "$wanted"; then
        chosen=$(cd / && go env GOTOOLCHAIN 2> /dev/null)
        case $chosen in
          auto | path | *+auto | *+path) old "$have" 1.21 && lacks "Go $wanted" "this is Go $have; install it from https://go.dev/dl" ;;
          *) lacks "Go $wanted" "this is Go $have, and GOTOOLCHAIN=$chosen forbids to fetch another; install it from https://go.dev/dl, or set GOTOOLCHAIN=auto" ;;
        esac
      fi
      ;;
    *) lacks "a Go that runs" "go version fails; install Go $wanted from https://go.dev/dl" ;;
  esac
else
  where=''
  for dir in /usr/local/go/bin /usr/lib/go/bin /usr/lib/golang/bin "${home:-/root}/go/bin" /snap/bin; do
    [ ! -x "$dir/go" ] || where=$dir
  done
  if [ -n "$where" ]; then
    lacks "go in PATH" "it is in $where: PATH=$where:\$PATH make TARGET"
  else
    lacks "go in PATH" "install Go $wanted (https://go.dev/dl; apt: golang, dnf: golang, pacman: go, apk: go); with sudo, which has its own PATH: sudo env PATH=\"\$PATH\" make TARGET"
  fi
fi
if has gcc; then
  # runc is compiled here, with cgo.
  printf '#include <stdlib.h>\n#include <linux/filter.h>\n' | gcc -E -x c - > /dev/null 2>&1 || package "the headers of the C library and of Linux" libc6-dev "glibc-devel kernel-headers" "glibc linux-api-headers" "musl-dev linux-headers"
else
  package "gcc" "gcc libc6-dev" "gcc glibc-devel" gcc "gcc musl-dev linux-headers"
fi
has pkg-config || package "pkg-config" pkg-config pkgconf-pkg-config pkgconf pkgconf
pkg-config --exists libseccomp 2> /dev/null || package "the headers of libseccomp" libseccomp-dev libseccomp-devel libseccomp libseccomp-dev
if [ -n "${LOOK_TESTS:-}" ] && has gcc; then
  echo 'int main(void) { return 0; }' | gcc -fsanitize=address,undefined -x c -o /dev/null - > /dev/null 2>&1 ||
    package "the sanitizers of gcc" gcc "libasan libubsan" gcc "gcc" "; musl has none, so that the pinger's tests do not run on Alpine"
fi
has mount && has umount || package "mount and umount" mount util-linux-core util-linux util-linux
has mmdebstrap || package "mmdebstrap" mmdebstrap mmdebstrap '' 'perl apt' "; Arch has it in the AUR, and for Alpine take the script of Debian's package"
key=''
for file in "$root"/usr/share/keyrings/debian-archive-keyring.gpg "$root"/usr/share/keyrings/debian-archive-keyring.pgp "$root"/etc/apt/trusted.gpg.d/debian-archive-*; do
  [ ! -s "$file" ] || key=$file
done
[ -n "$key" ] || package "the keys of Debian's archive" debian-archive-keyring debian-keyring debian-archive-keyring debian-archive-keyring

if [ "$mode" = -packages ]; then
  echo "${packages# }"
  exit 0
fi
if [ -n "$apt" ]; then
  known=0
  for manager in apt-get dnf pacman apk; do ! has $manager || known=1; done
  # with MANAGER PACKAGES prints the command of the machine's package manager, or, if it has none of them, of each.
  with() { if [ -n "$3" ] && { [ $known = 0 ] || has "$1"; }; then echo "  $1 $2$3"; fi; }
  with apt-get install "$apt"
  with dnf install "$dnf"
  with pacman -S "$pacman"
  with apk add "$apk"
fi
if [ "$mode" = -files ]; then exit $((found > 0)); fi

# The kernel's own answers. On a new machine, the program that asks for them has to be compiled first, for which a list does not wait.
if has go && [ "$uid" = 0 ]; then
  limit=''
  if [ $found -gt 0 ] && has timeout; then limit='timeout 1'; fi
  answers=$(cd "$top" && unset GOOS GOARCH && export CGO_ENABLED=0 GOWORK=off GO111MODULE=on &&
    { [ -n "${GOTMPDIR:-}" ] || [ ! -d "$gocache" ] || export GOTMPDIR="$gocache"; } && $limit go run ./test/cmd/look)
  case $? in
    0) ;;
    124 | 143) answers='  The next run also asks the kernel, for which a program has to be compiled.' ;;
    *) answers='- the answers of the kernel: see the error above' ;;
  esac
  if [ -n "$answers" ]; then
    found=$((found + 1))
    echo "$answers"
  fi
fi
if [ $found -gt 0 ]; then
  echo "This machine cannot run the local cluster yet: it lacks what the list above says. Nothing was changed." >&2
  exit 1
fi
