package result

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInspectionTravels(t *testing.T) {
	want := Inspection{
		Version: InspectionVersion, Evidence: clientDocument(t).Evidence, NUMA: map[string]string{"0": "0-7"},
		NICs: []NIC{{PCIAddress: "0000:65:00.0", ID: "1924:0b03", Driver: "sfc", VFs: 4, TotalVFs: 16}},
	}
	var log bytes.Buffer
	log.WriteString("something before\n")
	if err := want.Write(&log); err != nil {
		t.Fatal(err)
	}
	whole := log.String()
	got, err := ReadInspection(&log)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("inspection (-want +got):\n%s", diff)
	}
	result, _ := framed(t, clientDocument(t))
	for name, c := range map[string]struct{ log, want string }{
		"an empty log":             {"", "no result in the log"},
		"a result":                 {result, "no result in the log"},
		"no JSON":                  {framedAs(t, frameInspection, InspectionVersion, gzipped("{")), "unexpected end of JSON"},
		"another version":          {framedAs(t, frameInspection, 99, gzipped("{}")), "its format is \"99\""},
		"a log cut off":            {whole[:len(whole)*2/3], "ends within it"},
		"a changed digest":         {whole[:len(whole)-3] + "zz\n", "digest"},
		"one that expands to much": {framedAs(t, frameInspection, InspectionVersion, gzipped(strings.Repeat(" ", maxPlain+1))), "MiB of JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ReadInspection(strings.NewReader(c.log)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func framedAs(t *testing.T, what string, version int, content []byte) string {
	t.Helper()
	var b strings.Builder
	if err := writeFrame(&b, what, version, content); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(&b)
}

// TestOfWorkload: an inspection of the node, and one with more than an agent finds, are not those of a workload.
func TestOfWorkload(t *testing.T) {
	for name, c := range map[string]struct {
		w    *Workload
		want bool
	}{
		"of a node":           {nil, false},
		"without interfaces":  {&Workload{}, false},
		"the bounds":          {&Workload{Interfaces: make([]Evidence, MaxInterfaces), Threads: make([]Thread, MaxThreads), Processes: make([]Process, MaxThreads)}, true},
		"too many interfaces": {&Workload{Interfaces: make([]Evidence, MaxInterfaces+1)}, false},
		"too many threads":    {&Workload{Interfaces: make([]Evidence, 1), Threads: make([]Thread, MaxThreads+1)}, false},
		"too many processes":  {&Workload{Interfaces: make([]Evidence, 1), Processes: make([]Process, MaxThreads+1)}, false},
	} {
		if got := (Inspection{Workload: c.w}).OfWorkload(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
