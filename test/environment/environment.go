// Package environment computes the environment of the commands that the local cluster, the demo and the tests start. There are two kinds of commands:
//
//   - Tools compile, download and unpack. They keep what they need to reach the Internet and to find compilers and caches: proxies,
//     GOPROXY, HOME, PATH, XDG_CACHE_HOME, TMPDIR, CC.
//   - Commands of the cluster, its processes and its clients, do not receive the user's environment.
//
// A process that imports this package has the umask 022, which its children inherit: programs and folders of the cluster are read by
// other users than root, in pods. Its children do not inherit files that its caller left open, such as a lock of flock(1) or a pipe of a
// CI runner, which would stay in use as long as the cluster runs, nor the caller's limits of memory, files and CPU time.
package environment

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	unix.Umask(0o022)
	keepFiles()
	liftLimits()
}

// limits are the limits of a process that a user sets for his own commands, with ulimit or in a service.
var limits = []int{
	unix.RLIMIT_AS, unix.RLIMIT_CPU, unix.RLIMIT_DATA, unix.RLIMIT_FSIZE, unix.RLIMIT_MEMLOCK, unix.RLIMIT_NPROC, unix.RLIMIT_RSS,
}

// liftLimits removes them, as the processes of a real node have none. Without CAP_SYS_RESOURCE the hard limits stay.
func liftLimits() {
	for _, limit := range limits {
		var old unix.Rlimit
		if unix.Setrlimit(limit, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}) != nil && unix.Getrlimit(limit, &old) == nil {
			_ = unix.Setrlimit(limit, &unix.Rlimit{Cur: old.Max, Max: old.Max})
		}
	}
}

// keepFiles marks all open files except the standard ones as not to be inherited.
func keepFiles() {
	if unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if err != nil {
		return
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// Direct are the addresses of all local clusters, in the format of NO_PROXY.
const Direct = "198.19.0.0/16,10.96.0.0/16"

// GoFlags are the flags of every go command, unless it is for a release. They are the same in the Makefile, so that all builds share the
// compiled packages. GOFLAGS must not be empty: then, go uses the value that the user stored with `go env -w`.
const GoFlags = "-trimpath -gcflags=all=-dwarf=false"

// SystemPath is where the programs of a Linux distribution are.
const SystemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// foreign are variables that change what tools do. A * at the end stands for any text.
var foreign = []string{
	"LD_PRELOAD", "LD_AUDIT", "LD_DEBUG", // ldd would print these libraries, and chroot would not find them
	"BASH_ENV", "ENV", "CDPATH", "SHELLOPTS", "BASHOPTS", "BASH_FUNC_*", // they change what scripts do and print
	// A git hook sets them, and git would then look at another repository. Variables for access to private modules stay.
	"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR",
	"GIT_NAMESPACE", "GIT_PREFIX", "GIT_CEILING_DIRECTORIES",
	"GOBIN",
	"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "GNUMAKEFLAGS", "MAKEFILES",
	"TAR_OPTIONS", "GZIP", "XZ_OPT", "XZ_DEFAULTS", "PERL5OPT", "PERL5LIB", "PERL_UNICODE", "POSIXLY_CORRECT",
	"LC_*", "LANGUAGE",
	"KUBE*", "HELM_*",
}

// Tool returns the environment of a command that compiles, downloads or unpacks, with additional variables.
func Tool(extra ...string) []string { return tool(os.Environ(), extra...) }

func tool(user []string, extra ...string) []string {
	kept := make([]string, 0, len(user)+len(extra)+16)
	direct := Direct
	for _, variable := range user {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case slices.ContainsFunc(foreign, func(pattern string) bool { return matches(name, pattern) }):
			continue
		case (name == "TMPDIR" || name == "GOTMPDIR") && value != "" && !filepath.IsAbs(value): // the command may run in another folder
			if absolute, err := filepath.Abs(value); err == nil {
				variable = name + "=" + absolute
			}
		case strings.EqualFold(name, "NO_PROXY"):
			if value != "" {
				direct += "," + value
			}
			continue
		}
		kept = append(kept, variable)
	}
	kept = append(kept, "NO_PROXY="+direct, "no_proxy="+direct,
		"GOFLAGS="+GoFlags, "GOWORK=off", "GO111MODULE=on", "GOOS=linux", "GOARCH="+runtime.GOARCH, "CGO_ENABLED=0",
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=,", // An empty value would not replace one that the user stored with go env -w.
		"LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "KUBERC=off")
	return append(kept, extra...)
}

// Run runs a command with a context and returns what it wrote to its outputs that are not set. When the context ends, the command is
// interrupted, so that it removes its own temporary files. The kernel interrupts it if this process is killed, so that nothing goes on
// to compile or to unpack.
func Run(cmd *exec.Cmd) ([]byte, error) {
	var output bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &output
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &output
	}
	runtime.LockOSThread() // The signal comes at the end of the thread that started the command.
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGINT
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second // Then it is killed.
	err := cmd.Run()
	return output.Bytes(), err
}

// GoFolders returns the folders of Go: its own, its modules and its cache. They may have blanks in their names.
func GoFolders(ctx context.Context) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOMODCACHE", "GOCACHE")
	cmd.Env = Tool()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("asking for the folders of Go: %w", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}

func matches(name, pattern string) bool {
	prefix, any := strings.CutSuffix(pattern, "*")
	return name == pattern || any && strings.HasPrefix(name, prefix)
}

// Cluster returns the environment of a process or client of the cluster, with additional variables. home is a folder of the cluster,
// in which clients keep their caches.
func Cluster(home string, extra ...string) []string {
	return append([]string{
		"PATH=" + SystemPath, "HOME=" + home,
		// Preferences of the user's kubectl could ask before each deletion, or print in another format.
		"KUBERC=off", "KUBECACHEDIR=" + filepath.Join(home, "kubectl-cache"),
	}, extra...)
}
