package look

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	"bash": "", "make": "", "gcc": "", "pkg-config": "", "mount": "", "umount": "", "mmdebstrap": "",
	"go": `[ "$1" = version ] && echo "go version go${LOOK_GO:-1.26.8} linux/amd64" || echo "${LOOK_TOOLCHAIN:-auto}"`,
	"df": `echo Filesystem; echo "/dev/vda 100 100 ${LOOK_FREE:-99999999} 1% /"`,
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
	"usr/share/keyrings/debian-archive-keyring.gpg": "key", "dev/kmsg": "",
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
			write(t, filepath.Join(root, name), content+"\n", 0o644)
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

// TestField looks at machines of bug reports. Arguments: without names commands and files that the machine does not have, env sets
// variables. Each wanted value is a part of the list; count is the number of its lines.
func TestField(t *testing.T) {
	field.Run(t, "machines", "test/localcluster/look", func(t *testing.T, c field.Case) map[string]string {
		root := t.TempDir()
		if c.Input != "" {
			root = c.Root(t)
		}
		env := append(machine(t, root, strings.Fields(c.Arguments["without"])), strings.Fields(c.Arguments["env"])...)
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
		for _, manager := range []string{"apt-get install ", "dnf install ", "pacman -S ", "apk add "} {
			if name == "mmdebstrap" && manager == "pacman -S " {
				continue // it is not in Arch's repositories
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
		"an own checkout":           {"#!/bin/sh\nexit 0\n", true},
		"another user's checkout":   {"#!/bin/sh\necho fatal: detected dubious ownership in repository >&2\nexit 128\n", false},
		"no git":                    {"", false},
		"git status cannot be read": {"#!/bin/sh\n[ $1 = rev-parse ]\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			if tt.git != "" {
				write(t, filepath.Join(bin, "git"), tt.git, 0o755)
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
