package specs

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// GroupLabel selects several nodes of a spec. Its value is the spec's namespace.
const GroupLabel = "test.tailgate.dev/group"

// MatrixBuilder builds a LatencyMatrix.
type MatrixBuilder struct{ v1alpha1.LatencyMatrix }

// AllPairs returns a matrix that measures all nodes of the spec's group with each other. The TTL and suspension of the benchmark
// move to the matrix.
func (b *BenchmarkBuilder) AllPairs(parallelism int32) *MatrixBuilder {
	m := &MatrixBuilder{v1alpha1.LatencyMatrix{ObjectMeta: b.ObjectMeta, Spec: v1alpha1.LatencyMatrixSpec{
		Topology: v1alpha1.TopologyAllPairs, Parallelism: parallelism,
		Nodes:    v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{GroupLabel: b.Namespace}}},
		Template: v1alpha1.LatencyBenchmarkTemplate{Spec: b.Obj().Spec.MeasurementSpec},
		Suspend:  b.Spec.Suspend, TTLSecondsAfterFinished: b.Spec.TTLSecondsAfterFinished,
	}}}
	return m
}

// Star returns a matrix that measures all nodes of the spec's group with one server.
func (b *BenchmarkBuilder) Star(server string) *MatrixBuilder {
	m := b.AllPairs(1)
	m.Spec.Topology, m.Spec.Server = v1alpha1.TopologyStar, &v1alpha1.NodeSelection{NodeName: server}
	return m
}

// Against makes another matrix the baseline.
func (m *MatrixBuilder) Against(name string) *MatrixBuilder {
	m.Spec.Template.Spec.Criteria.Baseline = &v1alpha1.Baseline{Type: v1alpha1.BaselineMatrix, Matrix: &v1alpha1.ObjectName{Name: name}}
	return m
}

// AllPairsOfFour is the plan for four nodes, two pairs at once.
var AllPairsOfFour = map[string]string{"x-p1": "1>4", "x-p2": "2>3", "x-p3": "4>2", "x-p4": "3>1", "x-p5": "3>4", "x-p6": "1>2"}
