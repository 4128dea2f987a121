package look

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/test/field"
)

const checkout = "../../.."

// utilities are the commands of every system that the script itself runs.
var utilities = []string{"sh", "cat", "dirname", "ls", "sed"}

// tools are the commands that the cluster needs, as stand-ins.
var tools = map[string]string{
	"bash": "", "make": "", "gcc": "", "pkg-config": "", "mmdebstrap": "",
	"go": `case $1 in
		version) [ $# = 1 ] && echo "go version go${LOOK_GO:-1.26.8} linux/amd64" || echo "$2: go${LOOK_BUILT:-1.26.8}"; exit ;;
		-C) shift 3 ;;
		env) shift ;;
	esac
	for name; do
		case $name in CC) default=gcc ;; PKG_CONFIG) default=pkg-config ;; GOTOOLCHAIN) default=${LOOK_TOOLCHAIN:-auto} ;; *) default='' ;; esac
		eval "echo \"\${$name:-$default}\""
	done`,
	"df": `echo Filesystem; case $1 in *i) free=${LOOK_INODES:-99999999} ;; *) free=${LOOK_FREE:-99999999} ;; esac; echo "/dev/vda 100 100 $free 1% /"`,
}

// kernelFiles are files that every supported kernel has.
var kernelFiles = map[string]string{
	"proc/self/ns/cgroup": "", "proc/self/ns/ipc": "", "proc/self/ns/mnt": "", "proc/self/ns/net": "", "proc/self/ns/pid": "", "proc/self/ns/uts": "",
	"proc/filesystems":              "nodev\tsysfs\nnodev\ttmpfs\nnodev\tproc\nnodev\tdevpts\nnodev\tmqueue\nnodev\tcgroup2\n\text4",
	"proc/self/status":              "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff",
	"proc/self/mountinfo":           "22 1 254:0 / / rw - ext4 /dev/vda rw",
	"proc/sys/vm/overcommit_memory": "0", "proc/sys/vm/panic_on_oom": "0", "proc/sys/kernel/panic": "0", "proc/sys/kernel/panic_on_oops": "0",
	"proc/sys/kernel/keys/root_maxkeys": "1", "proc/sys/kernel/keys/root_maxbytes": "1", "proc/sys/kernel/random/boot_id": "b",
	"proc/sys/kernel/seccomp/actions_avail": "a", "proc/sys/kernel/osrelease": "6.12.0", "proc/sys/net/ipv4/ip_forward": "0",
	"proc/sys/fs/inotify/max_user_instances": "128", "proc/sys/fs/inotify/max_user_watches": "65536", "proc/sys/fs/file-nr": "1\t0\t9223372036854775807",
	"proc/meminfo": "MemTotal: 8000000 kB", "sys/devices/system/cpu/online": "0-1", "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids",
	"usr/share/keyrings/debian-archive-keyring.gpg": "key", "dev/kmsg": "", "usr/bin/mount": "", "usr/bin/umount": "", "bin/sh": "",
}

