package result

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// measured returns a client's result over a VF.
func measured(change ...func(*Document)) Document {
	d := Document{
		Version: Version, Run: "b-r1", Attempt: 1, Role: v1alpha1.RoleClient,
		Evidence: Evidence{
			Node: "a", Kernel: "6.1.0", BootID: "boot-1", CPUModel: "EPYC", CPUsAllowed: "2-3", OnlineCPUs: "0-7",
			MeasuringCPU: 2, AgentCPU: 3, CPUNUMANode: 1, DeviceNUMANode: 1, ThreadSiblings: "2,6", Clocksource: "tsc",
			Interface: "net1", Address: "192.0.2.1", Addresses: []string{"192.0.2.1/24"}, MTU: 1500, Driver: "sfc",
			Firmware: "8.5.2.1000 rx1 tx1", PCIAddress: "0000:65:02.3", AgentVersion: "abc",
			AllocatedDevices: map[string]string{"PCIDEVICE_AMD_COM_SF_VF": "0000:65:02.3"},
			Facts: map[string]string{
				"cpu.governor": "performance", "cpu.smt.sibling": "others", "cpu.l3.shared": "2-3,6-7", "nic.function": "VF", "nic.port": "0000:65:00.0",
				"env.EF_POLL_USEC": "100000", "kernel.arg.isolcpus": "2-3", "sysctl.vm.swappiness": "60",
			},
			MAC: "00:0f:53:4a:81:c0", PCISource: PCIFromSysfs, AllowedNUMANodes: "1",
			Paths:  []Path{{Cell: "tcp-64", Begun: &Look{Library: "/opt/onload/usr/lib64/libonload.so"}}},
			Deltas: map[string]int64{"elapsed-ms": 7000}, VoluntarySwitches: 12, InvoluntarySwitches: 3,
		},
		Cells: []Cell{
			{Cell: tool.Cell{Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}, Duration: 3 * time.Second}, Tool: "pinger", ToolVersion: "pinger 1"},
			{Cell: tool.Cell{Name: "udp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolUDP, MessageSize: 64}, Duration: 3 * time.Second}, Tool: "pinger", ToolVersion: "pinger 1"},
		},
	}
	for _, f := range change {
		f(&d)
	}
	return d
}

func TestDifferences(t *testing.T) {
	cases := map[string]struct {
		change func(*Document)
		want   []Difference
	}{
		"the same": {change: func(*Document) {}},
		// Values that the kubelet and the device plugin may assign differently on an unchanged machine.
		"a round on fresh pods": {
			change: func(d *Document) {
				d.Run, d.Attempt = "b-r2", 2
				e := &d.Evidence
				e.Address, e.Addresses, e.PCIAddress = "192.0.2.9", []string{"192.0.2.9/24"}, "0000:65:02.7"
				e.MAC = "00:0f:53:4a:81:c1"
				e.AllocatedDevices = map[string]string{"PCIDEVICE_AMD_COM_SF_VF": "0000:65:02.7"}
				e.Deltas, e.VoluntarySwitches, e.InvoluntarySwitches = map[string]int64{"elapsed-ms": 7001}, 13, 4
				for i := range d.Cells {
					d.Cells[i].Command, d.Cells[i].StartedAt, d.Cells[i].Lost = []string{"pinger", "192.0.2.9"}, time.Unix(1, 0), 1
				}
			},
		},
		"a round on other CPUs": {
			change: func(d *Document) {
				e := &d.Evidence
				e.CPUsAllowed, e.MeasuringCPU, e.AgentCPU, e.ThreadSiblings = "6-7", 6, 7, "6,2"
				e.Facts["cpu.l3.shared"] = "6-7"
			},
			want: []Difference{
				{"cpu.agent", "3", "7", false}, {"cpu.allowed", "2-3", "6-7", false}, {"cpu.l3.shared", "2-3,6-7", "6-7", false},
				{"cpu.measuring", "2", "6", false}, {"cpu.smt.siblings", "2,6", "6,2", false},
			},
		},
		"those of the fingerprint come first": {
			change: func(d *Document) {
				e := &d.Evidence
				e.BootID, e.MTU, e.AgentVersion = "boot-2", 9000, "def"
				e.Facts["cpu.governor"] = "powersave"
			},
			want: []Difference{
				{"cpu.governor", "performance", "powersave", true}, {"nic.mtu", "1500", "9000", true},
				{"agent.version", "abc", "def", false}, {"kernel.boot-id", "boot-1", "boot-2", false},
			},
		},
		"a VF of another port": {
			change: func(d *Document) {
				d.Evidence.PCIAddress, d.Evidence.Facts["nic.port"] = "0000:65:06.3", "0000:65:00.1"
			},
			want: []Difference{{"nic.port", "0000:65:00.0", "0000:65:00.1", true}},
		},
		"a CPU far from the NIC": {
			change: func(d *Document) { d.Evidence.CPUNUMANode = 0 },
			want:   []Difference{{"numa.relation", "local", "remote", true}, {"numa.cpu", "1", "0", false}},
		},
		"without Onload": {
			change: func(d *Document) { d.Evidence.Paths = nil },
			want:   []Difference{{"onload.mapped", "/opt/onload/usr/lib64/libonload.so", "", true}},
		},
		"a CPU and a NIC that are both elsewhere": {
			change: func(d *Document) { d.Evidence.CPUNUMANode, d.Evidence.DeviceNUMANode = 0, 0 },
			want:   []Difference{{"numa.cpu", "1", "0", false}, {"numa.device", "1", "0", false}},
		},
		"a NIC on an unknown NUMA node": {
			change: func(d *Document) { d.Evidence.DeviceNUMANode = -1 },
			want:   []Difference{{"numa.relation", "local", "", true}, {"numa.device", "1", "", false}},
		},
		"a variable that is not set, and one that is": {
			change: func(d *Document) {
				delete(d.Evidence.Facts, "env.EF_POLL_USEC")
				d.Evidence.Facts["env.LD_PRELOAD"] = "libonload.so"
			},
			want: []Difference{{"env.EF_POLL_USEC", "100000", "", true}, {"env.LD_PRELOAD", "", "libonload.so", true}},
		},
		"a setting by its own entry, another by that of all settings": {
			change: func(d *Document) {
				d.Evidence.Facts["sysctl.kernel.numa_balancing"] = "1"
				d.Evidence.Facts["sysctl.vm.swappiness"] = "10"
			},
			want: []Difference{{"sysctl.kernel.numa_balancing", "", "1", true}, {"sysctl.vm.swappiness", "60", "10", false}},
		},
		"a fact that only a newer agent knows": {
			change: func(d *Document) { d.Evidence.Facts["moon.phase"] = "full" },
			want:   []Difference{{"moon.phase", "", "full", false}},
		},
		"another tool": {
			change: func(d *Document) {
				for i := range d.Cells {
					d.Cells[i].Tool, d.Cells[i].ToolVersion = "sockperf", "3.7"
				}
			},
			want: []Difference{{"tool.name", "pinger", "sockperf", true}, {"tool.version", "pinger 1", "3.7", true}},
		},
		"a cell of another length": {
			change: func(d *Document) { d.Cells[0].Duration = time.Second },
			want:   []Difference{{"cell.tcp-64.duration", "3000000000", "1000000000", true}},
		},
		"a cell that is accelerated": {
			change: func(d *Document) { d.Cells[0].Accelerated.Server = tool.AccelerationYes },
			want:   []Difference{{"cell.tcp-64.accelerated.server", "", "Yes", true}},
		},
		"a cell that only one has":       {change: func(d *Document) { d.Cells = d.Cells[:1] }},
		"a result without cells":         {change: func(d *Document) { d.Cells = nil }},
		"the result of the other end":    {change: func(d *Document) { d.Role = v1alpha1.RoleServer }, want: []Difference{{"role", "client", "server", true}}},
		"another node of the same model": {change: func(d *Document) { d.Evidence.Node = "b" }, want: []Difference{{"node", "a", "b", true}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Differences(measured(), measured(c.change))); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}

// change modifies a value.
func change(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), v.Len()+1, v.Len()+1))
	case reflect.Pointer:
		other := reflect.New(v.Type().Elem())
		other.Elem().Set(v.Elem())
		change(other.Elem().Field(0))
		v.Set(other)
	case reflect.Map:
		v.SetZero()
	default:
		panic(v.Kind().String())
	}
}

