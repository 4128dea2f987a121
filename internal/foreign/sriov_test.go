package foreign

import (
	"testing"

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
				{Name: "eno1", Vendor: "8086", TotalVFs: 64},
				{Name: "ens1f0np0", Vendor: VendorSolarflare, NumVFs: 1, TotalVFs: 8},
			},
			SyncStatus: "Failed", LastSyncError: "cannot config SRIOV device",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}
