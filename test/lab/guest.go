package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/lab/machine"
	"github.com/tailgate-dev/tailgate/test/localcluster/guestnode"
)

// serial is the guest's end of the serial line on which the host reads the output of the tests. The kernel writes its messages
// to another line.
const serial = "/dev/ttyS1"

// controllers are the controllers of the pods' cgroups.
const controllers = "+cpuset +cpu +memory +hugetlb"

// inGuest is the guest's first process: it prepares the guest, runs the tests, reports their exit code and powers off.
func inGuest(m *testing.M) {
	code := 1
	err := prepare()
	// Until here the guest is started again if it hangs: its modules change the memory map, too, which machine.ErrNoBoot explains.
	fmt.Println(bootMark)
	if err != nil {
		fmt.Println("preparing the guest:", err)
	} else {
		code = m.Run()
	}
	fmt.Printf("%s%d\n", exitMark, code)
	_ = unix.IoctlSetInt(1, unix.TCSBRK, 1) // waits until the output is written
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	os.Exit(code) // the kernel panics, which also ends the guest
}

// prepare mounts the file systems that programs expect, opens the line to the host and loads the modules.
func prepare() error {
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"}, {"cgroup2", "/sys/fs/cgroup"}} {
		if err := guestnode.Mount(m[0], m[1]); err != nil {
			return err
		}
	}
	if err := openSerial(); err != nil {
		return fmt.Errorf("opening %s: %w", serial, err)
	}
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte(controllers), 0o644); err != nil {
		return fmt.Errorf("enabling the cgroup controllers: %w", err)
	}
	text, err := os.ReadFile(bootPath)
	if err != nil {
		return err
	}
	var b boot
	if err := json.Unmarshal(text, &b); err != nil {
		return fmt.Errorf("reading %s: %w", bootPath, err)
	}
	for _, entry := range append(b.Env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") {
		name, value, _ := strings.Cut(entry, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	os.Args = append(os.Args[:1], b.Args...)
	for _, m := range b.Modules {
		if err := guestnode.LoadModule(m); err != nil {
			return err
		}
	}
	if b.TestCPUs != "" {
		return confine(b.TestCPUs)
	}
	return nil
}

// confine keeps this process and those that it starts outside a pod on the given CPUs, as well as the kernel's threads that may run
// anywhere: rcu_preempt alone takes several per cent of a CPU. A pod's cgroup is not below that of the tests.
func confine(cpus string) error {
	set, err := result.ParseCPUs(cpus)
	if err != nil {
		return err
	}
	mask, allowed := 0, unix.CPUSet{}
	for _, cpu := range set.List() {
		mask |= 1 << cpu
		allowed.Set(cpu)
	}
	const dir = "/sys/fs/cgroup/tests"
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(dir+"/cpuset.cpus", []byte(cpus), 0o644), os.WriteFile(dir+"/cgroup.procs", []byte("0"), 0o644),
		os.WriteFile("/sys/devices/virtual/workqueue/cpumask", fmt.Appendf(nil, "%x", mask), 0o644)); err != nil {
		return err
	}
	threads, err := os.ReadFile("/proc/2/task/2/children") // of kthreadd
	if err != nil {
		return err
	}
	for field := range strings.FieldsSeq(string(threads)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return err
		}
		_ = unix.SchedSetaffinity(pid, &allowed) // not those of one CPU
	}
	return nil
}

// openSerial makes the line to the host the output of this process. It disables output processing, so that the line does not
// change the output.
func openSerial() error {
	line, err := os.OpenFile(serial, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer line.Close()
	fd := int(line.Fd())
	settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	settings.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, settings); err != nil {
		return err
	}
	return errors.Join(unix.Dup2(fd, 1), unix.Dup2(fd, 2))
}

// monitor is the guest's device for QEMU's monitor; it needs the module virtio_console.
const monitor = "/dev/vport0p1"

// SetLink connects or disconnects the cable of a network card of a machine with NUMA nodes, by the number of its NUMA node.
func SetLink(node int, up bool) error {
	line, err := os.OpenFile(monitor, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer line.Close()
	return machine.QMP(line, "set_link", map[string]any{"name": fmt.Sprintf("nic%d", node), "up": up})
}