// A new field is compared, or left out on purpose.
func TestEveryFieldIsComparedOrLeftOutOnPurpose(t *testing.T) {
	// BootedAt identifies the boot, as BootID does; two readings of it differ.
	leftOut := []string{"BootedAt", "Address", "Addresses", "MAC", "PCIAddress", "PCISource", "AllocatedDevices", "Deltas", "VoluntarySwitches", "InvoluntarySwitches"}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Evidence]()) {
		other := measured()
		change(reflect.ValueOf(&other.Evidence).Elem().FieldByIndex(field.Index))
		if differs, want := len(Differences(measured(), other)) > 0, !slices.Contains(leftOut, field.Name); differs != want {
			t.Errorf("results that differ in Evidence.%s: a difference is found %v, want %v", field.Name, differs, want)
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[tool.Cell]()) {
		if field.Name == "Name" || field.Anonymous {
			continue
		}
		before, other := measured(), measured()
		before.Cells[0].Custom, other.Cells[0].Custom = &v1alpha1.Custom{Image: "a"}, &v1alpha1.Custom{Image: "a"}
		change(reflect.ValueOf(&other.Cells[0].Cell).Elem().FieldByIndex(field.Index))
		if found := Differences(before, other); len(found) != 1 || !found[0].Fingerprint {
			t.Errorf("results whose cells differ in %s: %v; want one difference of the fingerprint", field.Name, found)
		}
	}
}

