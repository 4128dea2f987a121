package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	s := newCluster(t)
	s.addMesh()
	kubeconfig := s.serve(t)
	file := filepath.Join(t.TempDir(), "report.html")
	if code, stdout, stderr := run("report", "--kubeconfig", kubeconfig, "sweep", "lmatrix/mesh", "-o", file); code != 0 || stdout+stderr != "" {
		t.Fatalf("exit code %d, printed %q and %q", code, stdout, stderr)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<title>sweep, mesh – latency report</title>", `id="distribution"`, `class="heat`} {
		if !strings.Contains(string(content), want) {
			t.Errorf("no %s in the report", want)
		}
	}
	if code, stdout, _ := run("report", "--kubeconfig", kubeconfig, "sweep", "-o", "-"); code != 0 || !strings.HasPrefix(stdout, "<!doctype html>") {
		t.Errorf("exit code %d, printed %.40q", code, stdout)
	}
}

// A failure writes no file, and leaves an old file unchanged.
func TestReportWritesNothing(t *testing.T) {
	s := newCluster(t)
	kubeconfig := s.serve(t)
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"sweep"}, "--output: name the file"},
		{[]string{"sweep", "nothing", "-o", file}, "nothing"},
		{[]string{"sweep", "-o", filepath.Join(file, "x.html")}, "writing the report"},
	} {
		code, stdout, stderr := run(append([]string{"report", "--kubeconfig", kubeconfig}, c.args...)...)
		if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit code %d, printed %q and %q", c.args, code, stdout, stderr)
		}
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "old" {
		t.Errorf("the old file holds %q, %v", content, err)
	}
}
