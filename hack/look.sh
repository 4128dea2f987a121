#!/bin/sh
# Lists everything that this machine lacks for the local cluster, each with its remedy, and changes nothing. It reads files and runs
# df and the go, the compiler and the pkg-config that the build will use, if they are there. What only the kernel can answer is asked
# by test/cmd/look, once this script found Go.
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
apt='' dnf='' zypper='' pacman='' apk='' packages=''
# As in the Makefile: what the user stored for other projects does not count.
export GOWORK=off GOEXPERIMENT=,

# lacks WHAT REMEDY adds a line to the list.
lacks() {
  found=$((found + 1))
  [ "$mode" = -packages ] || printf -- '- %s: %s\n' "$1" "$2"
}

has() { command -v "$1" > /dev/null 2>&1; }

# standard NAME is true for a command in one of the folders in which the cluster's processes look for it, whatever PATH the user has.
standard() {
  for dir in /usr/sbin /usr/bin /sbin /bin; do [ ! -x "$root$dir/$1" ] || return 0; done
  return 1
}

# ask NAME... prints values of go env. Go is asked in the checkout, because a version manager chooses it by the folder. It does not
# fetch another version of itself for that.
ask() { (cd "$top" && GOTOOLCHAIN=local go env "$@" 2> /dev/null); }

# complaint TEXT prints the line of an answer that says best what is wrong.
complaint() {
  line=$(printf '%s\n' "$1" | sed -n '/[Ee]rror\|cannot\|not found/{p;q;}')
  [ -n "$line" ] || line=$(printf '%s\n' "$1" | sed -n '1p')
  printf '%s\n' "$line"
}

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

