package judge

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/verdict"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// collected returns the results of runs.
func collected(t *testing.T, s v1alpha1.LatencyBenchmarkSpec, runs ...result.Stored) Results {
	t.Helper()
	c, err := rounds.Of(s, runs...)
	if err != nil {
		t.Fatal(err)
	}
	return Results{Collection: c}
}

// six returns six runs of each variant. All runs of a variant have the same histogram.
func six(t *testing.T, s v1alpha1.LatencyBenchmarkSpec, name string, of map[string]result.Histogram, change ...func(*result.Stored)) Results {
	t.Helper()
	var runs []result.Stored
	for round := range 6 {
		for variant, h := range of {
			runs = append(runs, run(fmt.Sprintf("%s-%s-r%d", name, variant, round+1), variant, s, h, change...))
		}
	}
	return collected(t, s, runs...)
}

func TestGate(t *testing.T) {
	quick, slow := histogram(t, 10_000, 0, 1000), histogram(t, 12_000, 0, 1000)
	rule := v1alpha1.Rule{Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "5%"}}
	limit := v1alpha1.Rule{Metric: v1alpha1.MetricP50, Max: v1alpha1.Limit{Text: "5500ns"}}
	against := func(ignore ...string) v1alpha1.Criteria {
		return v1alpha1.Criteria{Rules: []v1alpha1.Rule{rule}, Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "before"}}}, IgnoreDifferences: ignore}
	}
	of := func(h result.Histogram) map[string]result.Histogram { return map[string]result.Histogram{"default": h} }
	before := func(change ...func(*result.Stored)) *Results {
		r := six(t, spec(), "before", of(quick), change...)
		return &r
	}
	kernel := func(s *result.Stored) { s.Client.Evidence.Kernel, s.Server.Evidence.Kernel = "5.15.0", "5.15.0" }
	fact := func(key, value string) func(*result.Stored) {
		return func(s *result.Stored) { s.Client.Evidence.Facts[key], s.Server.Evidence.Facts[key] = value, value }
	}
	upgraded := func(s *result.Stored) {
		for key, value := range map[string]string{
			"kernel.version": "#2 SMP", "cpu.microcode": "0x2", "cpu.vulnerability.its": "Mitigation: Aligned branch/return thunks",
			"module.sfc.version": "6.0", "nic.driver-version": "6.0", "nic.feature.tx-gso-list": "off", "nic.threaded": "0",
		} {
			fact(key, value)(s)
		}
	}
	firmware := func(s *result.Stored) {
		s.Server.Evidence.Facts["nic.firmware-variant"], s.Server.Evidence.Facts["nic.ring.rx"] = "full-feature", "512"
	}
	told := only(func(c *result.Cell) { c.Accelerated.Server = "Absent" })
	boot := func(s *result.Stored) { s.Client.Evidence.BootID = "earlier" }
	imported := func(s *result.Stored) { s.Client.Imported, s.Server.Imported = "a table", "a table" }
	oneKernel := func(s *result.Stored) { s.Server.Evidence.BootID = s.Client.Evidence.BootID }
	// The capture has a CPU of its own.
	apart := func(s *result.Stored) { s.Server.Evidence.AgentCPU = 4 }
	capturing := func(r *Results) *Results {
		for _, v := range r.Variants {
			v.Capture = v1alpha1.CaptureServer
		}
		r.Spec.Capture = v1alpha1.CaptureServer
		return r
	}
	cases := map[string]struct {
		criteria  v1alpha1.Criteria
		candidate Results
		baseline  *Results
		outcome   v1alpha1.VerdictOutcome
		reason    string
		// message holds parts of the message of the verdict.
		message []string
	}{
		"as quick as the baseline":      {against(), six(t, spec(), "x", of(quick)), before(), "Pass", "WithinLimit", []string{"over 6+6 rounds"}},
		"slower than the baseline":      {against(), six(t, spec(), "x", of(slow)), before(), "Fail", "BeyondLimit", []string{"6.00µs against 5.00µs", "ratio 1.2"}},
		"a simulated NIC is reported":   {against(), six(t, spec(), "x", of(quick), oneKernel), before(oneKernel), "Pass", "WithinLimit", []string{"on a simulated NIC: "}},
		"a baseline that was imported":  {against("*"), six(t, spec(), "x", of(quick)), before(imported), "Inconclusive", "Imported", []string{"nothing proves it"}},
		"a candidate that was imported": {against("*"), six(t, spec(), "x", of(quick), imported), before(), "Inconclusive", "Imported", []string{"nothing proves it"}},
		"both were imported":            {against("*"), six(t, spec(), "x", of(quick), imported), before(imported), "Inconclusive", "Imported", nil},
		"another boot is comparable":    {against(), six(t, spec(), "x", of(quick)), before(boot), "Pass", "WithinLimit", nil},
		"a limit needs no baseline":     {v1alpha1.Criteria{Rules: []v1alpha1.Rule{limit}}, six(t, spec(), "x", of(quick)), nil, "Pass", "WithinLimit", nil},
		"a limit on half round trips":   {v1alpha1.Criteria{Rules: []v1alpha1.Rule{limit}}, six(t, spec(), "x", of(slow)), nil, "Fail", "BeyondLimit", []string{"6.00µs"}},
		"a kernel that was not named": {against(), six(t, spec(), "x", of(slow)), before(kernel), "Inconclusive", "EvidenceDiffers",
			[]string{`before-default-r1 and x-default-r1`, `at the client's end: kernel.release "5.15.0", then "6.1.0"`, "ignoreDifferences"}},
		"a kernel that was named":                 {against("kernel.release"), six(t, spec(), "x", of(quick)), before(kernel), "Pass", "WithinLimit", nil},
		"a kernel that a pattern names":           {against("kernel.*"), six(t, spec(), "x", of(slow)), before(kernel), "Fail", "BeyondLimit", nil},
		"a kernel upgrade and what comes with it": {against("kernelUpgrade"), six(t, spec(), "x", of(slow), upgraded), before(kernel), "Fail", "BeyondLimit", nil},
		"a kernel upgrade that changes a C-state": {against("kernelUpgrade"), six(t, spec(), "x", of(quick), upgraded, fact("cpu.cstates", "POLL C6")), before(kernel),
			"Inconclusive", "EvidenceDiffers", []string{`cpu.cstates absent, then "POLL C6"`, "compare -o ignoreDifferences"}},
		"a kernel upgrade and another offload": {against("kernelUpgrade"), six(t, spec(), "x", of(quick), upgraded, fact("nic.feature.rx-lro", "on")),
			before(kernel, fact("nic.feature.rx-lro", "off")), "Inconclusive", "EvidenceDiffers", []string{"nic.feature.rx-lro"}},
		"a kernel upgrade and another argument": {against("kernelUpgrade"), six(t, spec(), "x", of(quick), upgraded, fact("kernel.arg.mitigations", "off")), before(kernel),
			"Inconclusive", "EvidenceDiffers", []string{"kernel.arg.mitigations"}},
		"what comes with a kernel, not named":      {against("kernel.*"), six(t, spec(), "x", of(quick), upgraded), before(kernel), "Inconclusive", "EvidenceDiffers", []string{"cpu.microcode"}},
		"a pattern does not name firmware":         {against("nic.*"), six(t, spec(), "x", of(quick)), before(firmware), "Inconclusive", "EvidenceDiffers", []string{`nic.firmware-variant "full-feature", then absent`}},
		"firmware named, but not the rings":        {against("nic.firmware-variant"), six(t, spec(), "x", of(quick)), before(firmware), "Inconclusive", "EvidenceDiffers", []string{`nic.ring.rx "512"`}},
		"firmware and rings named":                 {against("nic.ring.*", "nic.firmware-variant"), six(t, spec(), "x", of(quick)), before(firmware), "Pass", "WithinLimit", nil},
		"acceleration is not named by a pattern":   {against("cell.*", "cell.*.server"), six(t, spec(), "x", of(quick)), before(told), "Inconclusive", "EvidenceDiffers", []string{"cell.tcp-64.accelerated.server"}},
		"acceleration named":                       {against("cell.tcp-64.accelerated.server"), six(t, spec(), "x", of(quick)), before(told), "Pass", "WithinLimit", nil},
		"another duration":                         {against(), six(t, spec(), "x", of(quick)), before(only(func(c *result.Cell) { c.Duration *= 2 })), "Inconclusive", "EvidenceDiffers", []string{"cell.tcp-64.duration"}},
		"another duration that was meant":          {against("cell.*.duration"), six(t, spec(), "x", of(quick)), before(only(func(c *result.Cell) { c.Duration *= 2 })), "Pass", "WithinLimit", nil},
		"another warm-up":                          {against(), six(t, spec(), "x", of(quick)), before(only(func(c *result.Cell) { c.Warmup = 1 })), "Inconclusive", "EvidenceDiffers", []string{"warmup"}},
		"a capture of the baseline":                {against(), six(t, spec(), "x", of(quick)), capturing(before(apart)), "Inconclusive", "EvidenceDiffers", []string{"capture Server, then None"}},
		"a capture that was meant":                 {against("capture"), six(t, spec(), "x", of(quick)), capturing(before(apart)), "Pass", "WithinLimit", nil},
		"another version of the tool":              {against(), six(t, spec(), "x", of(quick)), before(only(func(c *result.Cell) { c.ToolVersion = "0.9" })), "Inconclusive", "EvidenceDiffers", []string{"tool.version"}},
		"another tool":                             {against(), six(t, spec(), "x", of(quick)), before(only(func(c *result.Cell) { c.Tool = "sockperf" })), "Inconclusive", "EvidenceDiffers", []string{"tool.name"}},
		"a baseline on CPUs that others used, too": {against(), six(t, spec(), "x", of(quick)), before(func(s *result.Stored) { s.Server.Evidence.CPUsAllowed = "0-3" }), "Inconclusive", "CPUsNotExclusive", []string{"the baseline: in before-default-r1"}},
		"a baseline that is not there": {against(), six(t, spec(), "x", of(slow)), &Results{Trouble: &verdict.Blocker{Reason: "BaselineMissing", Message: "there is no baseline"}},
			"Inconclusive", "BaselineMissing", []string{"there is no baseline"}},
		"a baseline of other cells": {against(), six(t, spec(), "x", of(slow)), new(collected(t, spec(func(s *v1alpha1.LatencyBenchmarkSpec) { s.Workload.MessageSizes = []int32{1} }))),
			"Inconclusive", "NoBaseline", nil},
		"a baseline of other variants": {against(), six(t, spec(), "x", of(slow)), new(six(t, spec(func(s *v1alpha1.LatencyBenchmarkSpec) { s.Variants = []v1alpha1.Variant{{Name: "other"}} }),
			"before", map[string]result.Histogram{"other": quick})), "Inconclusive", "NoBaseline", []string{"the baseline does not have this cell"}},
		"results that are gone": {against(), Results{Collection: rounds.New(spec()), Trouble: &verdict.Blocker{Reason: "ResultsMissing", Message: "all gone"}}, before(),
			"Inconclusive", "ResultsMissing", []string{"all gone"}},
		"nothing was measured, for an unknown reason": {against(), collected(t, spec()), before(), "Inconclusive", "NotMeasured", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { check(t, c.criteria, c.candidate, c.baseline, c.outcome, c.reason, c.message...) })
	}
}

