package matrix

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// The benchmark of a pair is the template with its two nodes.
func TestMakeChild(t *testing.T) {
	w := makeWorld(withGate(2*time.Microsecond), priority(7))
	w.matrix.Spec.Template.Spec.Variants = []v1alpha1.Variant{{Name: "block"}, {Name: "spin", Wait: v1alpha1.WaitSpin}}
	w.matrix.Spec.Template.Spec.Placement.Server = &v1alpha1.EndpointPlacement{CPUs: 4}
	child := w.makeChild(3)

	if child.Name != "x-p3" || child.Namespace != "perf" || !metav1.IsControlledBy(child, w.matrix) {
		t.Errorf("%s/%s, owned by %v", child.Namespace, child.Name, child.OwnerReferences)
	}
	if diff := cmp.Diff(map[string]string{v1alpha1.LabelMatrix: "x", v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate}, child.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	want := w.matrix.Spec.Template.DeepCopy().Benchmark()
	want.Placement.Client = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "d"}}
	want.Placement.Server = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "b"}, CPUs: 4}
	if diff := cmp.Diff(want, child.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	child.Spec.Criteria.Rules[0].Max.Text = "9us"
	if w.matrix.Spec.Template.Spec.Criteria.Rules[0].Max.Text != "2µs" {
		t.Error("the gate is shared with the parent")
	}
}

// Pairs that run at once have different addresses in each range.
func TestMakeChildOfStaticRanges(t *testing.T) {
	static := func(subnet, start string) *v1alpha1.Network {
		return &v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: subnet, RangeStart: start}}}}
	}
	w := makeWorld(func(w *world) {
		w.matrix.Spec.Template.Spec.Network = *static("192.168.40.0/29", "")
		w.matrix.Spec.Template.Spec.Variants = []v1alpha1.Variant{
			{Name: "same"}, {Name: "other", Network: static("fd00:40::/64", "fd00:40::100")},
			{Name: "whereabouts", Network: &v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMWhereabouts, Range: "10.0.0.0/24"}}}}},
		}
		w.blocks = blocks(w.matrix.Spec.Template.Benchmark(), len(w.pairs))
	})
	var got []string
	for number := range w.pairs {
		spec := w.makeChild(int32(number + 1)).Spec
		got = append(got, fmt.Sprintf("%s %s %q", spec.Network.IPAM().RangeStart, spec.Variants[1].Network.IPAM().RangeStart, spec.Variants[2].Network.IPAM().RangeStart))
	}
	want := []string{
		`192.168.40.1 fd00:40::100 ""`, `192.168.40.3 fd00:40::102 ""`, `192.168.40.5 fd00:40::104 ""`,
		`192.168.40.1 fd00:40::100 ""`, `192.168.40.3 fd00:40::102 ""`, `192.168.40.5 fd00:40::104 ""`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("starts of the ranges (-want +got):\n%s", diff)
	}
	if w.matrix.Spec.Template.Spec.Network.IPAM().RangeStart != "" || w.matrix.Spec.Template.Spec.Variants[1].Network.IPAM().RangeStart != "fd00:40::100" {
		t.Error("the parent's ranges have changed")
	}
}

// A pair is compared with the same nodes in the same roles.
func TestMakeChildOfBaseline(t *testing.T) {
	w := makeWorld(withGate(2*time.Microsecond), func(w *world) {
		w.matrix.Spec.Template.Spec.Criteria.Baseline = &v1alpha1.Baseline{Type: v1alpha1.BaselineMatrix, Matrix: &v1alpha1.ObjectName{Name: "before"}}
		w.baseline = "before"
		w.baselines = map[v1alpha1.Pair]string{
			{ClientNode: "a", ServerNode: "d"}: "before-p9",
			{ClientNode: "c", ServerNode: "b"}: "before-p2",
		}
	})
	for number, want := range map[int32]string{1: "before-p9", 2: "before-p0", 3: "before-p0"} {
		if got := w.makeChild(number).Spec.Criteria.Baseline.Benchmark.Name; got != want {
			t.Errorf("pair %d is compared with %s, want %s", number, got, want)
		}
	}
	if name := w.matrix.Spec.Template.Spec.Criteria.Baseline.Matrix.Name; name != "before" {
		t.Errorf("the parent's baseline became %s", name)
	}
}

func TestObstacle(t *testing.T) {
	cases := map[string]struct {
		change func(*v1alpha1.LatencyBenchmark)
		want   string
	}{
		"it is ours":                          {func(*v1alpha1.LatencyBenchmark) {}, ""},
		"it is going":                         {deleting, v1alpha1.ReasonQueued},
		"it is of an earlier one of our name": {ofEarlier, v1alpha1.ReasonQueued},
		"it belongs to another owner":         {func(b *v1alpha1.LatencyBenchmark) { b.OwnerReferences = nil }, v1alpha1.OutcomeNameTaken},
		"it is another benchmark's": {func(b *v1alpha1.LatencyBenchmark) {
			b.OwnerReferences[0].Name, b.OwnerReferences[0].UID = "y", "uid-y"
		}, v1alpha1.OutcomeNameTaken},
		"it measures another server":   {func(b *v1alpha1.LatencyBenchmark) { b.Spec.Placement.Server.NodeName = "node-z" }, v1alpha1.OutcomeNameTaken},
		"it measures another client":   {func(b *v1alpha1.LatencyBenchmark) { b.Spec.Placement.Client.NodeName = "node-z" }, v1alpha1.OutcomeNameTaken},
		"it measures any server":       {func(b *v1alpha1.LatencyBenchmark) { b.Spec.Placement.Server = nil }, v1alpha1.OutcomeNameTaken},
		"it measures fewer rounds":     {func(b *v1alpha1.LatencyBenchmark) { b.Spec.Rounds = 1 }, v1alpha1.OutcomeNameTaken},
		"it measures other traffic":    {func(b *v1alpha1.LatencyBenchmark) { b.Spec.Workload.MessageSizes = []int32{1} }, v1alpha1.OutcomeNameTaken},
		"it has fewer CPUs":            {func(b *v1alpha1.LatencyBenchmark) { b.Spec.Placement.CPUs = 2 }, v1alpha1.OutcomeNameTaken},
		"its criteria are not updated": {func(b *v1alpha1.LatencyBenchmark) { b.Spec.Criteria, b.Spec.Priority, b.Spec.Suspend = nil, 9, true }, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(withChild(1, c.change))
			if why := w.obstacle(1, w.child(1)); (why != nil) != (c.want != "") || why != nil && why.reason != c.want {
				t.Errorf("%+v, want %q", why, c.want)
			}
		})
	}
}

func TestNumberOf(t *testing.T) {
	for name, want := range map[string]int{"x-p1": 1, "x-p4950": 4950, "x-p0": 0, "x-p01": 0, "x-p+1": 0, "x-p": 0, "y-p1": 0, "x-p1-p1": 0, "x-p99999999999": 0} {
		got, ok := numberOf(makeWorld().matrix, name)
		if ok != (want > 0) || ok && got != want {
			t.Errorf("%s: %d, %t", name, got, ok)
		}
	}
}