# words_of FILE NAME prints the words after NAME in a file with a name at the start of each line; field does so for a file of the machine.
words_of() {
  [ -r "$1" ] || return 0
  while read -r name rest; do
    [ "$name" != require ] || { name=${rest%% *} rest=${rest#* }; } # in a go.mod
    if [ "$name" = "$2" ]; then echo "$rest"; return 0; fi
  done < "$1"
}
field() { words_of "$root$1" "$2"; }

installable() { has apt-get && [ -e /etc/debian_version ] && [ "$uid" = 0 ]; }

# package WHAT DEBIAN DNF ZYPPER PACMAN APK NOTE adds missing packages.
package() {
  packages="$packages $2"
  if ! installable || [ "$1" = bash ]; then # make itself needs bash, before anything can be installed.
    lacks "$1" "install it, see below${7:-}"
    apt="$apt $2" dnf="$dnf $3" zypper="$zypper${4:+ $4}" pacman="$pacman${5:+ $5}" apk="$apk${6:+ $6}"
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
  isolated=$(content /sys/fs/cgroup/cpuset.cpus.isolated)
  if [ -n "$allowed" ] && [ "$allowed" != "$cpus" ]; then
    if [ -n "$isolated" ]; then
      lacks "all CPUs" "an isolated partition of this machine has the CPUs $isolated (cpuset.cpus.isolated), so that $allowed of $cpus are left; end it: echo member > its cpuset.cpus.partition"
    else
      lacks "all CPUs" "this container may use the CPUs $allowed, and the machine has $cpus; run it without --cpuset-cpus"
    fi
  fi
fi
total=$(field /proc/meminfo MemTotal:)
total=${total%% *}
available=$(field /proc/meminfo MemAvailable:)
available=${available%% *}
if [ -n "$total" ] && [ "$total" -lt 1900000 ]; then
  lacks "2 GiB of memory" "this machine has $((total / 1024)) MiB"
elif [ -n "$available" ] && [ "$available" -lt 1000000 ] && [ ! -e "$root/sys/class/net/tailgate0" ]; then # A running cluster has its part.
  huge=$(field /proc/meminfo Hugetlb:)
  huge=${huge%% *}
  lacks "1 GiB of available memory" "$((available / 1024)) of $((total / 1024)) MiB are available, and huge pages hold $((${huge:-0} / 1024)) MiB; end programs, or release huge pages (sysctl -w vm.nr_hugepages=NUMBER)"
fi

# limits DIR CPUS WHO REMEDY looks at the limits of a cgroup of either version.
limits() {
  for file in memory.max memory.high memory.limit_in_bytes; do
    if below "$1/$file" 1945600000; then lacks "2 GiB of memory" "$1/$file limits $3 to $((value / 1048576)) MiB; raise it$4"; fi
  done
  most=$(number "$1/pids.max") used=$(number "$1/pids.current")
  if [ -n "$most" ] && [ $((most - ${used:-0})) -lt 1000 ]; then
    lacks "1000 processes and threads" "$1/pids.max limits $3 to $most; raise it${4:- (docker run --pids-limit=-1)}"
  fi
  quota=$(content "$1/cpu.max")
  [ -n "$quota" ] || quota="$(number "$1/cpu.cfs_quota_us") $(number "$1/cpu.cfs_period_us")"
  case $quota in
    [0-9]*' '[0-9]*)
      [ "${quota% *}" -ge $((${quota#* } * $2)) ] ||
        lacks "the time of CPUs: $2" "a quota of $1 limits $3 to ${quota% *} of every ${quota#* } microseconds; raise it${4:- (docker run --cpus)}"
      ;;
  esac
}

# The nodes are in cgroups below the root of the tree, the control plane and all builds in those of this command.
for dir in '' /cpu /memory /pids; do limits "/sys/fs/cgroup$dir" 2 "this container" ''; done
[ ! -r "$root/proc/self/cgroup" ] || while IFS=: read -r _ names path; do
  tree=/sys/fs/cgroup${names:+/$names}
  [ -n "$names" ] || [ ! -d "$root/sys/fs/cgroup/unified" ] || tree=/sys/fs/cgroup/unified
  case ,$names, in ,, | *,cpu,* | *,memory,* | *,pids,*) ;; *) continue ;; esac
  case $path in */..*) continue ;; esac # It is outside of this container.
  path=${path%/}
  while [ -n "$path" ]; do
    limits "$tree$path" 1 "this service or session" ": systemctl set-property UNIT TasksMax=infinity MemoryMax=infinity MemoryHigh=infinity CPUQuota="
    path=${path%/*}
  done
done < "$root/proc/self/cgroup"
files=$(ulimit -Hn 2> /dev/null) # Some shells cannot tell.
files=${files:-unlimited}
if [ "$files" != unlimited ] && [ "$files" -lt 1024 ]; then lacks "1024 open files for a process" "the limit is $files; raise it: ulimit -Hn 4096, or docker run --ulimit nofile=4096"; fi
for limit in f:"the size of files" v:"the address space" t:"CPU time"; do # The builds need large ones.
  value=$(ulimit -H"${limit%%:*}" 2> /dev/null)
  [ "${value:-unlimited}" = unlimited ] || lacks "no limit for ${limit#*:}" "it is $value; raise it: ulimit -${limit%%:*} unlimited"
done
most=$(content /proc/sys/fs/file-nr)
if [ -n "$most" ]; then
  open=${most%%[!0-9]*} most=${most##*[!0-9]}
  # Without a limit, the number has more digits than a shell's number may have.
  if [ ${#most} -lt 15 ] && [ $((most - open)) -lt 4096 ]; then lacks "4096 open files on the machine" "sysctl -w fs.file-max=$((most + 100000))"; fi
fi
if below /proc/sys/fs/inotify/max_user_watches 8192; then lacks "8192 inotify watches" "sysctl -w fs.inotify.max_user_watches=65536"; fi

# The go that the build will use, and what that will use.
cc=${CC:-gcc} pkgconfig=${PKG_CONFIG:-pkg-config} cppflags='' cflags='' ldflags='' gocache=${GOCACHE:-} modules=${GOMODCACHE:-} goroot=${GOROOT:-} have=''
if has go; then
  said=$(cd "$top" && GOTOOLCHAIN=local go version 2>&1)
  case $said in
    "go version go"[0-9]*)
      have=${said#go version go}
      have=${have%% *}
      { read -r cc && read -r pkgconfig && read -r cppflags && read -r cflags && read -r ldflags && read -r gocache && read -r modules && read -r goroot; } << END
$(ask CC PKG_CONFIG CGO_CPPFLAGS CGO_CFLAGS CGO_LDFLAGS GOCACHE GOMODCACHE GOROOT)
END
      ;;
  esac
fi
wanted=$(words_of "$top/go.mod" go)
old() { # The versions have two or three numbers.
  a=${1#*.} b=${2#*.}
  [ $((${1%%.*} * 1000 + ${a%%[!0-9]*})) -lt $((${2%%.*} * 1000 + ${b%%[!0-9]*})) ]
}

# Folders: for each, free space in MiB, inodes, and a file system from which programs run.
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
  free=$(unused -Pk "$dir")
  [ -z "$free" ] || [ "$free" -ge $(($2 * 1024)) ] || lacks "$2 MiB of free disk space for $1 ($3)" "$((free / 1024)) MiB are free; make space, or $4"
  # A tree of sources or objects needs up to 16 for each MiB, of which ext4 makes 64.
  free=$(unused -Pi "$dir")
  [ -z "$free" ] || [ "$free" -ge $(($2 * 16)) ] || lacks "$(($2 * 16)) free inodes for $1 ($3)" "$free are free (df -i); remove files, or $4"
}

# unused UNIT DIR prints how much is free, if df can tell. The name of a file system may have blanks.
unused() { df "$1" "$2" 2> /dev/null | sed -n 's/.* \([0-9][0-9]*\)  *[0-9]*% .*/\1/p'; }
noexec=''
home=${HOME:-}
cache=${XDG_CACHE_HOME:-${home:+$home/.cache}}
# Kubernetes of this version, compiled by this version of Go or, if this one is too old, by the one that go fetches.
need=8192 built=6144 fetched=2048
for file in "$cache/tailgate/kubernetes-$(words_of "$top/test/localcluster/binaries/kubernetes/go.mod" k8s.io/kubernetes)"-*/kube-apiserver; do
  [ -n "$have" ] && [ -x "$file" ] || continue
  case $file in *.tmp/*) continue ;; esac # It is not complete.
  case $(cd "$top" && GOTOOLCHAIN=local go version "$file" 2> /dev/null) in *": go$have"*) ;; *) old "$have" "$wanted" || continue ;; esac
  need=1024 built=300 fetched=100
done
case $cache in
  '') lacks "HOME, the folder of the user" "set HOME or XDG_CACHE_HOME" ;;
  /*) folder "$cache" $need "what is built and downloaded" "remove what earlier versions built in $cache/tailgate, or set XDG_CACHE_HOME to another folder" ;;
  *) lacks "an absolute path in XDG_CACHE_HOME" "it is $cache" ;;
esac
case $gocache in /*) folder "$gocache" $built "programs that go run starts" "set GOCACHE to another folder" ;; esac
case ${GOTMPDIR:-} in "$gocache") ;; /*) folder "$GOTMPDIR" $built "programs that go run starts" "set GOTMPDIR to another folder" ;; esac
noexec='may be'
case $modules in /*) folder "$modules" $fetched "sources that go downloads" "set GOMODCACHE to another folder" ;; esac
noexec=''
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
has bash || package bash bash bash bash bash bash
has make || package make make make make make make
if [ -n "$have" ] && old "$have" "$wanted"; then
  chosen=$(cd "$top" && go -C / env GOTOOLCHAIN 2> /dev/null) # In the checkout itself, go would fetch the other version.
  case $chosen in
    auto | path | *+auto | *+path) ! old "$have" 1.21 || chosen='' ;;
    ?*) lacks "Go $wanted" "this is Go $have, and GOTOOLCHAIN=$chosen forbids to fetch another; install it from https://go.dev/dl, or set GOTOOLCHAIN=auto" ;;
  esac
  [ -n "$chosen" ] || lacks "Go $wanted" "this is Go $have; install it from https://go.dev/dl"
elif [ -n "$have" ]; then
  belongs=$([ ! -r "$goroot/VERSION" ] || sed -n '1p' "$goroot/VERSION")
  belongs=${belongs%% *}
  [ "${belongs:-go$have}" = "go$have" ] || lacks "the libraries of Go $have" "GOROOT is $goroot, with those of $belongs; unset GOROOT (or go env -u GOROOT)"
elif has go; then
  remedy="install Go $wanted from https://go.dev/dl"
  [ -z "$goroot" ] || remedy="GOROOT is $goroot in your environment: unset it"
  lacks "a Go that runs" "$(command -v go) says: $(complaint "$said"); $remedy"
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

# runc is compiled here, with cgo: by the compiler and with the flags that the user set or stored with go env -w.
compiler=0
if ! has "${cc%% *}"; then
  if [ "$cc" = gcc ]; then
    package gcc "gcc libc6-dev" "gcc glibc-devel" "gcc glibc-devel" gcc "gcc musl-dev linux-headers"
  else
    lacks "the C compiler $cc" "CC names it, in your environment or in go env, and it is not in PATH; unset CC (or go env -u CC) to use gcc"
  fi
elif said=$(printf '#include <stdlib.h>\n#include <linux/filter.h>\n' | $cc $cppflags -E -x c - 2>&1); then
  compiler=1
elif [ "$cc$cppflags" = gcc ]; then
  package "the headers of the C library and of Linux" libc6-dev "glibc-devel kernel-headers" "glibc-devel linux-glibc-devel" "glibc linux-api-headers" "musl-dev linux-headers"
else
  lacks "a C compiler with the headers of the C library and of Linux" "CC is $cc, and it says: $(complaint "$said"); unset CC and CGO_CPPFLAGS (or go env -u each) to use gcc"
fi
asked=$(command -v "$pkgconfig" 2> /dev/null)
if [ -n "$asked" ]; then
  :
elif [ "$pkgconfig" = pkg-config ]; then
  package pkg-config pkg-config pkgconf-pkg-config pkgconf-pkg-config pkgconf pkgconf
else
  lacks "the command $pkgconfig" "PKG_CONFIG names it, in your environment or in go env; unset it (or go env -u PKG_CONFIG) to use pkg-config"
fi
if [ -z "$asked" ] || ! said=$("$pkgconfig" --cflags --libs libseccomp 2>&1); then
  case $asked${PKG_CONFIG_PATH:-}${PKG_CONFIG_LIBDIR:-}${PKG_CONFIG_SYSROOT_DIR:-} in
    '' | /usr/bin/pkg*config | /bin/pkg*config) package "the headers of libseccomp" libseccomp-dev libseccomp-devel libseccomp-devel libseccomp libseccomp-dev ;;
    *)
      lacks "the headers of libseccomp, of the system" "$asked, which your PATH or PKG_CONFIG names, says: $(complaint "$said"); install them (libseccomp-dev or libseccomp-devel), and use the system's: env -u PKG_CONFIG_PATH -u PKG_CONFIG_LIBDIR -u PKG_CONFIG_SYSROOT_DIR PKG_CONFIG=/usr/bin/pkg-config make TARGET"
      ;;
  esac
elif [ $compiler = 1 ]; then
  answer=$(printf '#include <seccomp.h>\nint main(void) { return seccomp_init(SCMP_ACT_ALLOW) == 0; }\n' | $cc $cppflags $cflags -x c - -o /dev/null $said $ldflags 2>&1) ||
    lacks "a C compiler that compiles with libseccomp" "$cc, which CC names, says: $(complaint "$answer"); unset CC, CGO_CFLAGS, CGO_LDFLAGS and PKG_CONFIG (or go env -u each)"
fi
if [ -n "${LOOK_TESTS:-}" ] && has gcc; then
  echo 'int main(void) { return 0; }' | gcc -fsanitize=address,undefined -x c -o /dev/null - > /dev/null 2>&1 ||
    package "the sanitizers of gcc" gcc "libasan libubsan" gcc gcc gcc "; musl has none, so that the pinger's tests do not run on Alpine"
fi
# Kubelets and the hook of containers run them, with the PATH of the system.
standard mount && standard umount && standard sh || package "mount, umount and sh in /usr/bin or /bin" mount util-linux-core util-linux util-linux util-linux
has mmdebstrap || package "mmdebstrap" mmdebstrap mmdebstrap '' '' 'perl apt' "; Arch has it in the AUR, openSUSE in its build service, and for Alpine take the script of Debian's package"
key=''
for file in "$root"/usr/share/keyrings/debian-archive-keyring.gpg "$root"/usr/share/keyrings/debian-archive-keyring.pgp "$root"/etc/apt/trusted.gpg.d/debian-archive-*; do
  [ ! -s "$file" ] || key=$file
done
[ -n "$key" ] || package "the keys of Debian's archive" debian-archive-keyring debian-keyring '' debian-archive-keyring debian-archive-keyring

if [ "$mode" = -packages ]; then
  echo "${packages# }"
  exit 0
fi
if [ -n "$apt" ]; then
  known=0
  for manager in apt-get dnf zypper pacman apk; do ! has $manager || known=1; done
  # with MANAGER PACKAGES prints the command of the machine's package manager, or, if it has none of them, of each.
  with() { if [ -n "$3" ] && { [ $known = 0 ] || has "$1"; }; then echo "  $1 $2$3"; fi; }
  with apt-get install "$apt"
  if has dnf; then
    case $(content /etc/os-release | sed -n '/^ID=/p; /^ID_LIKE=/p') in
      *amzn*) echo "  Amazon Linux has no mmdebstrap: take the script of Debian's package, and perl and apt" ;;
      *rhel* | *centos*) echo "  First enable the repositories CRB and EPEL: dnf config-manager --set-enabled crb; dnf install epel-release (RHEL and Oracle Linux: https://docs.fedoraproject.org/en-US/epel)" ;;
    esac
  fi
  with dnf install "$dnf"
  with zypper install "$zypper"
  with pacman -S "$pacman"
  with apk add "$apk"
fi
if [ "$mode" = -files ]; then exit $((found > 0)); fi

# The kernel's own answers. On a new machine, the program that asks for them has to be compiled first, for which a list does not wait.
if [ -n "$have" ] && [ "$uid" = 0 ]; then
  limit=''
  if [ $found -gt 0 ] && has timeout; then limit='timeout 1'; fi
  # asking VERB ARG... runs go on the program, for this machine, whatever the user stored for another one.
  asking() {
    cd "$top" && export GOOS=linux GOARCH="$(ask GOHOSTARCH)" GOAMD64=v1 GOARM64=v8.0 CGO_ENABLED=0 GO111MODULE=on &&
      { [ -n "${GOTMPDIR:-}" ] || [ ! -d "$gocache" ] || export GOTMPDIR="$gocache"; } && $limit go "$@" ./test/cmd/look
  }
  answers=$(asking run)
  case $? in
    0) ;;
    124 | 143) answers='  The next run also asks the kernel, for which a program has to be compiled.' ;;
    *)
      said=$(asking build -o /dev/null 2>&1)
      answers="- the answers of the kernel: go cannot run test/cmd/look: $(printf '%s\n' "${said:-see the error above}" | sed -n '$p')"
      case $said in
        *"dial tcp"* | *proxyconnect* | *"lookup "*) answers="$answers; it needs the Internet once; behind a proxy: sudo --preserve-env=HTTPS_PROXY,NO_PROXY,GOPROXY,GOSUMDB env PATH=\"\$PATH\" make TARGET" ;;
      esac
      ;;
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
