package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// serverAddresses is a variable for a separate process: the addresses, separated by a space, at which TestServers serves.
const serverAddresses = "TAILGATE_TEST_SERVER_ADDRESSES"

// TestServers runs the servers of the manager until it is killed.
func TestServers(t *testing.T) {
	metrics, health, found := strings.Cut(os.Getenv(serverAddresses), " ")
	if !found {
		t.Skip("TestServersOutliveClientsWithoutToken runs it, in a process of its own")
	}
	limitMemory()
	mgr := newManager(t)
	if err := setUpServers(mgr, options{metricsAddress: metrics, healthAddress: health}, nil); err != nil {
		t.Fatal(err)
	}
	if err := mgr.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// freeAddresses returns two addresses of the loopback interface at which no program listens, and no other test.
func freeAddresses(t *testing.T) (a, b string) {
	t.Helper()
	var all [2]string
	for i := range all {
		listener, err := net.Listen("tcp", "127.0.77.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		all[i] = listener.Addr().String()
	}
	return all[0], all[1]
}

// Clients without a token, from many addresses, connect to both ports of the manager, send nothing, headers without end, or requests one
// after the other. The manager answers afterwards, and the peak of its servers is below half of the 512 MiB that its container has.
func TestServersOutliveClientsWithoutToken(t *testing.T) {
	const managerMiB = 512
	metrics, health := freeAddresses(t)
	child := exec.Command(os.Args[0], "-test.run", "^TestServers$", "-test.timeout", "2m")
	child.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%dMiB", managerMiB), serverAddresses+"="+metrics+" "+health)
	var out bytes.Buffer
	child.Stdout, child.Stderr = &out, &out
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
		if t.Failed() {
			t.Logf("the servers wrote:\n%s", out.String()[:min(out.Len(), 4096)])
		}
	})
	healthy := func(within time.Duration) error {
		var err error
		for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			var response *http.Response
			if response, err = (&http.Client{Timeout: time.Second}).Get("http://" + health + "/healthz"); err == nil {
				_ = response.Body.Close()
				return nil
			}
		}
		return err
	}
	if err := healthy(30 * time.Second); err != nil {
		t.Fatal(err)
	}

	header := []byte("X-Long: " + strings.Repeat("x", 8000) + "\r\n")
	attacks := map[string]func(net.Conn){
		"silence": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"headers": func(c net.Conn) {
			_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: m\r\n")
			for {
				if _, err := c.Write(header); err != nil {
					return
				}
			}
		},
		"requests": func(c net.Conn) {
			for {
				if _, err := io.WriteString(c, "GET /verdict/latencygates/g HTTP/1.1\r\nHost: m\r\n\r\n"); err != nil {
					return
				}
			}
		},
		"handshakes": func(c net.Conn) {
			_, _ = io.WriteString(c, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
			_, _ = io.Copy(io.Discard, c)
		},
	}
	var clients sync.WaitGroup
	end := time.Now().Add(5 * time.Second)
	attack := func(from int, address string, encrypted bool, do func(net.Conn)) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(from))}, Timeout: time.Second, Deadline: end}
		for time.Now().Before(end) {
			c, err := dialer.Dial("tcp", address)
			if err != nil {
				continue
			}
			_ = c.SetDeadline(end)
			if encrypted {
				c = tls.Client(c, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the client is the attacker
			}
			do(c)
			_ = c.Close()
		}
	}
	for i := range 240 {
		for _, do := range attacks {
			clients.Go(func() { attack(1+i, metrics, i%2 == 0, do) })
		}
		clients.Go(func() { attack(1+i, health, false, attacks["headers"]) })
	}
	clients.Wait()
	if err := healthy(30 * time.Second); err != nil {
		t.Errorf("after the attack, the manager does not answer: %v", err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", child.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	peak := regexp.MustCompile(`VmHWM:\s+(\d+)`).FindSubmatch(status)
	if peak == nil {
		t.Fatalf("no peak in %s", status)
	}
	kib, err := strconv.Atoi(string(peak[1]))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a peak of %d MiB", kib>>10)
	if kib>>10 >= managerMiB/2 {
		t.Errorf("a peak of %d MiB", kib>>10)
	}
}
