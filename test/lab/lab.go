// Package lab runs a package's tests as root in a guest: an emulated machine with its own kernel, for operations that tests
// must not perform on the machine that they run on, such as loading kernel modules, or cannot perform there. It does not use
// KVM.
//
// A package calls Main in its TestMain. On the host, Main boots the guest with this package's tests as its first process,
// passes the flags of the tests on, copies their output, and ends with their exit code. The files of the guest are those of
// the bench image, so that a Pod has the tools. The guest has no network outside itself.
package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/lab/machine"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

// Machine describes a guest.
type Machine struct {
	CPUs      int
	MemoryMiB int
	// NICs are virtio-net devices, eth0 and so on, each with the number of the hub that its cable leads to.
	NICs []int
	// NUMA gives the guest two NUMA nodes, each a socket with half of the CPUs, two threads per core, half of the memory, and
	// a PCI bus with a network card that has virtual functions (igb). A cable connects the two cards; see SetLink.
	NUMA bool
	// TestCPUs are the CPUs of the tests and of workers of the kernel that may run anywhere, so that these take no time of a tool that
	// measures on another CPU; empty: all CPUs.
	TestCPUs string
	// Modules are loaded in this order, each with its parameters after its name, as in "loop max_loop=1". A name refers to a
	// module of the kernel's package, whose dependencies are loaded first; a path refers to Files.
	Modules []string
	// Files are files of the host, by their paths in the guest.
	Files map[string]string
}

const (
	// guestVariable is in the environment of the guest's first process: the kernel sets it from its command line.
	guestVariable = "TAILGATE_LAB"
	// requiredVariable makes tests fail, instead of being skipped, if there is no QEMU or kernel. Continuous integration sets it.
	requiredVariable = "CI"
	// initPath is the program of the guest's first process, and bootPath its instructions.
	initPath = "/lab/init"
	bootPath = "/lab/boot.json"
	// bootMark is the guest's first line.
	bootMark = "the guest has booted"
	// exitMark precedes the exit code of the tests in a separate line.
	exitMark = "the guest's tests end with exit code "
	// maxConsole is the maximum number of bytes that are read from the guest's console.
	maxConsole = 1 << 20
)

// boot holds the instructions for the guest's first process.
type boot struct {
	// Modules are paths in the guest with parameters.
	Modules []string
	// Args are the flags of the tests, Env the variables from the host's environment.
	Args, Env []string
	// TestCPUs are those of the Machine.
	TestCPUs string
}