// write writes a file with its folders, unless it exists.
func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if _, err := os.Stat(path); err == nil {
		return
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// machine is a stand-in for a machine: its files below a root, and the commands in its PATH, without some of either.
func machine(t *testing.T, root string, without []string) []string {
	t.Helper()
	read(t, "hack/look.sh")
	bin := t.TempDir()
	for name, body := range tools {
		if !slices.Contains(without, name) {
			write(t, filepath.Join(bin, name), "#!/bin/sh\n"+body+"\n", 0o755)
		}
	}
	for _, name := range utilities {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	cgroup1 := exists(filepath.Join(root, "sys/fs/cgroup/memory"))
	for name, content := range kernelFiles {
		if !slices.Contains(without, "/"+name) && (!cgroup1 || name != "sys/fs/cgroup/cgroup.controllers") {
			write(t, filepath.Join(root, name), content+"\n", 0o755)
		}
	}
	return []string{"PATH=" + bin, "HOME=/no/home", "LOOK_CHECKOUT=/no/checkout", "LOOK_ROOT=" + root}
}

// TestDiskWithBlanks reads the free space of a file system whose name has blanks.
func TestDiskWithBlanks(t *testing.T) {
	env := machine(t, t.TempDir(), []string{"df"})
	bin := strings.TrimPrefix(env[0], "PATH=")
	write(t, filepath.Join(bin, "df"), "#!/bin/sh\necho Filesystem; echo '//nas/my share 99999999 100 99999899 1% /mnt/my share'\n", 0o755)
	if said := list(t, env); said != "" {
		t.Errorf("it says %q", said)
	}
}

// TestShellsWithoutLimits runs the script where ulimit knows none of the limits, as in lksh and posh.
func TestShellsWithoutLimits(t *testing.T) {
	env := machine(t, t.TempDir(), nil)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit() { echo "ulimit: -$1: unknown option" >&2; return 1; }; . "$0"`, filepath.Join(checkout, "hack/look.sh"), "-files")
	cmd.Env = env
	if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("it says %q, %v", said, err)
	}
}

// read opens a file of the checkout that a child of the test uses, so that Go does not take an earlier result after the file changed.
func read(t *testing.T, name string) {
	t.Helper()
	if _, err := os.ReadFile(filepath.Join(checkout, name)); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// list runs the script on a machine and returns what it lacks.
func list(t *testing.T, env []string) string {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(sh, filepath.Join(checkout, "hack", "look.sh"), "-files")
	var complaints strings.Builder
	cmd.Env, cmd.Stderr = env, &complaints
	out, err := cmd.Output()
	if complaints.Len() > 0 {
		t.Errorf("the script complains: %s", complaints.String())
	}
	if (err != nil) != (len(out) > 0) {
		t.Errorf("%v, and the list is %q", err, out)
	}
	return string(out)
}

// TestField looks at machines of bug reports. Arguments: without names commands and files that the machine does not have, commands
// names additional ones, env sets variables. Each wanted value is a part of the list; count is the number of its lines.
func TestField(t *testing.T) {
	field.Run(t, "machines", "test/localcluster/look", func(t *testing.T, c field.Case) map[string]string {
		root := t.TempDir()
		if c.Input != "" {
			root = c.Root(t)
		}
		env := append(machine(t, root, strings.Fields(c.Arguments["without"])), strings.Fields(c.Arguments["env"])...)
		for _, command := range strings.Fields(c.Arguments["commands"]) {
			write(t, filepath.Join(strings.TrimPrefix(env[0], "PATH="), command), "#!/bin/sh\n", 0o755)
		}
		said := list(t, env)
		answer := map[string]string{}
		for key := range c.Want {
			answer[key] = said
		}
		answer["count"] = strconv.Itoa(strings.Count("\n"+said, "\n- "))
		return answer
	})
}

// TestNothingIsLacking fails if the script complains about a machine that has everything.
func TestNothingIsLacking(t *testing.T) {
	if said := list(t, machine(t, t.TempDir(), nil)); said != "" {
		t.Errorf("it says %q", said)
	}
}

// TestMountsWithBlanks finds the mount of a folder whose name the kernel escapes, and the last one of several.
func TestMountsWithBlanks(t *testing.T) {
	dir, cache := t.TempDir(), filepath.Join(t.TempDir(), "my cache")
	if err := os.Mkdir(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	at := "0:9 / " + strings.ReplaceAll(cache, " ", `\040`)
	for i, mounts := range []string{"8 22 " + at + " rw,noexec - tmpfs t rw\n", "8 22 " + at + " rw,noexec - tmpfs t rw\n9 22 " + at + " rw - tmpfs t rw\n"} {
		root := filepath.Join(dir, strconv.Itoa(i))
		write(t, filepath.Join(root, "proc/self/mountinfo"), "22 1 254:0 / / rw - ext4 /dev/vda rw\n"+mounts, 0o644)
		said := list(t, append(machine(t, root, nil), "GOCACHE="+cache))
		if count := strings.Count(said, "programs in "+cache+" can be run"); count != 1-i || strings.Count(said, "\n") != count {
			t.Errorf("%s: %q", mounts, said)
		}
	}
}

// TestEveryRemedyNamesPackages takes each tool away: the list names the package for every package manager.
func TestEveryRemedyNamesPackages(t *testing.T) {
	for name := range tools {
		if name == "df" || name == "go" {
			continue
		}
		said := list(t, machine(t, t.TempDir(), []string{name}))
		for _, manager := range []string{"apt-get install ", "dnf install ", "zypper install ", "pacman -S ", "apk add "} {
			if name == "mmdebstrap" && (manager == "pacman -S " || manager == "zypper install ") {
				continue // it is not in their repositories
			}
			if !strings.Contains(said, manager) {
				t.Errorf("without %s, no %q: %s", name, manager, said)
			}
		}
	}
}

// TestBuildNeedsNoGit builds with the version of the checkout where git can read it, and without where git is missing or refuses the
// checkout of another user.
func TestBuildNeedsNoGit(t *testing.T) {
	read(t, "Makefile")
	for name, tt := range map[string]struct {
		git     string
		stamped bool
	}{
		"an own checkout":                              {"#!/bin/sh\nexit 0\n", true},
		"another user's checkout":                      {"#!/bin/sh\necho fatal: detected dubious ownership in repository >&2\nexit 128\n", false},
		"no git":                                       {"", false},
		"git status cannot be read":                    {"#!/bin/sh\n[ $1 != status ]\n", false},
		"an archive in another repository":             {"#!/bin/sh\n[ $1 != ls-files ]\n", false},
		"an archive that another repository committed": {"#!/bin/sh\n[ \"$2\" != --show-prefix ] || echo vendor/tailgate/\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			if tt.git != "" {
				write(t, filepath.Join(bin, "git"), tt.git, 0o755)
			}
			shell, err := exec.LookPath("bash")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(shell, filepath.Join(bin, "bash")); err != nil {
				t.Fatal(err)
			}
			program, err := exec.LookPath("make")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(program, "-C", checkout, "--dry-run", "build")
			cmd.Env = []string{"PATH=" + bin}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if stamped := !strings.Contains(string(out), "go build -buildvcs=false"); stamped != tt.stamped || !strings.Contains(string(out), "./cmd/...") {
				t.Errorf("make build runs %q", out)
			}
		})
	}
}

// TestInstall installs what is missing with a stand-in for apt-get, and notices when nothing came of it.
func TestInstall(t *testing.T) {
	const works = `printf '#!/bin/sh\n' > "$0.d/pkg-config"; chmod +x "$0.d/pkg-config"`
	const locked = `[ -e "$0.said" ] || { : > "$0.said"; echo "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 9"; exit 100; }; `
	aptInterval = time.Millisecond
	for name, tt := range map[string]struct{ update, install, want, calls string }{
		"installed":                     {install: works},
		"an archive that is not signed": {update: `echo "E: The repository is not signed."; exit 100`, install: works},
		"unattended-upgrades updates":   {update: locked, install: works, calls: "--quiet update\n"},
		"unattended-upgrades installs":  {install: locked + works},
		"nothing can be reached": {
			update: "echo E: no route; exit 100", install: "echo E: not found; exit 100",
			want: "apt-get update: exit status 100: E: no route\napt-get install: exit status 100: E: not found; please install these packages: pkg-config libseccomp-dev",
		},
		"no files": {install: "exit 0", want: "apt-get install --reinstall pkg-config libseccomp-dev"},
		"refused":  {install: "echo E: no network; exit 100", want: "apt-get install: exit status 100: E: no network; please install these packages: pkg-config libseccomp-dev"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range machine(t, t.TempDir(), []string{"pkg-config"}) {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			bin := t.TempDir()
			calls := filepath.Join(bin, "calls")
			write(t, filepath.Join(bin, "apt-get"), "#!/bin/sh\necho $* >> "+calls+"\nif [ $2 = update ]; then :; "+tt.update+"\nexit; fi\n"+tt.install+"\n", 0o755)
			if err := os.Mkdir(filepath.Join(bin, "apt-get.d"), 0o755); err != nil {
				t.Fatal(err)
			}
			chmod, err := exec.LookPath("/bin/chmod")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(chmod, filepath.Join(bin, "chmod")); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", strings.Join([]string{os.Getenv("PATH"), bin, filepath.Join(bin, "apt-get.d")}, ":"))
			err = Install(t.Context(), io.Discard, checkout)
			if os.Geteuid() != 0 || !exists("/etc/debian_version") {
				if err == nil || !strings.Contains(err.Error(), "please install them: pkg-config libseccomp-dev") {
					t.Errorf("error %v", err)
				}
				return
			}
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			said, err := os.ReadFile(calls)
			const install = "--quiet install --yes --no-install-recommends pkg-config libseccomp-dev\n"
			if calls := strings.TrimSuffix(string(said), install); err != nil || calls != tt.calls+"--quiet update\n" && calls != tt.calls+"--quiet update\n"+install {
				t.Errorf("apt-get is called with %q, %v", said, err)
			}
		})
	}
}

// TestWhatTheBuildUses looks at machines whose commands are not those of the system, or do not work: the list says what each answered.
func TestWhatTheBuildUses(t *testing.T) {
	const shim = `dir=$PWD; while [ -n "$dir" ] && [ ! -e "$dir/go.mod" ]; do dir=${dir%/*}; done
		[ -n "$dir" ] || { echo "No version is set for command go" >&2; exit 126; }
		`
	for name, tt := range map[string]struct {
		commands map[string]string
		env      []string
		want     []string // parts of the list, of which each line has one
	}{
		"a version manager that chooses go by the folder": {commands: map[string]string{"go": shim + tools["go"]}},
		"a version manager without a version": {
			commands: map[string]string{"go": `echo "No version is set for command go" >&2; exit 126`},
			want:     []string{"- a Go that runs: /.* says: No version is set for command go; install Go"},
		},
		"a GOROOT that does not exist": {
			commands: map[string]string{"go": `echo "go: cannot find GOROOT directory: $GOROOT" >&2; exit 2`}, env: []string{"GOROOT=/usr/local/go1.24"},
			want: []string{"- a Go that runs: .* says: go: cannot find GOROOT directory: /usr/local/go1.24; GOROOT is /usr/local/go1.24 in your environment: unset it"},
		},
		"a GOROOT of another version": {
			env:  []string{"GOROOT=OTHER"},
			want: []string{"- the libraries of Go 1.26.8: GOROOT is .*, with those of go1.24.4; unset GOROOT"},
		},
		"CC that does not exist": {
			env:  []string{"CC=x86_64-conda-linux-gnu-cc"},
			want: []string{"- the C compiler x86_64-conda-linux-gnu-cc: CC names it.*unset CC"},
		},
		"CC of another machine": {
			commands: map[string]string{"cross-cc": `case "$*" in *-E*) ;; *) echo "ld: skipping incompatible libseccomp.so" >&2; echo "ld: cannot find -lseccomp" >&2; exit 1;; esac`},
			env:      []string{"CC=cross-cc"},
			want:     []string{"- a C compiler that compiles with libseccomp: cross-cc, which CC names, says: ld: cannot find -lseccomp; unset CC"},
		},
		"CC without headers": {
			commands: map[string]string{"cross-cc": `echo "<stdin>:1:10: fatal error: stdlib.h: No such file or directory" >&2; exit 1`},
			env:      []string{"CC=cross-cc"},
			want:     []string{"- a C compiler with the headers .*: CC is cross-cc, and it says: <stdin>:1:10: fatal error: stdlib.h"},
		},
		"CC is clang, and there is no gcc": {commands: map[string]string{"gcc": "exit 127", "clang": ""}, env: []string{"CC=clang"}},
		"pkg-config of Homebrew": {
			commands: map[string]string{"pkg-config": `echo "Package libseccomp was not found in the pkg-config search path." >&2; exit 1`},
			want:     []string{"- the headers of libseccomp, of the system: /.*/pkg-config, which your PATH or PKG_CONFIG names, says: Package libseccomp was not found.*PKG_CONFIG=/usr/bin/pkg-config"},
		},
		"PKG_CONFIG that does not exist": {
			env:  []string{"PKG_CONFIG=conda-pkg-config"},
			want: []string{"- the command conda-pkg-config: PKG_CONFIG names it", "- the headers of libseccomp"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "other/VERSION"), "go1.24.4\ntime 2025\n", 0o644)
			var without []string
			for command := range tt.commands {
				without = append(without, command)
			}
			env := machine(t, root, without)
			bin := strings.TrimPrefix(env[0], "PATH=")
			for command, body := range tt.commands {
				if body != "exit 127" {
					write(t, filepath.Join(bin, command), "#!/bin/sh\n"+body+"\n", 0o755)
				}
			}
			for _, variable := range tt.env {
				env = append(env, strings.ReplaceAll(variable, "OTHER", filepath.Join(root, "other")))
			}
			lines := strings.Split(strings.TrimSpace(list(t, env)), "\n")
			lines = slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "- ") })
			if len(lines) != len(tt.want) {
				t.Fatalf("it says %q", lines)
			}
			for i, want := range tt.want {
				if !regexp.MustCompile("^" + want).MatchString(lines[i]) {
					t.Errorf("it says %q, want %q", lines[i], want)
				}
			}
		})
	}
}