func TestFingerprint(t *testing.T) {
	got := Conditions(measured(func(d *Document) { d.Cells = d.Cells[:1] }))
	maps.DeleteFunc(got, func(key, _ string) bool { return !inFingerprint(key) })
	want := map[string]string{
		"role": "client", "tool.name": "pinger", "tool.version": "pinger 1", "node": "a", "kernel.release": "6.1.0", "kernel.clocksource": "tsc",
		"kernel.arg.isolcpus": "2-3", "cpu.model": "EPYC", "cpu.governor": "performance", "cpu.smt.sibling": "others", "numa.relation": "local",
		"nic.name": "net1", "nic.mtu": "1500", "nic.driver": "sfc", "nic.firmware": "8.5.2.1000 rx1 tx1", "nic.function": "VF",
		"nic.port": "0000:65:00.0", "onload.mapped": "/opt/onload/usr/lib64/libonload.so", "env.EF_POLL_USEC": "100000",
		"cell.tcp-64.protocol": "TCP", "cell.tcp-64.messageSize": "64", "cell.tcp-64.duration": "3000000000", "cell.tcp-64.warmup": "0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fingerprint (-want +got):\n%s", diff)
	}
}

func TestDifferenceInWords(t *testing.T) {
	cases := map[string]struct {
		d    Difference
		want string
	}{
		"values":             {Difference{Key: "nic.mtu", A: "1500", B: "9000"}, `nic.mtu "1500", then "9000"`},
		"one that is absent": {Difference{Key: "cpu.governor", B: "powersave"}, `cpu.governor absent, then "powersave"`},
		"a long one": {
			Difference{Key: "kernel.cmdline", A: strings.Repeat("é", 100), B: "x"}, `kernel.cmdline "` + strings.Repeat("é", 28) + `…", then "x"`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.d.String(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestKeysAreWellFormed(t *testing.T) {
	form := regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*(\.\*)?$`)
	for _, keys := range [][]Key{Keys, DeltaKeys} {
		seen := map[string]bool{}
		for _, k := range keys {
			if !form.MatchString(k.Name) || k.Meaning == "" || seen[k.Name] {
				t.Errorf("key %+v: not in form, without a meaning, or listed twice", k)
			}
			seen[k.Name] = true
		}
	}
	// Each line that is no comment has a kind, and a meaning or the kind of a group that has one.
	counted := 0
	for _, line := range regexp.MustCompile(`(?m)^[^#\n].*$`).FindAllString(table, -1) {
		c := regexp.MustCompile(`^(\S+)\t(fingerprint|condition|event)\t([^\t]*)(?:\t([a-z][\w{}/.-]+[a-z]))?$`).FindStringSubmatch(line)
		if c == nil {
			t.Fatalf("%q", line)
		}
		key, _ := FindKey(c[1])
		if c[2] == "event" {
			key, _ = FindDeltaKey(c[1])
		}
		if key.Meaning == "" || key.Fingerprint != (c[2] == "fingerprint") || c[3] == "" && c[4] == "" || Files[c[1]]+Counters[c[1]] != c[4] && c[2] != "event" {
			t.Errorf("%q is %+v", line, key)
		}
		counted++
	}
	if counted < 200 || len(Counters) < 10 || Files["cpu.governor"] != "sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor" {
		t.Errorf("%d lines, %d files, %d counters", counted, len(Files), len(Counters))
	}
	for name, want := range map[string]string{
		"module.sfc.version": "module.*", "module.srcversion.sfc": "module.srcversion.*", "sysctl.net.core.busy_poll": "sysctl.net.core.busy_poll",
		"sysctl.net.core.rmem_max": "sysctl.*", "cpu.nohz-full-cpus": "cpu.nohz-full-cpus", "nothing": "",
	} {
		if k, ok := FindKey(name); k.Name != want || ok != (want != "") {
			t.Errorf("%s is %q, %v; want %q", name, k.Name, ok, want)
		}
	}
	if k, ok := FindDeltaKey("irq.24.eth0-0"); !ok || k.Name != "irq.*" {
		t.Errorf("irq.24.eth0-0 is %q", k.Name)
	}
}

func FuzzDifferences(f *testing.F) {
	whole, err := json.Marshal(measured())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, whole)
	f.Add(whole, []byte(`{"role":"server","evidence":{"facts":{"cell..":"1","tool.name":""}},"cells":[{"name":""},{"name":"tcp-64"}]}`))
	f.Fuzz(func(t *testing.T, x, y []byte) {
		var a, b Document
		if json.Unmarshal(x, &a) != nil || json.Unmarshal(y, &b) != nil {
			return
		}
		if found := Differences(a, a); len(found) > 0 {
			t.Fatalf("a result differs from itself: %v", found)
		}
		there, back := Differences(a, b), Differences(b, a)
		for i := range back {
			back[i].A, back[i].B = back[i].B, back[i].A
		}
		if diff := cmp.Diff(there, back); diff != "" {
			t.Fatalf("there and back:\n%s", diff)
		}
	})
}

// Another program, command or environment is named by the part that differs; another image behind the same tag, too.
func TestCustomIsCompared(t *testing.T) {
	with := func(change func(*v1alpha1.Custom)) Stored {
		d := measured()
		custom := &v1alpha1.Custom{Image: "a:1", Client: v1alpha1.CustomProgram{Command: []string{"/c"}}, Server: v1alpha1.CustomProgram{Command: []string{"/s"}}}
		if change != nil {
			change(custom)
		}
		for i := range d.Cells {
			d.Cells[i].Custom = custom
		}
		return Stored{Client: d, ClientSeen: Seen{ImageID: "registry/a@sha256:01"}}
	}
	for key, change := range map[string]func(*v1alpha1.Custom){
		"tool.custom.image":  func(c *v1alpha1.Custom) { c.Image = "a:2" },
		"tool.custom.client": func(c *v1alpha1.Custom) { c.Client.Args = []string{"-x"} },
		"tool.custom.server": func(c *v1alpha1.Custom) { c.Server.Env = []v1alpha1.CustomVariable{{Name: "A", Value: "1"}} },
		"tool.custom.output": func(c *v1alpha1.Custom) { c.Output.Unit = "us" },
	} {
		found := Differences(with(nil).Client, with(change).Client)
		if len(found) != 1 || found[0].Key != key || !found[0].Fingerprint {
			t.Errorf("%s: %v", key, found)
		}
	}
	same, moved := with(nil), with(nil)
	same.ClientSeen.ImageID, moved.ClientSeen.ImageID = "mirror/a@sha256:01", "registry/a@sha256:02"
	if d, ok := OtherImage(with(nil), same); ok {
		t.Errorf("the image of a mirror: %s", d)
	}
	if d, ok := OtherImage(with(nil), moved); !ok || d.Key != "tool.image" || !d.Fingerprint {
		t.Errorf("another image behind the tag: %v", d)
	}
	atServer := with(nil)
	atServer.ServerSeen.ImageID = "registry/a@sha256:02"
	if d, ok := OtherImage(with(nil), atServer); !ok || d.B != atServer.ServerSeen.ImageID {
		t.Errorf("another image at the server: %v", d)
	}
	if _, ok := OtherImage(Stored{Client: measured()}, moved); ok {
		t.Error("a bench image is not a user's program")
	}
}
