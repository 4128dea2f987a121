package redact

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// TestText replaces each name by the same word, within the names that are made of it, and leaves versions and devices.
func TestText(t *testing.T) {
	n := New()
	n.Add("node", "ip-10-0-1-7.corp.example")
	n.Add("node", "ip-10-0-1-7")
	n.Add("object", "fx-sweep")
	n.Add("namespace", "fx")
	n.Add("namespace", "kube-system")
	for text, want := range map[string]string{
		"ip-10-0-1-7.corp.example is not ready; see fx/fx-sweep.": "node-1 is not ready; see namespace-1/object-1.",
		"pod fx-sweep-r1-client on ip-10-0-1-7":                   "pod object-1-r1-client on node-2",
		"prefix and affixes stay":                                 "prefix and affixes stay",
		"namespace kube-system":                                   "namespace kube-system",
		"0000:3b:00.0 has firmware 26.41.1000, Onload 9.0.2.140":  "0000:3b:00.0 has firmware 26.41.1000, Onload 9.0.2.140",
		"at 12:34:56 on 2026-11-28T12:34:56Z":                     "at 12:34:56 on 2026-11-28T12:34:56Z",
		"link 02:42:ac:11:00:02 is up":                            "link 02:00:00:00:00:01 is up",
		"sha256:0123abcd":                                         "sha256:0123abcd",
		"ask joe.doe@corp.example":                                "ask user-1@example.com",
		"fd00::7 and fd00::7":                                     "2001:db8::1 and 2001:db8::1",
	} {
		if got := n.Text(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	first, port := n.Text("10.0.1.7"), n.Text("dial tcp 10.0.1.7:9443: refused")
	if first == "10.0.1.7" || port != "dial tcp "+first+":9443: refused" {
		t.Errorf("got %q and %q", first, port)
	}
}

// TestCollect publishes no secret of an object, and keeps which labels a selector means.
func TestCollect(t *testing.T) {
	const object = `{
		"kind": "Node",
		"metadata": {"name": "hft-a", "uid": "0a1b2c3d-0000-4000-8000-00000000000a", "managedFields": [{"manager": "joe"}],
			"labels": {"desk": "fx-options", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "hft-a", "corp.example/pool": "true"},
			"annotations": {"corp.example/token": "s3cret", "k8s.v1.cni.cncf.io/networks": "fx/fabric"}},
		"spec": {"providerID": "aws:///eu-central-1a/i-0abc", "containers": [{"name": "app", "image": "registry.corp.example:5000/fx/app@sha256:12", "env": [{"value": "s3cret"}], "args": ["--password=s3cret"]}],
			"notes": [{"name": "ticket", "value": "FX-1234"}], "nodeSelector": {"desk": "fx-options"}},
		"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.17"}, {"type": "Hostname", "address": "hft-a.corp.example"}], "images": [{"names": ["fx"]}],
			"message": "hft-a (192.0.2.17) of FX-1234"}
	}`
	var v any
	if err := json.Unmarshal([]byte(object), &v); err != nil {
		t.Fatal(err)
	}
	n := New()
	n.Add("node", "hft-a")
	n.Add("namespace", "fx")
	n.Collect(v)
	out := n.Apply(v).(map[string]any)
	text, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"s3cret", "fx", "hft", "corp.example", "FX-1234", "192.0.2.17", "eu-central", "joe", "0a1b2c3d"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%q is left: %s", secret, text)
		}
	}
	labels := out["metadata"].(map[string]any)["labels"].(map[string]any)
	if diff := cmp.Diff(map[string]any{"label-1": "true", "label-2": "value-1", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "node-1"}, labels); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"label-2": "value-1"}, out["spec"].(map[string]any)["nodeSelector"]); diff != "" {
		t.Error(diff)
	}
}

// TestReferences replaces the names of objects and users that Tailgate's own objects hold: a baseline, a network, an acceptance.
func TestReferences(t *testing.T) {
	objects := []any{
		v1alpha1.LatencyBenchmark{
			Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
				Network: v1alpha1.Network{Type: v1alpha1.NetworkNAD, NAD: &v1alpha1.NADNetwork{NetworkRef: v1alpha1.NetworkRef{Namespace: "secret-ns", Name: "secret-network"}}},
				Criteria: &v1alpha1.Criteria{Baseline: &v1alpha1.Baseline{
					Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "secret-before"}}, Gate: &v1alpha1.ObjectName{Name: "secret-gate"},
					Matrix: &v1alpha1.ObjectName{Name: "secret-pairs"}, Export: &v1alpha1.ExportedBaseline{ConfigMapName: "secret-export"},
				}},
			}},
		},
		v1alpha1.LatencyVerification{
			Spec: v1alpha1.LatencyVerificationSpec{
				GateName: "secret-nodes", NodeName: "secret-node",
				Accept: &v1alpha1.AcceptRequest{Benchmark: "secret-accepted", UserRequest: v1alpha1.UserRequest{RequestedBy: "secret-user"}},
			},
			Status: v1alpha1.LatencyVerificationStatus{Accepted: &v1alpha1.AcceptedResult{Benchmark: "secret-reference", Peer: "secret-peer"}},
		},
	}
	for _, object := range objects {
		content, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(content, &v); err != nil {
			t.Fatal(err)
		}
		n := New()
		n.Collect(v)
		if content, err = json.Marshal(n.Apply(v)); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), "secret") {
			t.Errorf("a name is left: %s", content)
		}
	}
}