// TestKubernetesOfThisVersion needs little space only if the Kubernetes of this version was compiled by this version of Go.
func TestKubernetesOfThisVersion(t *testing.T) {
	for folder, want := range map[string]bool{
		"kubernetes-v1.36.3-0123456789ab": true, "kubernetes-v1.35.0-0123456789ab": false, "kubernetes-v1.36.3-0123456789ab.tmp": false, "cluster-0123456789ab": false,
	} {
		for _, built := range []string{"1.26.8", "1.25.1"} {
			cache := t.TempDir()
			write(t, filepath.Join(cache, "tailgate", folder, "kube-apiserver"), "", 0o755)
			said := list(t, append(machine(t, t.TempDir(), nil), "XDG_CACHE_HOME="+cache, "LOOK_BUILT="+built, "LOOK_FREE=3145728"))
			if enough := said == ""; enough != (want && built == "1.26.8") {
				t.Errorf("%s, compiled by %s: it says %q", folder, built, said)
			}
		}
	}
}

// TestLimitsOfTheCaller looks from a service whose cgroups have limits, in both versions.
func TestLimitsOfTheCaller(t *testing.T) {
	const group = "system.slice/runner.service"
	version2 := map[string]string{
		"proc/self/cgroup": "0::/" + group + "/job", "sys/fs/cgroup/" + group + "/pids.max": "300", "sys/fs/cgroup/" + group + "/pids.current": "20",
		"sys/fs/cgroup/" + group + "/memory.high": "500000000", "sys/fs/cgroup/system.slice/cpu.max": "50000 100000", "sys/fs/cgroup/cpu.max": "max 100000",
	}
	version1 := map[string]string{
		"proc/self/cgroup": "9:pids:/" + group + "\n5:memory:/" + group + "\n3:cpu,cpuacct:/" + group + "\n1:name=systemd:/" + group, "sys/fs/cgroup/memory/x": "",
		"sys/fs/cgroup/cpu/x": "", "sys/fs/cgroup/cpuset/x": "", "sys/fs/cgroup/pids/" + group + "/pids.max": "60",
		"sys/fs/cgroup/memory/" + group + "/memory.limit_in_bytes": "500000000", "sys/fs/cgroup/cpu,cpuacct/" + group + "/cpu.cfs_quota_us": "50000",
		"sys/fs/cgroup/cpu,cpuacct/" + group + "/cpu.cfs_period_us": "100000",
	}
	container := map[string]string{
		"proc/self/cgroup": "0::/../../system.slice", "sys/fs/cgroup/cpu.max": "150000 100000",
	}
	for name, tt := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"version 2": {version2, []string{"- 2 GiB of memory: .*memory.high limits this service or session to 476 MiB", "- 1000 processes", "- the time of CPUs: 1: a quota .* to 50000 of every 100000"}},
		"version 1": {version1, []string{"- 1000 processes .*: .*/pids.max limits this service or session to 60", "- 2 GiB of memory", "- the time of CPUs: 1"}},
		"container": {container, []string{"- the time of CPUs: 2: .* limits this container to 150000 of every 100000 microseconds.*docker run --cpus"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, content := range tt.files {
				write(t, filepath.Join(root, file), content+"\n", 0o644)
			}
			lines := strings.Split(strings.TrimSpace(list(t, machine(t, root, nil))), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("it says %q", lines)
			}
			for i, want := range tt.want {
				if !regexp.MustCompile("^" + want).MatchString(lines[i]) {
					t.Errorf("it says %q, want %q", lines[i], want)
				}
			}
		})
	}
}