// Main runs the tests of a package in a guest, and does not return. It calls describe only on the host. If describe returns no
// machine, reason is the reason for skipping the tests.
func Main(m *testing.M, describe func() (guest *Machine, reason string)) {
	if len(os.Args) > 1 && os.Args[1] == podCommand {
		fmt.Fprintln(os.Stderr, "starting a pod's process:", becomePod(os.Args[2]))
		os.Exit(125)
	}
	if os.Getenv(guestVariable) != "" {
		inGuest(m)
	}
	guest, reason := describe()
	if guest == nil {
		fmt.Println("skipped:", reason)
		os.Exit(0)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	code, err := run(ctx, *guest)
	if errors.As(err, new(machine.Missing)) && os.Getenv(requiredVariable) == "" {
		fmt.Printf("LEFT OUT: the tests of %s, as there is no QEMU or kernel for them: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		code = 1
	}
	os.Exit(code)
}

// run boots a guest and returns the exit code of its tests.
func run(ctx context.Context, m Machine) (code int, err error) {
	system, err := machine.Debian(ctx, os.Stderr)
	if err != nil {
		return 0, err
	}
	initramfs, err := makeInitramfs(ctx, m, system)
	if err != nil {
		return 0, fmt.Errorf("making the guest's files: %w", err)
	}
	defer initramfs.Close()
	console, err := unnamed()
	if err != nil {
		return 0, err
	}
	defer console.Close()
	err = machine.Boot(os.Stderr, func() (err error) {
		code, err = qemu(ctx, m, system, initramfs, console)
		return err
	})
	if err != nil {
		words, _ := io.ReadAll(io.NewSectionReader(console, 0, maxConsole))
		return 0, fmt.Errorf("%w; the last lines of the guest's console:\n%s", err, words[max(0, len(words)-4000):])
	}
	return code, nil
}

// unnamed returns a file without a name, which the kernel removes once this process and QEMU have ended, also after a crash.
func unnamed() (*os.File, error) {
	f, err := os.CreateTemp("", "tailgate-lab-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// qemu runs the guest until it powers off. The kernel kills QEMU when this thread ends.
func qemu(ctx context.Context, m Machine, system machine.System, initramfs, console *os.File) (code int, err error) {
	kernel, err := system.Kernel()
	if err != nil {
		return 0, err
	}
	args := append(system.QEMU(), "-serial", "file:/proc/self/fd/4", "-serial", "stdio", "-kernel", kernel, "-initrd", "/proc/self/fd/3",
		"-append", machine.KernelArguments+" rdinit="+initPath+" "+guestVariable+"=1")
	args = append(args, m.hardware()...)
	files := []*os.File{initramfs, console} // 3 and 4 of QEMU
	if m.NUMA {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return 0, fmt.Errorf("connecting QEMU's monitor to the guest: %w", err)
		}
		for _, fd := range pair { // 5 and 6
			f := os.NewFile(uintptr(fd), "monitor")
			defer f.Close()
			files = append(files, f)
		}
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, files
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting QEMU: %w", err)
	}
	booting, booted := machine.Booting(ctx, cmd.Process.Pid, machine.IdleLimit)
	defer booted()
	stop := context.AfterFunc(booting, func() { _ = cmd.Process.Kill() })
	ran := false
	code, err = relay(stdout, os.Stdout, func() {
		ran = stop()
		booted()
	})
	err = errors.Join(err, cmd.Wait())
	switch cause := context.Cause(booting); {
	case ran:
	case cause != nil:
		err = cause
	default:
		err = fmt.Errorf("%w: QEMU has ended: %s", machine.ErrNoBoot, cmd.ProcessState)
	}
	return code, err
}

// hardware returns QEMU's arguments for the parts that differ between machines.
func (m Machine) hardware() []string {
	if !m.NUMA {
		args := []string{"-cpu", "max", "-smp", strconv.Itoa(m.CPUs), "-m", fmt.Sprintf("%dM", m.MemoryMiB)}
		for i, hub := range m.NICs {
			args = append(args, "-netdev", fmt.Sprintf("hubport,id=n%d,hubid=%d", i, hub),
				"-device", fmt.Sprintf("virtio-net-pci,netdev=n%d,mac=52:54:00:00:00:%02x,romfile=", i, i+1))
		}
		return args
	}
	// A pair of sockets makes QEMU's monitor a device of the guest.
	args := append(machine.NUMA(m.CPUs, m.MemoryMiB, ""),
		"-chardev", "socket,id=monitor,fd=5", "-mon", "chardev=monitor,mode=control", "-chardev", "socket,id=guest,fd=6",
		"-device", "virtio-serial-pci,bus=pcie.0", "-device", "virtserialport,chardev=guest")
	for node := range 2 {
		args = append(args, machine.Card(node, node, 0, fmt.Sprintf("52:54:00:00:00:%02x", node+1))...)
	}
	return args
}

// relay copies the output of the guest's tests, calls booted at its first line, and returns the exit code in it.
func relay(from io.Reader, to io.Writer, booted func()) (code int, err error) {
	code = -1
	var rest string
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		rest += string(buffer[:n])
		for {
			line, after, found := strings.Cut(rest, "\n")
			if !found {
				break
			}
			rest = after
			if line == bootMark {
				booted()
				continue
			}
			if text, ok := strings.CutPrefix(line, exitMark); ok {
				if code, err = strconv.Atoi(text); err != nil {
					return 0, fmt.Errorf("reading the exit code: %w", err)
				}
				continue
			}
			fmt.Fprintln(to, line)
		}
		switch {
		case errors.Is(err, io.EOF) && code < 0:
			return 0, errors.New("the guest ended before its tests")
		case errors.Is(err, io.EOF):
			return code, nil
		case err != nil:
			return 0, fmt.Errorf("reading from the guest: %w", err)
		}
	}
}

// makeInitramfs writes the guest's files: the bench image, the tests of the package in the working directory, the
// kernel's modules and the caller's files.
func makeInitramfs(ctx context.Context, m Machine, system machine.System) (*os.File, error) {
	dir, release, err := cached.Scratch(ctx, "lab-guest")
	if err != nil {
		return nil, err
	}
	defer release()
	out, err := unnamed()
	if err != nil {
		return nil, err
	}
	if err := fillInitramfs(ctx, m, system, dir, out); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

func fillInitramfs(ctx context.Context, m Machine, system machine.System, dir string, out io.Writer) error {
	tests := filepath.Join(dir, "tests")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "e2e", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", tests, ".")
	build.Env = environment.Tool()
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the tests: %w: %s", err, out)
	}
	root, err := images.RepositoryRoot()
	if err != nil {
		return err
	}
	o, err := images.DefaultOptions(root, os.Stderr)
	if err != nil {
		return err
	}
	o.OutDir = dir
	built, err := images.Build(ctx, o, "bench")
	if err != nil {
		return err
	}
	w := machine.NewCPIO(out)
	if err := w.Image(built[0].Path); err != nil {
		return err
	}
	b := boot{Args: testFlags(os.Args[1:]), TestCPUs: m.TestCPUs}
	for _, e := range os.Environ() {
		if strings.HasPrefix(e, "LAB_") {
			b.Env = append(b.Env, e)
		}
	}
	files := map[string]string{initPath: tests}
	for guest, host := range m.Files {
		files[guest] = host
	}
	if b.Modules, err = machine.Modules(m.Modules, system.Modules(), files); err != nil {
		return err
	}
	for guest, host := range files {
		if err := w.Copy(guest, host); err != nil {
			return err
		}
	}
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := w.File(bootPath, 0o644, text); err != nil {
		return err
	}
	return w.Close()
}

// testFlags returns the flags for the tests in the guest. It drops flags that name files of the host.
func testFlags(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		return strings.HasPrefix(a, "-test.testlogfile=") || strings.HasPrefix(a, "-test.coverprofile=") || strings.HasPrefix(a, "-test.gocoverdir=")
	})
}
