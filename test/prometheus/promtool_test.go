//go:build nightly

package prometheus

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/test/localcluster"
)

// engines are the promtool of Prometheus 3 and the promtool of Prometheus 2.
var engines = []string{"promtool", "promtool2"}

// run runs a promtool. The first run on a machine builds it, which takes some minutes.
func run(t *testing.T, promtool string, args ...string) {
	t.Helper()
	path, err := localcluster.Peer(context.Background(), os.Stderr, promtool)
	if err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", promtool, args, err, output)
	}
}

// check writes groups of rules as promtool reads them, and checks them.
func check(t *testing.T, of groups, flags ...string) (dir string) {
	t.Helper()
	data, err := yaml.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), data)
	for _, promtool := range engines {
		run(t, promtool, slices.Concat([]string{"check", "rules"}, flags, []string{filepath.Join(dir, "rules.yaml")})...)
	}
	return dir
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestAlerts tries the alerts with series.
func TestAlerts(t *testing.T) {
	_, of := rules(t)
	dir := check(t, of, "--lint=all", "--lint-fatal")
	for _, path := range tests(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			target := filepath.Join(dir, "test-"+filepath.Base(path))
			write(t, target, read(t, path))
			for _, promtool := range engines {
				run(t, promtool, "test", "rules", target)
			}
		})
	}
}

// TestExpressions parses the queries of the dashboard.
func TestExpressions(t *testing.T) {
	g := group{Name: "dashboard"}
	expressions := readDashboard(t).expressions()
	for i, where := range slices.Sorted(maps.Keys(expressions)) {
		expr := strings.ReplaceAll(expressions[where], "$__rate_interval", "5m")
		g.Rules = append(g.Rules, rule{Record: fmt.Sprintf("dashboard:expression:%d", i), Expr: expr})
	}
	check(t, groups{[]group{g}})
}