// TestClockBehindTheCluster finds the time at which the newest cluster was made.
func TestClockBehindTheCluster(t *testing.T) {
	dir := t.TempDir()
	later := time.Now().Add(2 * time.Hour).Truncate(time.Second)
	for i, made := range []time.Time{later.Add(-time.Hour), later} {
		file := filepath.Join(dir, strconv.Itoa(i), "admin.kubeconfig")
		write(t, file, "", 0o600)
		if err := os.Chtimes(file, made, made); err != nil {
			t.Fatal(err)
		}
	}
	if made := clusterMade(filepath.Join(dir, "*", "admin.kubeconfig")); !made.Equal(later) {
		t.Errorf("made at %s, want %s", made, later)
	}
	if made := clusterMade(filepath.Join(dir, "none")); !made.IsZero() {
		t.Errorf("made at %s, although there is none", made)
	}
}

// TestLineEnds clones the checkout as Git for Windows does: the scripts keep their line ends.
func TestLineEnds(t *testing.T) {
	read(t, ".gitattributes")
	clone := filepath.Join(t.TempDir(), "clone")
	if err := exec.Command("git", "-C", checkout, "rev-parse", "HEAD").Run(); err != nil {
		t.Skip("this is no checkout of git:", err)
	}
	out, err := exec.Command("git", "-c", "core.autocrlf=true", "clone", "--quiet", "--depth=1", "--no-checkout", "file://"+top(t), clone).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files := []string{".gitattributes", "hack/look.sh", "Makefile", "internal/htmlreport/assets/report.js"}
	out, err = exec.Command("git", append([]string{"-c", "core.autocrlf=true", "-C", clone, "checkout", "HEAD", "--"}, files...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(clone, name))
		if err != nil || strings.Contains(string(content), "\r") {
			t.Errorf("%s has the line ends of Windows (%v)", name, err)
		}
	}
}

// top returns the absolute path of the checkout.
func top(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(checkout)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
