package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tailgate-dev/tailgate/internal/foreign"
)

// The manifest of flags is that of a file, and names itself by what it measures.
func TestRunWithoutFile(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	args := []string{"run", "--client", "node-a", "--server=node-b", "--onload", "--size", "64,1024", "--rounds", "10", "-n", "perf", "--dry-run=client"}
	const want = `apiVersion: tailgate.dev/v1alpha1
kind: LatencyBenchmark
metadata:
  name: run-NAME
  namespace: perf
spec:
  acceleration:
    type: Onload
  placement:
    client:
      nodeName: node-a
    server:
      nodeName: node-b
  rounds: 10
  tool: pinger
  workload:
    messageSizes:
    - 64
    - 1024
    protocols:
    - TCP
`
	code, first, stderr := run(args...)
	_, name, _ := strings.Cut(first, "run-")
	name, _, _ = strings.Cut(name, "\n")
	if code != 0 || len(name) != 8 || strings.Replace(first, name, "NAME", 1) != want {
		t.Fatalf("exit code %d, %q\n%s", code, stderr, first)
	}
	if _, again, _ := run(append(args, "-o", "yaml")...); again != first {
		t.Errorf("the same flags: \n%s", again)
	}
	if _, other, _ := run(append(args, "--tool", "sockperf")...); strings.Contains(other, name) || !strings.Contains(other, "tool: sockperf") {
		t.Errorf("another tool: \n%s", other)
	}
	code, text, _ := run(append(args, "--name", "mine", "-o", "json")...)
	u := unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil || code != 0 || u.GetName() != "mine" {
		t.Errorf("as JSON: %v\n%s", err, text)
	}
	for want, args := range map[string][]string{
		"describe a benchmark by --client NODE and --server NODE": {"--client", "node-a"},
		"choose the API server by --context":                      {"--client", "node-a", "--server", "https://10.0.0.1:6443"},
		"a file describes the whole benchmark":                    {"-f", "x.yaml", "--client", "node-a", "--server", "node-b"},
		"spec.tool: Unsupported value: \"iperf\"":                 {"--client", "node-a", "--server", "node-b", "--tool", "iperf"},
		"spec.rounds: ": {"--client", "node-a", "--server", "node-b", "--rounds", "1000"},
		"unknown format \"table\"; known are yaml, json":    {"--client", "node-a", "--server", "node-b", "--dry-run=client", "-o", "table"},
		"unknown format \"server\"; known are none, client": {"--client", "node-a", "--server", "node-b", "--dry-run", "server"},
		"invalid argument \"big\" for \"--size\"":           {"--client", "node-a", "--server", "node-b", "--size", "big"},
	} {
		if code, stdout, stderr := run(append([]string{"run"}, args...)...); code != exitError || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, %q and %q", args, code, stdout, stderr)
		}
	}
}

// --network names a definition, its resource, or the resource without its prefix; what does not name one is refused with what there is.
func TestNetworkOfRun(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	node.Status.Allocatable = corev1.ResourceList{"openshift.io/sf_x4_vf": resource.MustParse("4")}
	define := func(namespace, name, resource string, plugin foreign.CNIPlugin) *unstructured.Unstructured {
		return foreign.Definition(namespace, name, resource, foreign.NetworkConfig{Plugins: []foreign.CNIPlugin{plugin}})
	}
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(
		node,
		define("perf", "fast", "openshift.io/sf_x2_vf", foreign.CNIPlugin{Type: "sriov"}),
		define("perf", "whole", "amd.com/sf_pf", foreign.CNIPlugin{Type: "host-device"}),
		define("perf", "macvlan", "", foreign.CNIPlugin{Type: "macvlan"}),
		define("perf", "one", "example.com/shared", foreign.CNIPlugin{Type: "sriov"}),
		define("perf", "two", "example.com/shared", foreign.CNIPlugin{Type: "sriov"}),
		define("other", "away", "openshift.io/sf_x2_vf", foreign.CNIPlugin{Type: "sriov"}),
	).Build()
	const vf = `{"type":"VF","vf":{"networkRef":{"name":"fast"},"resourceName":"openshift.io/sf_x2_vf"}}`
	for word, want := range map[string][2]string{
		"fast":                  {vf, "NetworkAttachmentDefinition perf/fast, with a VF of openshift.io/sf_x2_vf"},
		"openshift.io/sf_x2_vf": {vf, "perf/fast"},
		"sf_x2_vf":              {vf, "perf/fast"},
		"sf-x2-vf":              {vf, "perf/fast"},
		"whole":                 {`{"pf":{"networkRef":{"name":"whole"},"resourceName":"amd.com/sf_pf"},"type":"PF"}`, "with a PF of amd.com/sf_pf"},
		"macvlan":               {`{"nad":{"networkRef":{"name":"macvlan"}},"type":"NAD"}`, "without a device"},
		"one":                   {`{"type":"VF","vf":{"networkRef":{"name":"one"},"resourceName":"example.com/shared"}}`, "perf/one"},
		"other/away":            {`{"type":"VF","vf":{"networkRef":{"name":"away","namespace":"other"},"resourceName":"openshift.io/sf_x2_vf"}}`, "other/away"},
		"host":                  {`{"type":"Host"}`, "type Host"},
		"shared":                {"null", "2 NetworkAttachmentDefinitions of namespace perf have devices of shared: name one of one, two"},
		"sf_x4_vf":              {"null", "it has fast openshift.io/sf_x2_vf, macvlan, one example.com/shared, two example.com/shared, whole amd.com/sf_pf; node node-a has devices of openshift.io/sf_x4_vf: create a"},
		"nothing/at-all":        {"null", "namespace nothing has no NetworkAttachmentDefinition nothing/at-all, and none with devices of this name; it has no other"},
	} {
		p := pairFlags{client: "node-a", network: word}
		network, found, err := p.networkIn(t.Context(), api, "perf")
		if err != nil {
			found = err.Error()
		}
		if got, _ := json.Marshal(network); string(got) != want[0] || !strings.Contains(found, want[1]) {
			t.Errorf("%s: %s, %q; want %s, %q", word, got, found, want[0], want[1])
		}
	}
}
