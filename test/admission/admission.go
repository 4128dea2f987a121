// Package admission is the table of manifests that the API refuses or takes, with what a refusal says.
//
// The unit tests of internal/admit try each entry without an API server. One spec of test/integration tries them on a real one,
// and requires that both say the same.
package admission

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Namespace is that of the table's benchmarks and matrices.
const Namespace = "default"

// Case is a manifest, and what the API says about it.
type Case struct {
	Name   string
	Object *unstructured.Unstructured
	// Refusal holds parts of the message; it is empty if the API takes the object.
	Refusal []string
	// Server and Admit are what only an API server and only internal/admit say. For a value of a wrong type and for an unknown field,
	// internal/admit says what to write instead. It checks no rule of an object that does not fit the schema, so that one mistake
	// is one line.
	Server, Admit string
}

// Cases returns the table. The objects are new, so that a test may change them.
func Cases() []Case {
	var all []Case
	for _, table := range [][]Case{benchmarks(), matrices(), gates(), verifications()} {
		all = append(all, table...)
	}
	return all
}

// Check returns an error unless an answer is that of the case, with words that it must contain, too.
func (c Case) Check(answer error, words string) error {
	if answer == nil || len(c.Refusal) == 0 {
		if answer != nil || len(c.Refusal) > 0 {
			return fmt.Errorf("%s: the answer is %w; want %q", c.Name, answer, c.Refusal)
		}
		return nil
	}
	for _, part := range append(c.Refusal, words) {
		if !strings.Contains(answer.Error(), part) {
			return fmt.Errorf("%s: the answer lacks %q: %w", c.Name, part, answer)
		}
	}
	return nil
}

// but adds the words in which an API server and internal/admit differ.
func (c Case) but(server, admit string) Case {
	c.Server, c.Admit = server, admit
	return c
}

// Benchmark returns a benchmark with only the required fields, and with fields of its spec replaced. The changes are YAML, so that no
// default of a Go type hides anything; null removes a field.
func Benchmark(spec string) *unstructured.Unstructured {
	return changed(`
apiVersion: tailgate.dev/v1alpha1
kind: LatencyBenchmark
metadata: {name: smallest, namespace: `+Namespace+`}
spec:
  tool: sockperf
  placement: {client: {}, server: {}}
`, spec, "{}")
}

// Matrix returns a matrix with only the required fields, and with fields of its spec, and of its template's spec, replaced.
func Matrix(spec, template string) *unstructured.Unstructured {
	return changed(`
apiVersion: tailgate.dev/v1alpha1
kind: LatencyMatrix
metadata: {name: smallest, namespace: `+Namespace+`}
spec:
  topology: AllPairs
  nodes: {}
  template: {spec: {tool: sockperf}}
`, spec, template)
}

// Gate returns the smallest gate, with fields of its spec, and of its template's spec, replaced.
func Gate(name, spec, template string) *unstructured.Unstructured {
	object := changed(`
apiVersion: tailgate.dev/v1alpha1
kind: LatencyGate
spec:
  nodeSelector: {matchLabels: {test.tailgate.dev/gate: none}}
  namespace: default
  template:
    spec:
      tool: sockperf
      placement: {client: {}, server: {}}
      criteria: {rules: [{metric: p99, max: 5us}]}
`, spec, template)
	object.SetName(name)
	return object
}

// changed returns an object with fields of its spec, and of the spec of its template, replaced; null removes a field.
func changed(manifest, spec, template string) *unstructured.Unstructured {
	object := parsed(manifest)
	fields := object["spec"].(map[string]any)
	if outer, ok := fields["template"].(map[string]any); ok {
		replace(outer["spec"].(map[string]any), template)
	}
	replace(fields, spec)
	return &unstructured.Unstructured{Object: object}
}

func replace(fields map[string]any, changes string) {
	for name, value := range parsed(changes) {
		if fields[name] = value; value == nil {
			delete(fields, name)
		}
	}
}

// parsed panics on invalid YAML, which is a mistake in the table. Its numbers are those of JSON, as in a request.
func parsed(text string) map[string]any {
	object := map[string]any{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(raw, &object)
	}
	if err != nil {
		panic(fmt.Sprintf("%v in %s", err, text))
	}
	return object
}
