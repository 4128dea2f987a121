package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// Plots come after the table, in ASCII where the locale is not of UTF-8, without colours where there is no terminal.
func TestPlot(t *testing.T) {
	own := filepath.Join(exportSweep(t), "sweep")
	for name, c := range map[string]struct {
		args   []string
		locale string
		want   string
		ascii  bool
	}{
		"get":          {[]string{"get", own, "--plot"}, "C", "tcp-1: HalfRTT by percentile", true},
		"get in UTF-8": {[]string{"get", own, "--plot", "-o", "ladder"}, "de_DE.UTF-8", "⣀⣀", false},
		"compare":      {[]string{"compare", own, own + "/default", "--plot"}, "C", "* " + own + " (default)   o " + own + "/default (default)", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LC_ALL", c.locale)
			code, stdout, stderr := run(c.args...)
			_, plots, found := strings.Cut(stdout, "by percentile, ")
			if code != 0 || !found || !strings.Contains(stdout, c.want) || strings.Contains(stdout, "\x1b") {
				t.Fatalf("exit code %d, it said %q, no %q in\n%s", code, stderr, c.want, stdout)
			}
			if isASCII(plots) != c.ascii {
				t.Errorf("ASCII %t, want %t:\n%s", !c.ascii, c.ascii, plots)
			}
		})
	}
	refused(t, []string{"get", own, "--plot", "-o", "json"}, 1, []string{"--plot", "json"})
	refused(t, []string{"compare", own, own, "--plot", "-o", "csv"}, 1, []string{"--plot", "csv"})
}

func isASCII(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r > 127 }) < 0
}

func TestPlotWidth(t *testing.T) {
	own := filepath.Join(exportSweep(t), "sweep")
	t.Setenv("LC_ALL", "C")
	t.Setenv("COLUMNS", "50")
	_, stdout, _ := run("get", own, "--plot")
	if !strings.Contains(stdout, "+"+strings.Repeat("-", 39)+"\n") {
		t.Errorf("it is not 50 wide:\n%s", stdout)
	}
}
