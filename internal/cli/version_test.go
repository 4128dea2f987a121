package cli

import (
	"runtime"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		code int
		want []string
		deny string
	}{
		{name: "with a manager", args: []string{"-o", "table"}, want: []string{"client  ", runtime.Version(), "server  tailgate-system/manager image tailgate:v1"}},
		{name: "client only", args: []string{"--client", "-o", "table"}, want: []string{"client  "}, deny: "server"},
		{name: "json", args: []string{"-o", "json"}, want: []string{`"platform": "` + runtime.GOOS, `"image": "tailgate:v1"`}},
		{name: "unknown format", args: []string{"-o", "xml"}, code: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := newWard().serve(t)
			if args[0] != "doctor" {
				t.Fatalf("the arguments begin with %q", args[0])
			}
			args[0] = "version"
			code, stdout, stderr := run(append(args, c.args...)...)
			if code != c.code || (stderr == "") != (code == 0) {
				t.Fatalf("exit code %d, stderr %q", code, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q in %q", want, stdout)
				}
			}
			if c.deny != "" && strings.Contains(stdout, c.deny) {
				t.Errorf("%q in %q", c.deny, stdout)
			}
		})
	}
	// A cluster that does not respond does not hide the client's version.
	if code, stdout, stderr := run("version", "--server", "https://127.0.0.1:1"); code != 0 || !strings.HasPrefix(stdout, "client  ") || stderr != "" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}
