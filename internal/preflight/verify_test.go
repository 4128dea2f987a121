package preflight

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
)

func TestVerify(t *testing.T) {
	cases := map[string]struct {
		cpus           int32
		resource       string
		capture        bool
		client, server func(*result.Evidence)
		// want are the reasons, in order.
		want []string
		// wantMessage are parts of the first message.
		wantMessage []string
	}{
		"a capture on the measuring CPU": {
			cpus: 2, capture: true, server: func(e *result.Evidence) { e.AgentCPU = e.MeasuringCPU },
			want: []string{v1alpha1.WarningCaptureSharesCPU}, wantMessage: []string{"node-server", "placement.cpus"},
		},
		"a capture on another CPU": {
			cpus: 2, capture: true, server: func(e *result.Evidence) { e.AgentCPU = e.MeasuringCPU + 1 },
		},
		"two machines as asked":      {cpus: 2},
		"two machines with a device": {cpus: 2, resource: vf},
		"one kernel under both is told": {
			cpus: 2, client: func(e *result.Evidence) { e.BootID = "boot-server" },
			want: []string{v1alpha1.WarningSimulatedNIC}, wantMessage: []string{"same boot id"},
		},
		"two unknown kernels are not one": {
			cpus:   2,
			client: func(e *result.Evidence) { e.BootID = "" },
			server: func(e *result.Evidence) { e.BootID = "" },
		},
		"a client with more CPUs than it asked for shares them": {
			cpus: 2, client: func(e *result.Evidence) { e.CPUsAllowed = "0-63" },
			want: []string{v1alpha1.WarningCPUsNotExclusive}, wantMessage: []string{"client", "node-client", "0-63", "cpuManagerPolicy"},
		},
		"a server with fewer": {
			cpus: 2, server: func(e *result.Evidence) { e.CPUsAllowed = "3" },
			want: []string{v1alpha1.WarningCPUsNotExclusive}, wantMessage: []string{"server", "node-server"},
		},
		"both ends of a reason are one warning": {
			cpus: 4, want: []string{v1alpha1.WarningCPUsNotExclusive}, wantMessage: []string{"client"},
		},
		"CPUs that nobody can read": {
			cpus: 2, server: func(e *result.Evidence) { e.CPUsAllowed = "" },
			want: []string{v1alpha1.WarningCPUsNotExclusive}, wantMessage: []string{"server", "not a number"},
		},
		"a device on another NUMA node": {
			cpus: 2, resource: vf, server: func(e *result.Evidence) { e.DeviceNUMANode = 0 },
			want: []string{v1alpha1.WarningNUMAMismatch}, wantMessage: []string{"server", "CPU 2", "NUMA node 1", "net1", "NUMA node 0", "topologyManagerPolicy"},
		},
		"without a device there is no NUMA node to be on": {
			cpus: 2, server: func(e *result.Evidence) { e.DeviceNUMANode = 0 },
		},
		"an unknown NUMA node of the device": {
			cpus: 2, resource: vf, client: func(e *result.Evidence) { e.DeviceNUMANode = -1 },
			want: []string{v1alpha1.WarningNUMAUnknown}, wantMessage: []string{"client", "net1"},
		},
		"an unknown NUMA node of the CPU": {
			cpus: 2, resource: vf, client: func(e *result.Evidence) { e.CPUNUMANode = -1 },
			want: []string{v1alpha1.WarningNUMAUnknown}, wantMessage: []string{"client", "CPU 2"},
		},
		"everything at once": {
			cpus: 1, resource: vf,
			client: func(e *result.Evidence) { e.BootID, e.DeviceNUMANode = "boot-server", 0 },
			server: func(e *result.Evidence) { e.DeviceNUMANode = -1 },
			want:   []string{v1alpha1.WarningSimulatedNIC, v1alpha1.WarningCPUsNotExclusive, v1alpha1.WarningNUMAMismatch, v1alpha1.WarningNUMAUnknown},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			evidence := func(role string, change func(*result.Evidence)) result.Evidence {
				e := result.Evidence{
					Node: "node-" + role, BootID: "boot-" + role, CPUsAllowed: "2-3", MeasuringCPU: 2,
					CPUNUMANode: 1, DeviceNUMANode: 1, Interface: "net1",
				}
				if change != nil {
					change(&e)
				}
				return e
			}
			spec := v1alpha1.LatencyBenchmarkSpec{
				Placement: v1alpha1.Placement{CPUs: c.cpus}, Network: v1alpha1.Network{ResourceName: c.resource}, Capture: c.capture,
			}
			warnings := Verify(spec, plan.Variants(spec)[0], evidence("client", c.client), evidence("server", c.server))
			var got []string
			for _, w := range warnings {
				got = append(got, w.Reason)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Fatalf("reasons (-want +got):\n%s", diff)
			}
			for _, part := range c.wantMessage {
				if !strings.Contains(warnings[0].Message, part) {
					t.Errorf("message %q does not say %q", warnings[0].Message, part)
				}
			}
		})
	}
}

func TestParseCPUs(t *testing.T) {
	cases := map[string]struct {
		list    string
		want    []int
		wantErr bool
	}{
		"one":                                {list: "3", want: []int{3}},
		"the first":                          {list: "0", want: []int{0}},
		"a range":                            {list: "2-4", want: []int{2, 3, 4}},
		"a range of one":                     {list: "2-2", want: []int{2}},
		"singles and ranges":                 {list: "0,2-3,7", want: []int{0, 2, 3, 7}},
		"with the line's end, as in sysfs":   {list: "0-1\n", want: []int{0, 1}},
		"nothing":                            {list: "", wantErr: true},
		"an empty element":                   {list: "1,,2", wantErr: true},
		"a range without an end":             {list: "1-", wantErr: true},
		"a range without a beginning":        {list: "-1", wantErr: true},
		"a range that runs backwards":        {list: "4-2", wantErr: true},
		"words":                              {list: "none", wantErr: true},
		"spaces within":                      {list: "1, 2", wantErr: true},
		"more CPUs than there can be":        {list: "0-4294967295", wantErr: true},
		"a number that no integer can carry": {list: "99999999999999999999", wantErr: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseCPUs(c.list)
			if (err != nil) != c.wantErr {
				t.Fatalf("got error %v, want one: %t", err, c.wantErr)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("CPUs (-want +got):\n%s", diff)
			}
			if n, _ := CountCPUs(c.list); n != len(c.want) {
				t.Errorf("counted %d, want %d", n, len(c.want))
			}
		})
	}
}

// What is accepted are numbers of CPUs that Linux could have.
func FuzzParseCPUs(f *testing.F) {
	for _, seed := range []string{"0", "0-3,8-11", "1,3-5\n", "-", "0-99999", ",", "+1", "1-2-3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		cpus, err := ParseCPUs(list)
		if err != nil {
			if cpus != nil {
				t.Errorf("%q: an error came with CPUs %v", list, cpus)
			}
			return
		}
		if len(cpus) == 0 {
			t.Errorf("%q: accepted, without a CPU", list)
		}
		if len(cpus) > 0 && (slices.Min(cpus) < 0 || slices.Max(cpus) >= maxCPU) {
			t.Errorf("%q: out of range: %v", list, cpus)
		}
	})
}
