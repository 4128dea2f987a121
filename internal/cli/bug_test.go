package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/doctor"
)

// TestReportBug writes the report of a cluster with confidential names. Its answers follow from its facts, which a test of the corpus can
// read as they are.
func TestReportBug(t *testing.T) {
	w := newWard()
	for i, node := range []string{"fx-7.corp.example", "fx-8.corp.example"} {
		w.nodes[i].Name, w.nodes[i].UID = node, "0a1b2c3d-0000-4000-8000-00000000000a"
		w.nodes[i].Labels = map[string]string{"desk": "options", corev1.LabelHostname: node}
		w.nodes[i].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.9.8." + node[3:4]}}
		w.nodes[i].Annotations = map[string]string{"corp.example/token": "s3cret"}
	}
	w.nodes[1].Status.Conditions[0].Status, w.nodes[1].Status.Conditions[0].Message = corev1.ConditionFalse, "kubelet of fx-8.corp.example at 10.9.8.8 stopped"
	engine := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "fx", Name: "pricing-0"}, Spec: corev1.PodSpec{NodeName: "fx-7.corp.example", Containers: []corev1.Container{{
		Name: "pricing", Image: "registry.corp.example:5000/fx/pricing:1", Args: []string{"--password=s3cret"}, Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "s3cret"}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
	}}}}
	w.others = []corev1.Pod{engine}
	w.manager[0].Spec.Template.Spec.Containers[1].Image = "registry.corp.example:5000/fx/tailgate:v1"
	kubeconfig := w.serve(t)[2]
	for _, more := range [][]string{nil, {"--without-pods"}} {
		file := filepath.Join(t.TempDir(), "bug.yaml")
		args := append([]string{"report-bug", "--kubeconfig", kubeconfig, "-o", file}, more...)
		if code, stdout, stderr := run(args...); code != 0 || stderr != "" || !strings.HasPrefix(stdout, file+" is written") {
			t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
		}
		if code, _, stderr := run(args...); code != 1 || !strings.Contains(stderr, "exists already") {
			t.Errorf("a file is written over: exit code %d, %s", code, stderr)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"fx", "corp.example", "pricing", "10.9.8", "s3cret", "desk", "options", "0a1b2c3d", "perf"} {
			if strings.Contains(string(content), secret) {
				t.Errorf("%q is in the file: %s", secret, content)
			}
		}
		var b bugReport
		if err := yaml.UnmarshalStrict(content, &b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(doctor.Diagnose(b.Facts), b.Doctor); diff != "" {
			t.Errorf("the answers do not follow from the facts: %s", diff)
		}
		if got := levelOf(b.Doctor, "node-2", "node"); len(b.Facts.Nodes) != 2 || b.Facts.Nodes[0].Node.Name != "node-1" || got == doctor.Good {
			t.Errorf("node-2 is %q: %+v", got, b.Doctor.Lines)
		}
		if looked := len(b.Facts.Nodes[0].Looks) > 0; looked == (more != nil) {
			t.Errorf("%v: the machine was looked at: %v", more, looked)
		}
	}
}

// TestReportBugOfABenchmark has the object and its raw results.
func TestReportBugOfABenchmark(t *testing.T) {
	b, err := (&bugReport{Objects: []map[string]any{
		{"kind": "LatencyBenchmark", "metadata": map[string]any{"namespace": "fx", "name": "sweep"}, "status": map[string]any{"pair": map[string]any{"clientNode": "fx-7"}}},
		{"kind": "Pod", "metadata": map[string]any{"namespace": "fx", "name": "sweep-r1-client", "labels": map[string]any{v1alpha1.LabelBenchmark: "sweep"}}},
		{"kind": "Event", "metadata": map[string]any{"namespace": "fx", "name": "sweep.1"}, "message": "Pod fx/sweep-r1-client on fx-7 failed"},
	}}).redacted()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name: benchmark-1", "message: Pod namespace-1/pod-1 on node-1 failed", "tailgate.dev/benchmark: benchmark-1", "clientNode: node-1"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q: %s", want, b)
		}
	}
}
