package netpair

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// No interface on the machine may have these names.
const clientName, serverName = "netpair-test-c", "netpair-test-s"

// listVariable makes the test binary list its interfaces instead of testing.
const listVariable = "TAILGATE_TEST_INTERFACES"

func TestMain(m *testing.M) {
	if os.Getenv(listVariable) == "" {
		os.Exit(m.Run())
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		panic(err)
	}
	for _, i := range interfaces {
		os.Stdout.WriteString(i.Name + "\n")
	}
}

func newPair(t *testing.T) *Pair {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making network namespaces takes root")
	}
	p, err := New(
		Interface{Name: clientName, Addresses: []string{"192.0.2.1/24", "fd00::1/64"}},
		Interface{Name: serverName, Addresses: []string{"192.0.2.2/24", "fd00::2/64"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func closePair(t *testing.T, p *Pair) {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestTalksOverTheCable(t *testing.T) {
	p := newPair(t)
	defer closePair(t, p)
	for _, address := range []string{"192.0.2.2:22048", "[fd00::2]:22048"} {
		var server net.PacketConn
		var client net.Conn
		if err := errors.Join(
			p.Server.In(func() (err error) { server, err = net.ListenPacket("udp", address); return err }),
			p.Client.In(func() (err error) { client, err = net.Dial("udp", address); return err }),
		); err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		defer client.Close()
		var n int
		var from net.Addr
		buffer := make([]byte, 10)
		// Datagrams may be lost until the kernel forwards IPv6 packets.
		for range 60 {
			if _, err := client.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			if err := server.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			var err error
			if n, from, err = server.ReadFrom(buffer); err == nil {
				break
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
		}
		if string(buffer[:n]) != "hello" || from.String() != client.LocalAddr().String() {
			t.Errorf("at %s arrived %q from %v", address, buffer[:n], from)
		}
	}
}

func TestProgramsAreInTheNamespace(t *testing.T) {
	p := newPair(t)
	defer closePair(t, p)
	if err := p.Join(Interface{Name: "spare"}, Interface{Name: "spare"}); err != nil {
		t.Fatal(err)
	}
	for want, namespace := range map[string]*Namespace{clientName: p.Client, serverName: p.Server} {
		var out bytes.Buffer
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), listVariable+"=1")
		cmd.Stdout = &out
		if err := namespace.Start(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		// The kernel decides the order of the two cables' ends.
		names := strings.Fields(out.String())
		if len(names) != 3 || names[0] != "lo" || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "spare") {
			t.Errorf("a program sees %q, want lo, %s and spare", names, want)
		}
	}
}

func TestRefuses(t *testing.T) {
	p := newPair(t)
	defer closePair(t, p)
	if err := p.Join(Interface{Name: clientName}, Interface{Name: "spare"}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a name that is taken: %v", err)
	}
	if _, err := New(Interface{Name: "longer-than-15-bytes"}, Interface{Name: "b"}); err == nil {
		t.Error("a name that is too long is taken")
	}
	if _, err := New(Interface{Name: "a", Addresses: []string{"192.0.2.1"}}, Interface{Name: "b"}); err == nil || !strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("an address without a prefix length: %v", err)
	}
	if err := p.Client.In(func() error { return os.ErrExist }); !errors.Is(err, os.ErrExist) {
		t.Errorf("the error of what is done is %v", err)
	}
	if err := p.Client.Start(exec.Command("/no/such/program")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}

// TestComesBack checks that the thread leaves the namespace, whatever happens in it.
func TestComesBack(t *testing.T) {
	p := newPair(t)
	defer closePair(t, p)
	here := inode(t)
	ended := make(chan string)
	go func() {
		defer func() { recover(); ended <- inode(t) }()
		_ = p.Client.In(func() error { panic("on the way") })
	}()
	if got := <-ended; got != here {
		t.Errorf("after a panic the thread is in %s, not in %s", got, here)
	}
	if err := p.Client.In(func() error {
		if inode(t) == here {
			t.Error("the namespace is the one from which it was entered")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if got := inode(t); got != here {
		t.Errorf("the thread is in %s, not in %s", got, here)
	}
}

func TestAttach(t *testing.T) {
	p := newPair(t)
	defer closePair(t, p)
	n, err := NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := p.Client.In(func() error { return n.Attach(Interface{Name: clientName, Addresses: []string{"198.51.100.1/24"}}) }); err != nil {
		t.Fatal(err)
	}
	if err := n.In(func() error {
		if path, err := os.Readlink(n.Path()); err != nil || path != inode(t) {
			t.Errorf("the path of %s is %s, %v", inode(t), path, err)
		}
		i, err := net.InterfaceByName(clientName)
		if err != nil {
			return err
		}
		addresses, err := i.Addrs()
		if len(addresses) == 0 || addresses[0].String() != "198.51.100.1/24" || i.Flags&net.FlagUp == 0 {
			t.Errorf("the interface has the addresses %v and the flags %s", addresses, i.Flags)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// inode returns the name of the thread's network namespace in the format of the links under /proc.
func inode(t *testing.T) string {
	name, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Error(err)
	}
	return name
}

func TestLeavesNothingBehind(t *testing.T) {
	closePair(t, newPair(t)) // afterwards, all files that the process opens only once are open
	before := descriptors(t)
	p := newPair(t)
	var made []string
	for _, n := range []*Namespace{p.Client, p.Server} {
		if err := n.In(func() error { made = append(made, inode(t)); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range made {
		if strings.Contains(string(mounts), name) {
			t.Errorf("%s is mounted", name)
		}
	}
	for _, name := range []string{clientName, serverName} {
		if _, err := net.InterfaceByName(name); err == nil {
			t.Errorf("the machine has an interface %s", name)
		}
	}
	closePair(t, p)
	if p.Client.handle != netns.None() || p.Server.handle != netns.None() {
		t.Error("the namespaces can still be entered")
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d files are open, and %d were before", after, before)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		name, err := os.Readlink("/proc/self/task/" + thread.Name() + "/ns/net")
		if err == nil && (name == made[0] || name == made[1]) {
			t.Errorf("thread %s is still in %s", thread.Name(), name)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
