package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A build with a prefix, a suffix and a namespace keeps the references between objects, with the published configuration. Without
// it, the references name objects that do not exist.
func TestReferencesUnderAPrefix(t *testing.T) {
	const manifest = `
{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: net}, spec: {config: "{}"}}
---
{apiVersion: tailgate.dev/v1alpha1, kind: LatencyBenchmark, metadata: {name: before}, spec: {network: {type: NAD, nad: {networkRef: {name: net}}}}}
---
apiVersion: tailgate.dev/v1alpha1
kind: LatencyBenchmark
metadata: {name: after}
spec:
  variants:
  - {name: a, network: {type: VF, vf: {networkRef: {name: net}}}}
  - {name: b, network: {type: PF, pf: {networkRef: {name: net}}}}
  criteria: {baseline: {type: Benchmark, benchmark: {name: before}}}
---
{apiVersion: tailgate.dev/v1alpha1, kind: LatencyBenchmark, metadata: {name: exported}, spec: {criteria: {baseline: {type: Export, export: {configMapName: there}}}}}
---
{apiVersion: tailgate.dev/v1alpha1, kind: LatencyBenchmark, metadata: {name: of-gate}, spec: {criteria: {baseline: {type: Gate, gate: {name: fast}}}}}
---
{apiVersion: tailgate.dev/v1alpha1, kind: LatencyMatrix, metadata: {name: first}, spec: {template: {spec: {network: {type: NAD, nad: {networkRef: {name: net}}}}}}}
---
{apiVersion: tailgate.dev/v1alpha1, kind: LatencyMatrix, metadata: {name: second}, spec: {template: {spec: {criteria: {baseline: {type: Matrix, matrix: {name: first}}}}}}}
---
{apiVersion: tailgate.dev/v1alpha1, kind: LatencyGate, metadata: {name: fast}, spec: {namespace: perf, template: {spec: {network: {type: VF, vf: {networkRef: {name: net}}}}}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: there}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: perf}}
`
	names := func(configurations string) (names, references []string) {
		dir := t.TempDir()
		text, err := os.ReadFile(filepath.Join(root, "config/kustomize/references.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for file, content := range map[string]string{
			"all.yaml": manifest, "references.yaml": string(text),
			"kustomization.yaml": "namePrefix: x-\nnameSuffix: -y\nresources: [all.yaml]\n" + configurations,
		} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		stdout, stderr, err := run(t, kustomizeTool, "build", dir)
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		for _, o := range objects(t, stdout) {
			names = append(names, o.GetName())
			references = append(references, referencesOf(o.Object["spec"])...)
		}
		return names, references
	}
	have, references := names("configurations: [references.yaml]\n")
	if len(references) != 10 {
		t.Errorf("references %q", references)
	}
	for _, r := range references {
		if !slices.Contains(have, r) {
			t.Errorf("nothing is called %s: %s", r, strings.Join(have, ", "))
		}
	}
	if have, references := names(""); !slices.ContainsFunc(references, func(r string) bool { return !slices.Contains(have, r) }) {
		t.Error("Kustomize keeps the references without the configuration")
	}
}

// referencesOf returns the values of all fields that name another object.
func referencesOf(value any) (all []string) {
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			all = append(all, referencesOf(v)...)
		}
	case map[string]any:
		for key, v := range value {
			named, _ := v.(map[string]any)
			name, found, _ := unstructured.NestedString(named, "name")
			text, _ := v.(string)
			switch {
			case slices.Contains([]string{"networkRef", "benchmark", "matrix", "gate"}, key) && found:
				all = append(all, name)
			case key == "configMapName", key == "namespace":
				all = append(all, text)
			default:
				all = append(all, referencesOf(v)...)
			}
		}
	}
	return all
}
