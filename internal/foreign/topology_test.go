package foreign

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// readObject reads an object in the form in which a client without its type receives it.
func readObject(t *testing.T, file string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return o.Object
}

func TestDecodeNodeResourceTopology(t *testing.T) {
	got, err := Decode[NodeResourceTopology](readObject(t, "testdata/noderesourcetopology.json"))
	if err != nil {
		t.Fatal(err)
	}
	zoneResource := func(name, allocatable, available string) ZoneResource {
		return ZoneResource{Name: name, Allocatable: resource.MustParse(allocatable), Available: resource.MustParse(available)}
	}
	want := NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Zones: []Zone{
		{Name: "node-0", Type: ZoneTypeNode, Resources: []ZoneResource{zoneResource("cpu", "15", "11"), zoneResource("memory", "66806452224", "66806452224")}},
		{Name: "node-1", Type: ZoneTypeNode, Resources: []ZoneResource{zoneResource("cpu", "16", "16"), zoneResource("amd.com/sf_vf", "4", "3")}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("topology (-want +got):\n%s", diff)
	}
}

// Data that does not have the expected form is an error, and is not guessed.
func TestDecodeRefuses(t *testing.T) {
	cases := map[string]string{
		"zones that are no list":         `{"zones": {}}`,
		"a quantity that is none":        `{"zones": [{"resources": [{"name": "cpu", "available": "many"}]}]}`,
		"a name that is a number":        `{"metadata": {"name": 1}}`,
		"interfaces that are no list":    `{"status": {"interfaces": "eth0"}}`,
		"a number of VFs that is a text": `{"status": {"interfaces": [{"numVfs": "4"}]}}`,
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			var object map[string]any
			if err := json.Unmarshal([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			_, first := Decode[NodeResourceTopology](object)
			_, second := Decode[SriovNetworkNodeState](object)
			if first == nil && second == nil {
				t.Error("both were read without an error")
			}
			for kind, err := range map[string]error{"NodeResourceTopology": first, "SriovNetworkNodeState": second} {
				if err != nil && !strings.HasPrefix(err.Error(), "reading a "+kind+": ") {
					t.Errorf("%s: %v", kind, err)
				}
			}
		})
	}
}

// Reading an object does not panic, whatever it holds.
func FuzzDecode(f *testing.F) {
	for _, file := range []string{"testdata/noderesourcetopology.json", "testdata/sriovnetworknodestate.json"} {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Fuzz(func(t *testing.T, text string) {
		var object map[string]any
		if json.Unmarshal([]byte(text), &object) != nil {
			return
		}
		if topology, err := Decode[NodeResourceTopology](object); err != nil && topology.Zones != nil {
			t.Error("an error came with zones")
		}
		if state, err := Decode[SriovNetworkNodeState](object); err != nil && state.Status.Interfaces != nil {
			t.Error("an error came with interfaces")
		}
	})
}