// check evaluates criteria and compares the verdict of its first rule.
func check(t *testing.T, criteria v1alpha1.Criteria, candidate Results, baseline *Results, outcome v1alpha1.VerdictOutcome, reason string, message ...string) {
	t.Helper()
	j, err := Evaluate(criteria, candidate, baseline)
	if err != nil {
		t.Fatal(err)
	}
	v := j.Status()
	if v.Outcome != outcome || v.Rules[0].Reason != reason {
		t.Errorf("got %s, %s; want %s, %s: %s", v.Outcome, v.Rules[0].Reason, outcome, reason, v.Message)
	}
	for _, part := range message {
		if !strings.Contains(v.Message, part) {
			t.Errorf("%q does not say %q", v.Message, part)
		}
	}
}

// TestGateAgainstAVariant compares variant b with variant a of the same rounds.
func TestGateAgainstAVariant(t *testing.T) {
	quick, slow := histogram(t, 10_000, 0, 1000), histogram(t, 12_000, 0, 1000)
	criteria := v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "5%"}}}, Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineVariant, Variant: &v1alpha1.ObjectName{Name: "a"}}}
	onload := &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload}
	secondary := &v1alpha1.Network{Type: v1alpha1.NetworkNAD, NAD: &v1alpha1.NADNetwork{NetworkRef: v1alpha1.NetworkRef{Name: "macvlan"}}}
	ofB := func(change func(*result.Stored)) func(*result.Stored) {
		return func(s *result.Stored) {
			if s.Client.Variant == "b" {
				change(s)
			}
		}
	}
	other := ofB(func(s *result.Stored) { s.Client.Evidence.Interface, s.Server.Evidence.Interface = "net1", "net1" })
	cases := map[string]struct {
		b       v1alpha1.Variant
		h       result.Histogram
		change  func(*result.Stored)
		outcome v1alpha1.VerdictOutcome
		reason  string
	}{
		"another way to wait, as quick":           {v1alpha1.Variant{Wait: v1alpha1.WaitSpin}, quick, nil, "Pass", "WithinLimit"},
		"another way to wait, slower":             {v1alpha1.Variant{Wait: v1alpha1.WaitSpin, Muxer: v1alpha1.MuxerPoll}, slow, nil, "Fail", "BeyondLimit"},
		"another network has another interface":   {v1alpha1.Variant{Network: secondary}, quick, other, "Pass", "WithinLimit"},
		"the same network has the same interface": {v1alpha1.Variant{Wait: v1alpha1.WaitSpin}, quick, other, "Inconclusive", "EvidenceDiffers"},
		"another network has the same kernel": {v1alpha1.Variant{Network: secondary}, quick,
			ofB(func(s *result.Stored) { s.Server.Evidence.Kernel = "6.2.0" }), "Inconclusive", "EvidenceDiffers"},
		"another network has the same boot": {v1alpha1.Variant{Network: secondary}, quick,
			ofB(func(s *result.Stored) { s.Server.Evidence.BootID = "another" }), "Inconclusive", "EvidenceDiffers"},
		"packets were captured of one only": {v1alpha1.Variant{Capture: v1alpha1.CaptureServer}, quick,
			ofB(func(s *result.Stored) { s.Server.Evidence.AgentCPU = 4 }), "Inconclusive", "EvidenceDiffers"},
		"another network does not accelerate": {v1alpha1.Variant{Network: secondary}, quick,
			ofB(only(func(c *result.Cell) { c.Accelerated.Client = "Yes" })), "Inconclusive", "Accelerated"},
		"another network with more tool output": {v1alpha1.Variant{Network: secondary}, quick,
			ofB(only(func(c *result.Cell) { c.Accelerated.Client = "Absent" })), "Inconclusive", "EvidenceDiffers"},
		"another acceleration, as quick": {v1alpha1.Variant{Acceleration: onload}, quick,
			ofB(only(func(c *result.Cell) { c.Accelerated = tool.Accelerated{Client: "Yes", Server: "Yes"} })), "Pass", "WithinLimit"},
		"another acceleration, slower": {v1alpha1.Variant{Acceleration: onload}, slow, nil, "Fail", "BeyondLimit"},
		"another acceleration that did not happen": {v1alpha1.Variant{Acceleration: onload}, quick,
			ofB(func(s *result.Stored) { s.Server.Evidence.Paths = resulttest.ThroughKernel(s.Client.Cells) }), "Inconclusive", "NotAccelerated"},
		"another acceleration has the same variables of others": {v1alpha1.Variant{Acceleration: onload}, quick,
			ofB(func(s *result.Stored) { s.Client.Evidence.Facts["env.XLIO_SPEC"] = "latency" }), "Inconclusive", "EvidenceDiffers"},
		"another variable": {v1alpha1.Variant{Env: []v1alpha1.EnvVar{{Name: "XLIO_SPEC", Value: "latency"}}}, quick,
			ofB(func(s *result.Stored) { s.Client.Evidence.Facts["env.XLIO_SPEC"] = "latency" }), "Pass", "WithinLimit"},
		"another variable that was not set": {v1alpha1.Variant{}, quick,
			ofB(func(s *result.Stored) { s.Client.Evidence.Facts["env.XLIO_SPEC"] = "latency" }), "Inconclusive", "EvidenceDiffers"},
		"another MTU of the same network": {v1alpha1.Variant{Network: &v1alpha1.Network{Type: v1alpha1.NetworkPF, PF: &v1alpha1.PFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{MTU: 9000}}}}, quick,
			ofB(func(s *result.Stored) { s.Client.Evidence.MTU, s.Server.Evidence.MTU = 9000, 9000 }), "Pass", "WithinLimit"},
		"another NUMA policy does not move CPUs": {v1alpha1.Variant{NUMAPolicy: v1alpha1.NUMAIgnore}, quick,
			ofB(func(s *result.Stored) { s.Server.Evidence.DeviceNUMANode = 1 }), "Inconclusive", "EvidenceDiffers"},
		"the other NUMA node under one NUMA policy": {v1alpha1.Variant{}, quick,
			ofB(func(s *result.Stored) { s.Server.Evidence.DeviceNUMANode = 1 }), "Inconclusive", "EvidenceDiffers"},
		"no difference is declared, and a cell waits otherwise": {v1alpha1.Variant{}, quick,
			ofB(only(func(c *result.Cell) { c.Wait = v1alpha1.WaitSpin })), "Inconclusive", "EvidenceDiffers"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.b.Name = "b"
			s := spec(func(s *v1alpha1.LatencyBenchmarkSpec) { s.Variants = []v1alpha1.Variant{{Name: "a"}, c.b} })
			var changes []func(*result.Stored)
			if c.change != nil {
				changes = append(changes, c.change)
			}
			check(t, criteria, six(t, s, "x", map[string]result.Histogram{"a": quick, "b": c.h}, changes...), nil, c.outcome, c.reason)
		})
	}
}

