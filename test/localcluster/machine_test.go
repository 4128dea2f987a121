package localcluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/localcluster/thread"
)

// TestLastWords names the cause in logs of processes that ended, and what to do.
func TestLastWords(t *testing.T) {
	for _, tt := range []struct{ name, log, words, remedy string }{
		{
			"kubelet without inotify instances",
			"I1126 04:00:00.000001   12 server.go:600] \"Starting\"\n" +
				"E1126 04:00:01.000001   12 kubelet.go:1700] \"Failed to start cAdvisor\" err=\"inotify_init: too many open files\"\n",
			"Failed to start cAdvisor", "max_user_instances",
		},
		{
			"containerd without inotify instances", "time=\"2026-11-26T04:00:00Z\" level=fatal msg=\"failed to create fsnotify watcher: too many open files\"\n",
			"fsnotify", "max_user_instances",
		},
		{"inotify watches", "E1126 04:00:01.000001 12 x.go:1] \"Failed to watch\" err=\"inotify_add_watch /sys/fs/cgroup/x: no space left on device\"\n", "inotify_add_watch", "max_user_watches"},
		{"a full disk", "{\"level\":\"fatal\",\"msg\":\"failed to open\",\"error\":\"write: no space left on device\"}\n", "failed to open", "free some space"},
		{
			"a panic", "I1126 04:00:00.000001 12 a.go:1] fine\npanic: runtime error: index out of range\n\ngoroutine 1 [running]:\nmain.main()\n\t/x.go:1\n",
			"panic: runtime error", "",
		},
		{"no file descriptors", "E1126 04:00:00.000001 12 run.go:72] \"command failed\" err=\"open /x: too many open files\"\n", "command failed", "ulimit -n"},
		{"an address in use", "E1126 04:00:00.000001 12 run.go:72] \"command failed\" err=\"listen tcp 0.0.0.0:443: bind: address already in use\"\n", "address already in use", "another program"},
		{"an empty log", "", "", ""},
		{"an unknown end", "one\ntwo\n", "two", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			words := lastWords(tt.log)
			if !strings.Contains(words, tt.words) || !strings.Contains(remedy(words), tt.remedy) || (tt.remedy == "") != (remedy(words) == "") {
				t.Errorf("got %q and %q", words, remedy(words))
			}
		})
	}
}

// TestAwait expects the end of a wait as soon as it is over.
func TestAwait(t *testing.T) {
	c := &cluster{paths: paths{state: t.TempDir()}}
	if err := errors.Join(os.Mkdir(c.join("logs"), 0o755), os.WriteFile(c.log("kubelet-node-a"), []byte("one\nit is over\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	gone := []process{{Name: "kubelet-node-a", Args: []string{"/kubelet"}}}
	never := func() error { return errors.New("connection refused") }

	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("it did not become ready in time"))
	defer cancel()
	begin := time.Now()
	err := c.await(ctx, "node-a", gone, never)
	if err == nil || !strings.Contains(err.Error(), "waiting for node-a: kubelet-node-a ended: it is over") || time.Since(begin) > 30*time.Second {
		t.Errorf("a process that has ended: %v after %s", err, time.Since(begin))
	}
	if err := c.await(ctx, "node-a", nil, func() error { return hopeless{os.ErrPermission} }); !errors.Is(err, os.ErrPermission) {
		t.Errorf("an error that stays: %v", err)
	}
	if err := c.await(ctx, "node-a", gone, func() error { return nil }); err != nil {
		t.Errorf("what is ready is ready, whatever has ended: %v", err)
	}
	late, stop := context.WithTimeoutCause(t.Context(), time.Second, errors.New("it did not become ready in time"))
	defer stop()
	if err := c.await(late, "node-a", nil, never); err == nil || err.Error() != "waiting for node-a: it did not become ready in time; the last error: connection refused" {
		t.Errorf("no time left: %v", err)
	}
}

// TestLost decides when the data of a cluster is lost: not because the host cannot reach it, and not for lack of a limit.
func TestLost(t *testing.T) {
	c := &cluster{}
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{errors.New("waiting for the API server: i/o timeout"), false},
		{&ended{"kubelet-node-a", "panic: x", true}, false},
		{&ended{Etcd, "cannot open the database", true}, true},
		{&ended{Etcd, "ready to serve client requests", false}, false}, // It was killed, or had been started before.
		{fmt.Errorf("waiting for the API server: %w", &ended{APIServer, "etcd has another revision", true}), true},
		{&ended{Etcd, "write: no space left on device", true}, false},
	} {
		if why := c.lost(tt.err); (why != "") != tt.want {
			t.Errorf("%v: %q", tt.err, why)
		}
	}
}

// TestEnd tells a process that ended from one that was killed, and from one that another command had started.
func TestEnd(t *testing.T) {
	if again, signal := endOf(t.Name()); again || signal != "" {
		t.Errorf("not started here: %v, %q", again, signal)
	}
	for script, want := range map[string]string{"exit 1": "", "kill -9 $$": "signal: killed: "} {
		cmd := exec.Command("sh", "-c", script)
		_ = cmd.Run()
		end := make(chan *os.ProcessState, 1)
		end <- cmd.ProcessState
		ends.Store(t.Name(), end)
		for range 2 {
			if again, signal := endOf(t.Name()); again != (want == "") || signal != want {
				t.Errorf("%s: %v, %q", script, again, signal)
			}
		}
	}
	ends.Delete(t.Name())
}

// helper is set for a test in a container or in a process of its own.
const helper = "LOCALCLUSTER_TEST_HELPER"

// TestKilledProcessHasReleasedItsPort kills a process with much memory, in whose last thread the kernel frees this memory before it closes
// the socket.
func TestKilledProcessHasReleasedItsPort(t *testing.T) {
	if os.Getenv(helper) != "" {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		memory := make([]byte, 256<<20)
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
		fmt.Println(listener.Addr())
		_, _ = os.Stdin.Read(memory) // until it is killed
		return
	}
	for range 5 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), helper+"=1")
		_, stdinErr := cmd.StdinPipe()
		stdout, err := cmd.StdoutPipe()
		if err := errors.Join(err, stdinErr, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		address, err := bufio.NewReader(stdout).ReadString('\n')
		if err == nil {
			err = killAll(t.Context(), func(f found) bool { return f.PID == cmd.Process.Pid })
		}
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", strings.TrimSpace(address))
		if err != nil {
			t.Error(err)
		} else {
			listener.Close()
		}
		_ = cmd.Wait() // It was killed.
	}
}

