package foreign

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecodeSriovNetworkNodeState(t *testing.T) {
	got, err := Decode[SriovNetworkNodeState](readObject(t, "testdata/sriovnetworknodestate.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := SriovNetworkNodeState{
		ObjectMeta: metav1.ObjectMeta{
			Name: "node-a", Namespace: "sriov-network-operator",
			Annotations: map[string]string{AnnotationCurrentState: SriovIdle, AnnotationDesiredState: "Drain_Required"},
		},
		Spec: SriovSpec{Interfaces: []SriovWanted{{VFGroups: []SriovVFGroup{{ResourceName: "sf_x2_vf"}}}}},
		Status: SriovStatus{
			Interfaces: []SriovInterface{
				{Name: "eno1", Vendor: "8086", DeviceID: "1572", TotalVFs: 64},
				{Name: "ens1f0np0", Vendor: VendorSolarflare, DeviceID: "0b03", NumVFs: 1, TotalVFs: 8},
			},
			SyncStatus: "Failed", LastSyncError: "cannot config SRIOV device",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

// A node of which the operator asks for Idle after its work only waits for its uncordon, whatever the drain controller still reports.
func TestDrains(t *testing.T) {
	for _, c := range []struct{ current, desired, sync, want string }{
		{"", "", "", SriovIdle},
		{SriovIdle, "Drain_Required", SriovSucceeded, "Drain_Required"},
		{"Draining", "Drain_Required", "InProgress", "Draining"},
		{"DrainComplete", "Reboot_Required", SriovSucceeded, "DrainComplete"},
		{"DrainComplete", SriovIdle, "InProgress", "DrainComplete"},
		{"DrainComplete", SriovIdle, SriovSucceeded, SriovIdle},
		{"Draining", SriovIdle, SriovSucceeded, SriovIdle},
		{"Draining", "", SriovSucceeded, "Draining"},
	} {
		s := SriovNetworkNodeState{Status: SriovStatus{SyncStatus: c.sync}}
		s.Annotations = map[string]string{AnnotationCurrentState: c.current, AnnotationDesiredState: c.desired}
		if got := s.Drains(); got != c.want {
			t.Errorf("current %q, desired %q, sync %q: %s, want %s", c.current, c.desired, c.sync, got, c.want)
		}
	}
}

// Of two states of a node, a drain in either counts, and the rest is that of the state that was written last.
func TestMerge(t *testing.T) {
	state := func(namespace, drain, sync string, created, written time.Time) SriovNetworkNodeState {
		s := SriovNetworkNodeState{Status: SriovStatus{SyncStatus: sync}}
		s.Namespace, s.CreationTimestamp = namespace, metav1.NewTime(created)
		s.Annotations = map[string]string{AnnotationDesiredState: drain}
		if !written.IsZero() {
			at := metav1.NewTime(written)
			s.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &at}, {}}
		}
		return s
	}
	old, now := time.Unix(1, 0), time.Unix(1_000_000, 0)
	live := state("live", SriovIdle, SriovSucceeded, old, now)
	cases := map[string]struct {
		a, b                   SriovNetworkNodeState
		namespace, drain, sync string
	}{
		"written last":              {live, state("left", SriovIdle, "InProgress", old, time.Time{}), "live", SriovIdle, SriovSucceeded},
		"made last":                 {state("live", SriovIdle, SriovSucceeded, old, time.Time{}), state("left", SriovIdle, "InProgress", now, time.Time{}), "left", SriovIdle, "InProgress"},
		"a drain in the older":      {live, state("left", "Draining", SriovSucceeded, old, time.Time{}), "live", "Draining", SriovSucceeded},
		"a drain in the newer":      {state("live", "Draining", SriovSucceeded, now, now), state("left", SriovIdle, "Failed", old, old), "live", "Draining", SriovSucceeded},
		"written at one time":       {live, state("left", SriovIdle, "InProgress", old, now), "left", SriovIdle, "InProgress"},
		"written at one time, both": {live, state("left", SriovIdle, SriovSucceeded, old, now), "left", SriovIdle, SriovSucceeded},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, order := range [][2]SriovNetworkNodeState{{c.a, c.b}, {c.b, c.a}} {
				got := order[0].Merge(order[1])
				same := got.Namespace == c.namespace || c.a.Status.SyncStatus == c.b.Status.SyncStatus
				if !same || got.Drains() != c.drain || got.Status.SyncStatus != c.sync || len(got.Others) != 1 || got.Others[0] == got.Namespace {
					t.Errorf("got %s, %s, %s, others %v", got.Namespace, got.Drains(), got.Status.SyncStatus, got.Others)
				}
			}
		})
	}
}
