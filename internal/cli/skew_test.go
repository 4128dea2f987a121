package cli

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// TestStatusOfAnotherVersion: the manager may have another version than the command. The command ignores unknown fields, and never
// treats an unknown value as a pass.
func TestStatusOfAnotherVersion(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.LatencyBenchmark)
		fields string
		code   int
	}{
		"a later one, with unknown fields": {change: passes, fields: `{"spec":{"novel":{"a":[1]}},"status":{"novel":"x","verdict":{"confidence":0.9}}}`},
		"a later one, with an unknown reason of a failure": {
			change: finish(metav1.ConditionFalse, "FailOfTomorrow", "it is slower"), code: 1,
		},
		"a later one, with an unknown reason of what is not decided": {
			change: finish(metav1.ConditionUnknown, "PassOfTomorrow", "it is fine"), code: 2,
		},
		"a later one, with an unknown status of the condition": {
			change: finish("Mostly", v1alpha1.ReasonPass, "it is fine"), code: 2,
		},
		"an earlier one, without the verdict's details": {
			change: func(b *v1alpha1.LatencyBenchmark) { passes(b); b.Status.Verdict = nil },
		},
		"an earlier one, without the condition": {
			change: func(b *v1alpha1.LatencyBenchmark) { passes(b); b.Status.Conditions = b.Status.Conditions[:1] }, code: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newGatedCluster(t, c.change, nil)
			s.fields = c.fields
			code, stdout, stderr := run("gate", "sweep", "--kubeconfig", s.serve(t))
			if code != c.code || strings.Contains(stdout, ": Pass") != (c.code == 0) {
				t.Errorf("exit code %d, want %d; it printed %q and said %q", code, c.code, stdout, stderr)
			}
		})
	}
}

// TestResultOfAnotherVersion: the command rejects a stored result in a format that it does not know, whatever its fields are.
func TestResultOfAnotherVersion(t *testing.T) {
	s := newCluster(t)
	var later bytes.Buffer
	z := gzip.NewWriter(&later)
	if err := json.NewEncoder(z).Encode(map[string]any{"version": result.Version + 1, "run": 7}); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	s.configMaps[types.NamespacedName{Namespace: "perf", Name: "sweep-r1"}].BinaryData[result.KeyClient] = later.Bytes()
	s.benchmarks[sweep].Status.Stored[0].SHA256 = fmt.Sprintf("%x", sha256.Sum256(later.Bytes()))
	kubeconfig := s.serve(t)
	for _, verb := range []string{"report", "export", "compare"} {
		args := map[string][]string{
			"report": {"-o", t.TempDir() + "/r.html"}, "export": {"-o", t.TempDir()}, "compare": {"sweep"},
		}[verb]
		code, stdout, stderr := run(append([]string{verb, "sweep", "--kubeconfig", kubeconfig}, args...)...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, `its format is "2", not 1: use a manager, a bench image and a command of the same minor version`) {
			t.Errorf("%s: exit code %d, it printed %q and said %q", verb, code, stdout, stderr)
		}
	}
}