func TestWarningCanBeStopped(t *testing.T) {
	var log bytes.Buffer
	p := paths{state: t.TempDir()}
	if err := noteOwner(p); err != nil {
		t.Fatal(err)
	}
	who, own := owner(p)
	if !own {
		t.Errorf("%s is not this user", who)
	}
	t.Setenv("SUDO_USER", "alice")
	if _, own := owner(p); own {
		t.Error("alice is the owner of another user's cluster")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(os.ErrDeadlineExceeded)
	err := warn(ctx, Options{Log: &log}, p, "it is from another version")
	if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(log.String(), "it is from another version; "+who) {
		t.Errorf("got %v after %q", err, log.String())
	}
}

// TestOneCommandAtATime takes a lock that another command has.
func TestOneCommandAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var log bytes.Buffer
	release, err := hold(t.Context(), path, time.Minute, &log, "make demo")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hold(t.Context(), path, 10*time.Millisecond, &log, "make e2e"); err == nil || !strings.Contains(err.Error(), "(make demo of "+currentUser()) {
		t.Errorf("a lock that is taken: %v", err)
	}
	if said := log.String(); !strings.Contains(said, "make demo of ") || strings.Count(said, "\n") != 1 {
		t.Errorf("while it waits, a command says %q", said)
	}
	got := make(chan error)
	for range 3 { // Each waits, takes the lock and removes the file.
		go func() {
			release, err := hold(t.Context(), path, time.Minute, &bytes.Buffer{}, "make cluster-down")
			if err == nil {
				release()
			}
			got <- err
		}()
	}
	release()
	for range 3 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the lock file is left: %v", err)
	}
}