// TestGateBetweenNetworks compares a variant over a VF with one over another network, on nodes with two NUMA nodes. Both have the
// same latencies; change changes the evidence of both ends of the baseline, or of the candidate.
func TestGateBetweenNetworks(t *testing.T) {
	const resource, missing = "example.com/vf", ""
	vf := func(mtu int32) v1alpha1.Network {
		return v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: resource, MTU: mtu}}}
	}
	host := v1alpha1.Network{Type: v1alpha1.NetworkHost, Host: &v1alpha1.HostNetwork{Interface: "eth0"}}
	pf := v1alpha1.Network{Type: v1alpha1.NetworkPF, PF: &v1alpha1.PFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "example.com/pf"}}}
	nad := v1alpha1.Network{Type: v1alpha1.NetworkNAD, NAD: &v1alpha1.NADNetwork{NetworkRef: v1alpha1.NetworkRef{Name: "macvlan"}}}
	pod := v1alpha1.Network{Type: v1alpha1.NetworkPod}
	// facts sets keys and values; the empty value is of a key that could not be read.
	facts := func(pairs ...string) func(*result.Evidence) {
		return func(e *result.Evidence) {
			for i := 0; i < len(pairs); i += 2 {
				if e.Facts[pairs[i]] = pairs[i+1]; pairs[i+1] == missing {
					delete(e.Facts, pairs[i])
				}
			}
		}
	}
	cpuOn := func(node int32) func(*result.Evidence) { return func(e *result.Evidence) { e.CPUNUMANode = node } }
	nicOn := func(node int32) func(*result.Evidence) { return func(e *result.Evidence) { e.DeviceNUMANode = node } }
	mtu := func(e *result.Evidence) { e.MTU = 9000 }
	type changes []func(*result.Evidence)
	cases := map[string]struct {
		of                  v1alpha1.Network
		baseline, candidate changes
		// differs is the difference that prevents a verdict; empty if there is none.
		differs string
	}{
		"host, both near the NIC":                           {of: host},
		"host, and its CPUs on the other NUMA node":         {host, changes{cpuOn(0)}, nil, `numa.relation "remote", then "local"`},
		"host, and the CPUs of the VF on the other one":     {host, nil, changes{cpuOn(0)}, `numa.relation "local", then "remote"`},
		"host, whose NIC is not known":                      {host, changes{nicOn(-1)}, nil, `numa.relation absent, then "local"`},
		"host, one NUMA node, whose NIC is not known":       {host, changes{nicOn(-1), facts("numa.nodes", "1")}, changes{facts("numa.nodes", "1")}, ""},
		"macvlan, and its CPUs on the other NUMA node":      {nad, changes{cpuOn(0)}, nil, `numa.relation "remote", then "local"`},
		"the pod network, which has no NIC":                 {of: pod},
		"the pod network, and the CPUs of the VF far":       {pod, nil, changes{cpuOn(0)}, `numa.relation absent, then "remote"`},
		"another firmware variant":                          {host, changes{facts("nic.firmware-variant", "ultra-low-latency")}, nil, `nic.firmware-variant "ultra-low-latency", then "full-feature"`},
		"another firmware variant of macvlan's NIC":         {nad, changes{facts("nic.firmware-variant", "ultra-low-latency")}, nil, "nic.firmware-variant"},
		"macvlan, which cannot read firmware, on the NIC":   {nad, changes{facts("nic.firmware-variant", missing, "nic.firmware", missing)}, nil, ""},
		"macvlan, which cannot read firmware, on another":   {nad, changes{facts("nic.firmware-variant", missing, "nic.port", "0000:d8:00.0")}, nil, `nic.firmware-variant absent, then "full-feature"`},
		"macvlan on a port that is not known":               {nad, changes{facts("nic.firmware-variant", missing, "nic.port", missing)}, nil, `nic.firmware-variant absent, then "full-feature"`},
		"the second port, whose firmware is that of the VF": {pf, changes{facts("nic.port", "0000:3b:00.1", "nic.firmware", missing)}, nil, ""},
		"firmware that the VF cannot report":                {host, changes{facts("nic.firmware", "8.0")}, nil, ""},
		"another speed":                                     {pf, changes{facts("nic.speed", "10000")}, nil, `nic.speed "10000", then "25000"`},
		"the port of the VF, which cannot read FEC":         {host, changes{facts("nic.fec", "rs")}, nil, ""},
		"the second port, and no FEC of the VF":             {pf, changes{facts("nic.fec", "rs", "nic.port", "0000:3b:00.1")}, nil, `nic.fec "rs", then absent`},
		"interrupts moderated otherwise":                    {host, changes{facts("nic.coalesce.rx-usecs", "60")}, changes{facts("nic.coalesce.rx-usecs", "0")}, `nic.coalesce.rx-usecs "60", then "0"`},
		"interrupts moderated, unknown of the VF":           {host, changes{facts("nic.coalesce.rx-usecs", "60")}, nil, ""},
		"another setting of the namespace":                  {host, changes{facts("sysctl.net.ipv4.tcp_timestamps", "0")}, changes{facts("sysctl.net.ipv4.tcp_timestamps", "1")}, "sysctl.net.ipv4.tcp_timestamps"},
		"a setting that pods cannot read":                   {host, changes{facts("sysctl.net.core.busy_poll", "50")}, nil, ""},
		"what another function has":                         {host, changes{facts("nic.function", "PF", "nic.pci-id", "1924:0b03", "nic.driver-version", "5", "nic.channels.rx", "8", "nic.ring.rx", "4096", "nic.feature.rx-lro", "on", "nic.qdisc", "mq")}, nil, ""},
		"an MTU that the spec does not set":                 {host, changes{mtu}, nil, `nic.mtu "9000", then "1500"`},
		"an MTU that the spec sets":                         {vf(9000), changes{mtu}, nil, ""},
		"the MTU of the pod network":                        {pod, changes{mtu}, nil, ""},
	}
	quick := histogram(t, 10_000, 0, 1000)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := spec(func(s *v1alpha1.LatencyBenchmarkSpec) {
				s.Variants = []v1alpha1.Variant{{Name: "a", Network: &c.of}, {Name: "b", Network: new(vf(0))}}
				s.Placement.NUMAPolicy = v1alpha1.NUMAPreferred
			})
			change := func(r *result.Stored) {
				network, changes := c.of, c.baseline
				if r.Client.Variant == "b" {
					network, changes = vf(0), c.candidate
				}
				for _, e := range []*result.Evidence{&r.Client.Evidence, &r.Server.Evidence} {
					e.CPUNUMANode, e.Facts["numa.nodes"] = 1, "0-1"
					if network.Type != v1alpha1.NetworkPod {
						e.DeviceNUMANode, e.Driver = 1, "sfc"
						facts("nic.port", "0000:3b:00.0", "nic.firmware-variant", "full-feature", "nic.speed", "25000")(e)
					}
					for _, change := range changes {
						change(e)
					}
				}
			}
			results := six(t, s, "x", map[string]result.Histogram{"a": quick, "b": quick}, change)
			criteria := v1alpha1.Criteria{
				Rules:    []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "5%"}, Variants: []string{"b"}}},
				Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineVariant, Variant: &v1alpha1.ObjectName{Name: "a"}},
			}
			if c.differs == "" {
				check(t, criteria, results, nil, "Pass", "WithinLimit")
				return
			}
			check(t, criteria, results, nil, "Inconclusive", "EvidenceDiffers", c.differs, "ignoreDifferences")
			key, _, _ := strings.Cut(c.differs, " ")
			if key == keyRelation {
				check(t, criteria, results, nil, "Inconclusive", "EvidenceDiffers", "alignWith")
			}
			criteria.IgnoreDifferences = []string{key}
			check(t, criteria, results, nil, "Pass", "WithinLimit")
			criteria.IgnoreDifferences = []string{"nic.*", "numa.*", "sysctl.*"}
			if mustBeNamed(key) {
				check(t, criteria, results, nil, "Inconclusive", "EvidenceDiffers", c.differs)
			} else {
				check(t, criteria, results, nil, "Pass", "WithinLimit")
			}
		})
	}
}

func TestGateErrors(t *testing.T) {
	fine := six(t, spec(), "x", map[string]result.Histogram{"default": histogram(t, 1000, 0, 1000)})
	criteria := v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "much"}}}}
	if _, err := Evaluate(criteria, fine, nil); err == nil || errors.Is(err, result.ErrCorrupt) {
		t.Errorf("a rule that cannot be read: %v", err)
	}
}
