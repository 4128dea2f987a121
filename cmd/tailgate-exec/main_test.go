package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// inside is what tailgate-exec finds in the container of the pod in the test data, whose cpuset the kubelet has set.
func inside(t *testing.T) result.Workload {
	t.Helper()
	w := *resulttest.Workload()
	w.PoolCPUs = ""
	for n := range w.Interfaces {
		f := w.Interfaces[n].Facts
		f["cgroup.version"], f["cgroup.cpus-set"] = "2", "1"
	}
	return w
}

func TestRun(t *testing.T) {
	pause = 0
	for name, c := range map[string]struct {
		args string
		// late is how many inspections find all CPUs of the node.
		late    int
		fails   error
		want    int
		message string
		becomes bool
	}{
		"the CPUs are set":            {args: "--require CPUsExclusive --cpus 1 -- /bin/true x", want: exitError, message: "Pass after", becomes: true},
		"the CPUs are set late":       {args: "--require CPUsExclusive --cpus 1 --wait 1m -- /bin/true x", late: 3, want: exitError, message: "Pass after", becomes: true},
		"the CPUs are set too late":   {args: "--require CPUsExclusive --cpus 1 --wait 0s -- /bin/true x", late: 1, want: 1, message: "required: 1 exclusive CPU; to do: set cpuManagerPolicy"},
		"nobody says how many":        {args: "--require CPUsExclusive --wait 0s -- /bin/true x", want: exitError},
		"a check that is unknown":     {args: "--require SMTSiblings --wait 0s -- /bin/true x", want: 2, message: "Unknown SMTSiblings"},
		"an inspection that fails":    {args: "--require CPUsExclusive --cpus 1 --wait 0s -- /bin/true x", fails: errors.New("hidden"), want: 2, message: "hidden"},
		"nothing is required":         {args: "-- /bin/true x", want: exitError, message: "Pass after", becomes: true},
		"no program":                  {args: "--require CPUsExclusive", want: exitError},
		"a program that is not there": {args: "-- /bin/none", want: exitError},
		"a check that does not exist": {args: "--require Speed -- /bin/true", want: exitError},
		"a flag that does not exist":  {args: "--fast -- /bin/true", want: exitError},
		"a negative number of CPUs":   {args: "--cpus -1 -- /bin/true", want: exitError},
	} {
		t.Run(name, func(t *testing.T) {
			var became []string
			var stderr bytes.Buffer
			file := filepath.Join(t.TempDir(), "termination")
			looks := 0
			got := run(strings.Fields(c.args), entrypoint{
				inspect: func(string) (result.Workload, error) {
					w := inside(t)
					if looks++; looks <= c.late {
						for n := range w.Interfaces {
							w.Interfaces[n].CPUsAllowed = "0-1"
						}
					}
					return w, c.fails
				},
				become: func(_ string, args, _ []string) error {
					became = args
					return errors.New("in a test")
				},
				terminationLog: file, stderr: &stderr,
			})
			message, _ := os.ReadFile(file)
			if got != c.want || !strings.Contains(string(message), c.message) || (became != nil) != c.becomes {
				t.Errorf("exit code %d, want %d; it became %q and wrote %q, %q", got, c.want, became, message, &stderr)
			}
			if c.becomes && (!slices.Equal(became, []string{"/bin/true", "x"}) || looks != c.late+1) {
				t.Errorf("it became %q after %d inspections", became, looks)
			}
		})
	}
}