// TestFolderOfTheUser makes state in a folder that a link of the user names, and removes it.
func TestFolderOfTheUser(t *testing.T) {
	disk := t.TempDir()
	p := paths{state: filepath.Join(t.TempDir(), "state")}
	if err := errors.Join(os.WriteFile(filepath.Join(disk, "photo"), nil, 0o644), os.Symlink(disk, p.state)); err != nil {
		t.Fatal(err)
	}
	if err := removeFolder(p); err != nil || !exists(filepath.Join(disk, "photo")) {
		t.Errorf("before a cluster was there: %v", err)
	}
	for range 2 {
		if err := claimFolder(p); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Mkdir(p.join("etcd"), 0o755), os.WriteFile(p.join("owner"), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		if err := removeFolder(p); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(disk)
		if link, linkErr := os.Readlink(p.state); err != nil || link != disk || len(entries) != 1 || entries[0].Name() != "photo" {
			t.Errorf("left are %v (%v), and the link to %s (%v)", entries, err, link, linkErr)
		}
	}
	if err := os.Mkdir(p.join("etcd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := claimFolder(p); err == nil || !strings.Contains(err.Error(), "etcd is not from this cluster") {
		t.Errorf("data of the user under a name of the cluster: %v", err)
	}

	own := paths{state: filepath.Join(t.TempDir(), "state")}
	if err := claimFolder(own); err != nil {
		t.Fatal(err)
	}
	if err := removeFolder(own); err != nil || exists(own.state) {
		t.Errorf("the cluster's own folder: %v", err)
	}
	if err := removeFolder(own); err != nil {
		t.Errorf("no folder: %v", err)
	}
}

// TestMarkOfAnotherFolder starts a process with the mark of the cluster. It belongs to the cluster as long as it sees the same folder.
func TestMarkOfAnotherFolder(t *testing.T) {
	p := paths{state: filepath.Join(t.TempDir(), "state")}
	if err := os.Mkdir(p.state, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	cmd.Env = []string{markState + "=" + p.state, markProcess + "=" + Etcd}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	var f found
	err := poll(t.Context(), func() (ok bool, _ error) { // The kernel shows its environment after a moment.
		f, ok = inspect(cmd.Process.Pid)
		return ok && f.State != "", nil
	})
	if err != nil || !p.marked(f) {
		t.Errorf("the cluster's process %+v is not found: %v", f, err)
	}
	f.Folder.Inode++ // what a container has at this path
	if p.marked(f) {
		t.Error("a process of a cluster in a container is taken for one of this machine's cluster")
	}
	if err := os.Remove(p.state); err != nil {
		t.Fatal(err)
	}
	if f, ok := inspect(cmd.Process.Pid); !ok || !p.marked(f) {
		t.Errorf("when the folder is gone, the process %+v is not found", f)
	}
}

// TestPlainPriority starts a process as for a command that the user entered with taskset and nice.
func TestPlainPriority(t *testing.T) {
	err := thread.Run(func() error {
		var one unix.CPUSet
		one.Set(0)
		if err := errors.Join(unix.SchedSetaffinity(0, &one), unix.Setpriority(unix.PRIO_PROCESS, 0, 5)); err != nil {
			return err
		}
		plainPriority()
		cmd := exec.Command("sh", "-c", "nice; nproc")
		out, err := cmd.Output()
		want := "0\n"
		if os.Geteuid() != 0 {
			want = "5\n" // Only root can undo nice.
		}
		var allowed unix.CPUSet
		err = errors.Join(err, unix.SchedGetaffinity(0, &allowed))
		if want += fmt.Sprintln(allowed.Count()); string(out) != want || runtime.NumCPU() > 1 && allowed.Count() < 2 {
			t.Errorf("got niceness and CPUs %q, want %q", out, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestVersionIsTheSameInEachCache computes the version of a cluster for two users.
func TestVersionIsTheSameInEachCache(t *testing.T) {
	version := func(cache, commands string) string {
		c := &cluster{paths: paths{state: "/state"}, root: "/home/" + cache, binaries: filepath.Join("/home", cache, commands), numa: [2][]int{{0}, {1}}}
		c.nodes = c.site.nodes(c.numa)
		got, err := c.version()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if version("alice/.cache", "cluster-1") != version("bob/.cache", "cluster-1") {
		t.Error("the version depends on whose cache has the commands, so that another user's Up would replace the cluster")
	}
	if version("alice/.cache", "cluster-1") == version("alice/.cache", "cluster-2") {
		t.Error("the version does not depend on the commands")
	}
}

// TestCommandsOfTheRunningCluster uses a cluster from another user's cache, as long as it has the same commands.
func TestCommandsOfTheRunningCluster(t *testing.T) {
	dir := t.TempDir()
	alice := filepath.Join(dir, "alice", "cluster-1")
	c := &cluster{paths: paths{state: filepath.Join(dir, "state")}}
	err := errors.Join(os.MkdirAll(alice, 0o755), os.Mkdir(c.state, 0o755), os.WriteFile(filepath.Join(alice, "kubectl"), nil, 0o755), os.WriteFile(c.commandsFile(), []byte(alice), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	for bob, want := range map[string]string{"/home/bob/cluster-1": alice, "/home/bob/cluster-2": "/home/bob/cluster-2"} {
		c.binaries = bob
		if c.useOwnCommands(); c.binaries != want {
			t.Errorf("instead of %s, the commands are from %s, want %s", bob, c.binaries, want)
		}
	}
	if err := os.RemoveAll(alice); err != nil {
		t.Fatal(err)
	}
	c.binaries = "/home/bob/cluster-1"
	if c.useOwnCommands(); c.binaries != "/home/bob/cluster-1" {
		t.Errorf("the commands are from %s, which is gone", c.binaries)
	}
}

// TestClientsUseNoProxy asks an API server with a client of the local cluster, and one of another cluster, behind a proxy.
func TestClientsUseNoProxy(t *testing.T) {
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	dir := t.TempDir()
	write := func(name string) string {
		path := filepath.Join(dir, name)
		text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://198.19.0.1:443'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config, err := RESTConfig(write("config"))
	if err != nil || config.Proxy != nil {
		t.Errorf("a client of another cluster uses the proxy of the environment: %v", err)
	}
	for _, path := range []string{Kubeconfig(Options{}), Kubeconfig(Options{Number: 3}), Kubeconfig(Options{Lab: true})} {
		if !Owns(path) {
			t.Errorf("%s is not a local cluster's", path)
		}
		if env := Environment(path); slices.ContainsFunc(env, func(v string) bool { return strings.Contains(v, "127.0.0.1:1") }) {
			t.Errorf("the environment of a client has the proxy: %q", env)
		}
	}
	if env := Environment("/home/dev/.kube/config"); !slices.Contains(env, "KUBERC=off") || !slices.Contains(env, "HTTPS_PROXY=http://127.0.0.1:1") {
		t.Errorf("the environment of a client of another cluster: %q", env)
	}
}

// TestUsageCanBePasted enters the line in shells, with a proxy.
func TestUsageCanBePasted(t *testing.T) {
	var line string
	for text := range strings.Lines(Usage(Options{})) {
		if strings.Contains(text, "export ") {
			line = strings.TrimSpace(text)
		}
	}
	for _, tt := range []struct {
		name  string
		env   []string
		other string
	}{
		{"no proxy", nil, ""},
		{"NO_PROXY", []string{"NO_PROXY=.corp.example, 10.0.0.0/8"}, ".corp.example, 10.0.0.0/8"},
		{"no_proxy", []string{"no_proxy=.corp.example"}, ".corp.example"},
	} {
		for _, shell := range []string{"sh", "bash"} {
			cmd := exec.Command(shell, "-euc", line+`; printf '%s\n' "$KUBECONFIG" "$PATH" "$NO_PROXY" "$no_proxy"`)
			cmd.Env = append([]string{"PATH=/home/dev/my bin (v1):/usr/bin:/bin"}, tt.env...)
			out, err := cmd.CombinedOutput()
			direct := environment.Direct + "," + tt.other
			want := strings.Join([]string{Kubeconfig(Options{}), Options{}.paths().userCommands() + ":/home/dev/my bin (v1):/usr/bin:/bin", direct, direct}, "\n") + "\n"
			if err != nil || string(out) != want {
				t.Errorf("%s, %s: %v %s", shell, tt.name, err, cmp.Diff(want, string(out)))
			}
		}
	}
}

// TestUserCommands links the commands of a checkout and a cache with special characters in their paths.
func TestUserCommands(t *testing.T) {
	dir := t.TempDir()
	c := &cluster{paths: paths{state: filepath.Join(dir, "state")}, root: filepath.Join(dir, "my src: 'v1'"), binaries: filepath.Join(dir, "cache")}
	if err := os.MkdirAll(filepath.Join(c.root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.root, "bin", "kubectl-tailgate"), []byte("#!/bin/sh\necho tailgate\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.linkUserCommands(); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(filepath.Join(c.userCommands(), "kubectl-tailgate")).CombinedOutput(); err != nil || string(out) != "tailgate\n" {
			t.Errorf("got %v %q", err, out)
		}
	}
}

// TestReachable tells an API server that does not answer yet from one that this host cannot reach.
func TestReachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	c := &cluster{paths: paths{site: maxClusters - 1}} // which has no network namespace here
	refused := &url.Error{Op: "Get", URL: server.URL, Err: &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}}
	attempt := c.reachable(func() error { return refused })
	for range 2 {
		var final hopeless
		if err := attempt(); !errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &final) {
			t.Errorf("an API server that answers nowhere: %v", err)
		}
	}
}
