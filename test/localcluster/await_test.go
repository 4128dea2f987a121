package localcluster

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestUntrusted asks a server with the certificates of a cluster while the client's clock is another one, and servers of others.
func TestUntrusted(t *testing.T) {
	dir := t.TempDir()
	if err := writePKI(dir, []identity{{Name: "apiserver", User: "kube-apiserver", IPs: []string{"127.0.0.1"}}}); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "apiserver.crt"), filepath.Join(dir, "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	own := x509.NewCertPool()
	own.AppendCertsFromPEM(ca)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	defer server.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()

	for name, tt := range map[string]struct {
		url   string
		roots *x509.CertPool
		clock time.Duration
		want  string // empty: no answer, or a good one
	}{
		"right":                 {server.URL, own, 0, ""},
		"half an hour back":     {server.URL, own, -30 * time.Minute, ""},
		"two hours back":        {server.URL, own, -2 * time.Hour, "was set back after the cluster was made"},
		"another's certificate": {server.URL, x509.NewCertPool(), 0, "is not the API server of this cluster"},
		"no server answers":     {"https://" + closed.Addr().String(), own, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
				RootCAs: tt.roots, Time: func() time.Time { return time.Now().Add(tt.clock) },
			}}}
			answer, err := client.Get(tt.url)
			if err == nil {
				answer.Body.Close()
			}
			got := site(0).untrusted(err)
			if (got == nil) != (tt.want == "") || got != nil && !strings.Contains(got.Error(), tt.want) {
				t.Errorf("%v: got %v, want %q", err, got, tt.want)
			}
		})
	}
}

func TestRemedies(t *testing.T) {
	for words, want := range map[string]string{
		"runtime: failed to create new OS thread (have 8 already; errno=11)":                  "pids-limit",
		"fork/exec /cache/cluster/containerd-shim-runc-v2: resource temporarily unavailable":  "TasksMax",
		"inotify_init: too many open files":                                                   "inotify",
		"write /var/lib/tailgate-localcluster/etcd/member/wal/0.tmp: no space left on device": "disk of /var/lib",
		"open /var/lib/kubelet/x: read-only file system":                                      "privileged",
		"something else": "",
	} {
		if got := remedy(words); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: remedy %q", words, got)
		}
	}
}

// TestLinkTrees collects programs where the file system has hard links, and where it has none: between two file systems.
func TestLinkTrees(t *testing.T) {
	other, err := os.MkdirTemp("/dev/shm", "tailgate-test-")
	if err != nil {
		t.Skip("there is no second file system:", err)
	}
	defer os.RemoveAll(other)
	for _, source := range []string{t.TempDir(), other} {
		if err := os.MkdirAll(filepath.Join(source, "cni"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(source, "cni", "bridge"), []byte("program"), 0o755); err != nil {
			t.Fatal(err)
		}
		out := t.TempDir()
		if err := linkTrees(out, []string{source}); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(out, "cni", "bridge"))
		info, statErr := os.Stat(filepath.Join(out, "cni", "bridge"))
		if err != nil || statErr != nil || string(got) != "program" || info.Mode().Perm() != 0o755 {
			t.Errorf("from %s: %q, %v, %v", source, got, info, err)
		}
	}
}

// TestUserCommandsOfTwoCheckouts is a cluster that two checkouts use, the second one before make build.
func TestUserCommandsOfTwoCheckouts(t *testing.T) {
	dir := t.TempDir()
	built, notBuilt := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	if err := os.MkdirAll(filepath.Join(built, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(built, "bin", "kubectl-tailgate"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{notBuilt, built, notBuilt} {
		c := &cluster{paths: paths{state: filepath.Join(dir, "state")}, root: root, binaries: dir}
		if err := c.linkUserCommands(); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "state", "user-bin", "kubectl-tailgate")
	if target, err := os.Readlink(link); err != nil || target != filepath.Join(built, "bin", "kubectl-tailgate") {
		t.Errorf("the link leads to %s (%v), not to the program that exists", target, err)
	}
}
