package guestnode

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// root is the initial mount point of the disk.
const disk, root = "/dev/vda", "/root"

// Main is the first process: it starts the process that does the work, and reaps orphans. It does not return.
func Main() {
	if os.Getpid() != 1 {
		if err := run(); err != nil {
			say("%v", err)
		}
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
		os.Exit(1)
	}
	worker, err := os.StartProcess(InitPath, os.Args, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Env: os.Environ()})
	if err == nil {
		for pid := -1; pid != worker.Pid; {
			if pid, err = unix.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	say("the node's process has ended: %v", err)
	os.Exit(1) // the kernel panics, which ends the guest
}

func say(format string, args ...any) {
	up, _ := os.ReadFile("/proc/uptime")
	since, _, _ := strings.Cut(string(up), " ")
	fmt.Printf("guestnode: %s s: %s\n", since, fmt.Sprintf(format, args...))
}

func run() error {
	if err := prepare(); err != nil {
		return err
	}
	var c Config
	text, err := os.ReadFile(ConfigPath)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", ConfigPath, err)
	}
	if err := unix.Sethostname([]byte(c.Name)); err != nil {
		return err
	}
	say("booted")
	if err := c.network(); err != nil {
		return err
	}
	say("network")
	for name, args := range c.Processes {
		go c.keep(name, args)
	}
	failed := make(chan error)
	go func() { failed <- c.serve() }()
	go func() { failed <- powerButton() }()
	err = <-failed
	say("powering off: %v", err)
	end()
	return nil
}

// prepare loads the kernel's modules and makes the disk the root file system.
func prepare() error {
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := Mount(m[0], m[1]); err != nil {
			return err
		}
	}
	var modules []string
	text, err := os.ReadFile(ModulesPath)
	if err == nil {
		err = json.Unmarshal(text, &modules)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", ModulesPath, err)
	}
	for _, m := range modules {
		if err := LoadModule(m); err != nil {
			return err
		}
	}
	if err := eventually("there is "+disk, func() bool { _, err := os.Stat(disk); return err == nil }); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(root, 0o755), unix.Mount(disk, root, "ext4", 0, "")); err != nil {
		return fmt.Errorf("mounting %s: %w", disk, err)
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := unix.Mount(dir, root+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving %s: %w", dir, err)
		}
	}
	// The disk becomes the root of the whole mount namespace. Otherwise, runc cannot change the root, because mounts below an initramfs
	// cannot be moved.
	if err := errors.Join(os.Chdir(root), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), os.Chdir("/")); err != nil {
		return fmt.Errorf("making %s the root: %w", disk, err)
	}
	for _, m := range [][2]string{{"tmpfs", "/run"}, {"tmpfs", "/tmp"}, {"tmpfs", "/dev/shm"}, {"devpts", "/dev/pts"}, {"cgroup2", "/sys/fs/cgroup"}} {
		if err := Mount(m[0], m[1]); err != nil {
			return err
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing the mounts: %w", err)
	}
	return os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpuset +cpu +io +memory +pids +hugetlb"), 0o644)
}

// Mount mounts a file system of a kind, and creates the folder if it does not exist.
func Mount(kind, target string) error {
	if err := errors.Join(os.MkdirAll(target, 0o755), unix.Mount(kind, target, kind, 0, "")); err != nil {
		return fmt.Errorf("mounting %s: %w", target, err)
	}
	return nil
}

// LoadModule loads a kernel module: a path, with parameters after a space.
func LoadModule(module string) error {
	path, parameters, _ := strings.Cut(module, " ")
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), parameters, 0); err != nil {
		return fmt.Errorf("loading %s: %w", path, err)
	}
	return nil
}

// eventually waits until a condition holds.
func eventually(what string, holds func() bool) error {
	for began := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			return fmt.Errorf("waited two minutes until %s", what)
		}
	}
	return nil
}

// keep runs a process and restarts it whenever it ends.
func (c Config) keep(name string, args []string) {
	for {
		log, err := os.OpenFile(filepath.Join("/var/log", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err == nil {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.Env, "/", log, log
			err = cmd.Run()
			log.Close()
		}
		say("%s ended: %v", name, err)
		time.Sleep(time.Second)
	}
}

// serve imports images and returns logs by HTTP.
func (c Config) serve() error {
	http.HandleFunc("POST /images", func(w http.ResponseWriter, r *http.Request) {
		cmd := exec.CommandContext(r.Context(), c.Import[0], c.Import[1:]...)
		cmd.Env, cmd.Stdin = c.Env, r.Body
		if out, err := cmd.CombinedOutput(); err != nil {
			http.Error(w, fmt.Sprintf("%v: %s", err, out), http.StatusInternalServerError)
		}
	})
	http.HandleFunc("GET /log/{name}", func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Open(filepath.Join("/var/log", filepath.Base(r.PathValue("name"))+".log"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		defer f.Close()
		_, _ = io.Copy(w, f)
	})
	return http.ListenAndServe(fmt.Sprintf(":%d", Port), nil)
}

// powerButton returns when the button is pressed.
func powerButton() error {
	devices, _ := filepath.Glob("/dev/input/event*") // The pattern is valid.
	if len(devices) == 0 {
		return errors.New("the machine has no power button")
	}
	pressed := make(chan error)
	for _, device := range devices {
		f, err := os.Open(device)
		if err != nil {
			return err
		}
		go func() {
			var event struct {
				Seconds, Microseconds uint64
				Type, Code            uint16
				Value                 int32
			}
			const isKey, isPower = 1, 116
			for event.Type != isKey || event.Code != isPower || event.Value != 1 {
				if err := binary.Read(f, binary.NativeEndian, &event); err != nil {
					pressed <- fmt.Errorf("reading %s: %w", device, err)
					return
				}
			}
			pressed <- errors.New("the power button was pressed")
		}()
	}
	return <-pressed
}

// end terminates all other processes, kills them after two seconds, and writes cached data to the disk.
func end() {
	_ = unix.Kill(-1, unix.SIGTERM)
	time.Sleep(2 * time.Second)
	_ = unix.Kill(-1, unix.SIGKILL)
	unix.Sync()
	_ = unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
}
