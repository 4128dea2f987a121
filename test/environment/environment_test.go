package environment

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/field"
)

// TestField computes the environment of a command from that of a user, which is the case's input. The answer has every variable of the
// command, and "absent" for those of the user that the command does not receive.
func TestField(t *testing.T) {
	field.Run(t, "machines", "test/environment", func(t *testing.T, c field.Case) map[string]string {
		var user []string
		answer := map[string]string{}
		for line := range strings.Lines(string(c.Read(t))) {
			if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			name, _, _ := strings.Cut(line, "=")
			answer[name] = "absent"
			user = append(user, line)
		}
		command := tool(user)
		if c.Arguments["command"] == "cluster" {
			for _, variable := range user {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			command = Cluster("/state")
		}
		for _, variable := range command {
			name, value, _ := strings.Cut(variable, "=")
			answer[name] = value // of two values, the last one holds
		}
		return answer
	})
}

// TestLimitsOfTheCaller starts this test again from a shell with limits, which a child of it does not have.
func TestLimitsOfTheCaller(t *testing.T) {
	const query = "ulimit -f; ulimit -t; ulimit -v"
	if os.Getenv("ENVIRONMENT_LIMITS") != "" {
		out, err := exec.Command("sh", "-c", query).Output()
		if string(out) != "unlimited\nunlimited\nunlimited\n" {
			t.Errorf("a child has the limits %q (%v)", out, err)
		}
		return
	}
	child := exec.Command("sh", "-c", `ulimit -S -f 2000000; ulimit -S -t 3600; ulimit -S -v 900000000; exec "$0" -test.run=^TestLimitsOfTheCaller$`, os.Args[0])
	child.Env = append(os.Environ(), "ENVIRONMENT_LIMITS=1")
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestUmask(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	if err := exec.Command("sh", "-c", "umask; > "+path).Run(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("a child's new file has mode %v (%v), want 0644, whatever the umask of the user is", info.Mode(), err)
	}
	if old := unix.Umask(0o022); old != 0o022 {
		t.Errorf("the umask of this process is %o", old)
	}
}

// TestGoIgnoresWhatTheUserStored runs go with settings that `go env -w` stored, and with a workspace in a parent folder.
func TestGoIgnoresWhatTheUserStored(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"config/go/env": "GOFLAGS=-mod=vendor -tags=foo\nGO111MODULE=off\nGOOS=windows\nGOARCH=wasm\nGOAMD64=v4\nGOEXPERIMENT=unknown\n", "src/go.work": "go 1.26\nuse ./other\n",
		"src/other/go.mod": "module other\n", "src/checkout/go.mod": "module checkout\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "env", "GOFLAGS", "GO111MODULE", "GOOS", "GOARCH", "GOAMD64", "GOWORK", "GOMOD")
	cmd.Dir = filepath.Join(dir, "src/checkout")
	cmd.Env = Tool("XDG_CONFIG_HOME=" + filepath.Join(dir, "config"))
	out, err := cmd.CombinedOutput()
	want := strings.Join([]string{GoFlags, "on", "linux", runtime.GOARCH, "v1", "off", filepath.Join(dir, "src/checkout/go.mod")}, "\n") + "\n"
	if err != nil || string(out) != want {
		t.Errorf("got %v\n%s, want\n%s", err, out, want)
	}
}
