package agent

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// helperVariable makes the test binary act as a tool instead of testing, so that the tests need no other
// program: its value is the tool's name, and the arguments are the tool's.
const helperVariable = "TAILGATE_TEST_HELPER"

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVariable); name != "" {
		os.Exit(helper(name, os.Args[1:]))
	}
	// The workers of a fuzz test belong to a run that has the lock already, and use no ports.
	flag.Parse()
	if worker := flag.Lookup("test.fuzzworker"); worker != nil && worker.Value.String() == "true" {
		os.Exit(m.Run())
	}
	unlock, err := lock()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	unlock()
	os.Exit(code)
}

// lock keeps two runs of these tests on one machine apart: the ports of a run are fixed, as in a pod.
func lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "tailgate-agent-test.lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("waiting for another run of the tests: %w", err)
	}
	return func() { f.Close() }, nil
}

func helper(name string, args []string) int {
	var err error
	switch name {
	case "echo": // address: answers one client after the other
		err = echo(args[0])
	case "ping": // address, count, file, own address: writes a round-trip time for each of count messages
		own := ""
		if len(args) > 3 {
			own = args[3]
		}
		err = ping(args[0], args[1], args[2], own)
	case "agent": // role, folder: one end of a run
		err = agentProcess(args[0], args[1])
	case "host-agent": // role, folder, interface, server, own address of its tool: one end, in a network namespace
		err = hostAgent(args)
	case "nap": // prints when it begins, sleeps until it is woken, and writes one round-trip time
		err = nap()
	case "tally": // address: like echo, and prints a count when it is interrupted
		interrupted := make(chan os.Signal, 1)
		signal.Notify(interrupted, os.Interrupt)
		go func() {
			<-interrupted
			fmt.Println("interrupted once")
			os.Exit(0)
		}()
		err = echo(args[0])
	case "sleep":
		time.Sleep(2 * patience)
	case "burn": // duration: uses that much CPU time, most of it in the kernel
		var usage unix.Rusage
		var enough time.Duration
		for enough, err = time.ParseDuration(args[0]); err == nil && usage.Utime.Nano()+usage.Stime.Nano() < enough.Nanoseconds(); {
			err = unix.Getrusage(unix.RUSAGE_SELF, &usage)
		}
	case "fail": // words: the last line that it prints
		fmt.Println("# some tool, version 1")
		fmt.Fprintln(os.Stderr, args[0])
		return 3
	case "capabilities": // prints what the kernel says of this process
		var status []byte
		if status, err = os.ReadFile("/proc/self/status"); err == nil {
			_, err = os.Stdout.Write(status)
		}
	case "family", "daemon":
		err = offspring(name == "daemon")
	default:
		err = fmt.Errorf("no helper %q", name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func echo(address string) error {
	// This comes before it listens: a test that waits for that may end it at once.
	fmt.Println("# echo: ready")
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		buffer := make([]byte, 1)
		for {
			if _, err := conn.Read(buffer); err != nil {
				break
			}
			if _, err := conn.Write(buffer); err != nil {
				break
			}
		}
		conn.Close()
	}
}

func ping(address, count, file, own string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	var dialer net.Dialer
	if own != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(own)}
	}
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	var samples strings.Builder
	buffer := []byte{1}
	for range n {
		sent := time.Now()
		if _, err := conn.Write(buffer); err != nil {
			return err
		}
		if _, err := conn.Read(buffer); err != nil {
			return err
		}
		fmt.Fprintln(&samples, time.Since(sent).Nanoseconds())
	}
	fmt.Println("# ping: done")
	return os.WriteFile(file, []byte(samples.String()), 0o600)
}

// childFile is where offspring notes the number of its child.
const childFile = "child"

// offspring starts a child that keeps the output open, writes down its process ID, and sleeps too; a daemon instead puts
// its child into a session of its own, and ends.
func offspring(daemon bool) error {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), helperVariable+"=sleep")
	child.Stdout = os.Stdout
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: daemon}
	if err := child.Start(); err != nil {
		return err
	}
	if err := os.WriteFile("child.new", []byte(strconv.Itoa(child.Process.Pid)), 0o600); err != nil {
		return err
	}
	if err := os.Rename("child.new", childFile); err != nil {
		return err
	}
	if daemon {
		return nil
	}
	time.Sleep(2 * patience)
	return nil
}
