package cli

import (
	"slices"
	"strings"
	"testing"
)

// What people write who have not read the API: the answer is a line for each error, with the path and what to write instead.
func TestPlanOfGuesses(t *testing.T) {
	const nodes = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"
	const types = "with one of Pod Host VF PF NAD"
	of := func(spec string) string {
		for _, field := range []string{"  workload: {protocols: [TCP], messageSizes: [64], duration: 1s}\n", "  placement: {client: {}, server: {}}\n"} {
			if name, _, _ := strings.Cut(field, ":"); !strings.Contains("\n"+spec, "\n"+name+":") {
				spec += field
			}
		}
		return "apiVersion: tailgate.dev/v1alpha1\nkind: LatencyBenchmark\nmetadata: {name: x, namespace: perf}\nspec:\n  tool: pinger\n" + spec
	}
	rule := func(limit string) string {
		return of("  criteria: {rules: [{" + limit + "}], baseline: {type: Benchmark, benchmark: {name: before}}}\n")
	}
	gate := "apiVersion: tailgate.dev/v1alpha1\nkind: LatencyGate\nmetadata: {name: x}\nspec:\n  namespace: gates\n  selector: {matchLabels: {a: b}}\n  dryRun: true\n" +
		"  template: {spec: {tool: pinger, workload: {duration: 1s}, placement: {client: {}, server: {}}, criteria: {rules: [{metric: p50, max: 5ms}]}}}\n"
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"a flat workload": {of("  protocol: TCP\n  messageSize: 64\n  duration: 30s\n  iterations: 5\n"), []string{
			"spec.duration: unknown field; write spec.workload.duration", "spec.iterations: unknown field; write rounds: 6",
			"spec.messageSize: unknown field; write workload: {messageSizes: [64]}", "spec.protocol: unknown field; write workload: {protocols: [TCP]}"}},
		"flat lists": {of("  protocols: [UDP]\n  messageSizes: [64]\n"), []string{
			"spec.messageSizes: unknown field; write spec.workload.messageSizes", "spec.protocols: unknown field; write spec.workload.protocols"}},
		"flat nodes": {of("  client: {nodeName: a}\n  server: {nodeName: b}\n"), []string{
			"spec.client: unknown field; write spec.placement.client", "spec.server: unknown field; write spec.placement.server"}},
		"names of nodes": {of("  clientNode: a\n  serverNode: b\n"), []string{
			"spec.clientNode: unknown field; write spec.placement.client", "spec.serverNode: unknown field; write spec.placement.server"}},
		"onload":                        {of("  onload: true\n"), []string{"spec.onload: unknown field; write acceleration: {type: Onload}"}},
		"resources":                     {of("  resources: {limits: {cpu: 2}}\n"), []string{"spec.resources: unknown field; write placement: {cpus: 2, memory: 512Mi}"}},
		"a network by its name":         {of("  network: sf-vf\n"), []string{"spec.network: sf-vf has the type string; write {type: TYPE} " + types}},
		"a type of network":             {of("  network: Host\n"), []string{"spec.network: Host has the type string; write {type: Host}"}},
		"acceleration":                  {of("  acceleration: Onload\n"), []string{"spec.acceleration: Onload has the type string; write {type: Onload}"}},
		"labels of a selector":          {of("  placement: {client: {nodeSelector: {rack: r1}}, server: {}}\n"), []string{"spec.placement.client.nodeSelector.rack: unknown field; write matchLabels: {rack: VALUE}"}},
		"SR-IOV":                        {of("  network: {type: SRIOV}\n"), []string{`spec.network.type: Unsupported value: "SRIOV": supported values: "Pod", "Host", "VF", "PF", "NAD"`}},
		"a protocol in lower case":      {of("  workload: {protocols: [udp], duration: 1s}\n"), []string{`spec.workload.protocols[0]: Unsupported value: "udp": supported values: "TCP", "UDP", "Multicast"`}},
		"a number of seconds":           {of("  workload: {duration: 30}\n"), []string{"spec.workload.duration: 30 has the type integer; must be a duration from 100ms to 12h, such as 3s"}},
		"a duration without a unit":     {of("  workload: {duration: '30'}\n"), []string{`spec.workload.duration: Invalid value: "30": must be a duration from 100ms to 12h, such as 3s`}},
		"a duration of another name":    {of("  workload: {durationSeconds: 30}\n"), []string{"spec.workload.durationSeconds: unknown field; write spec.workload.duration"}},
		"a network by a text":           {of("  network: {type: VF, vf: {networkRef: sf-vf, resourceName: amd.com/sf_vf}}\n"), []string{"spec.network.vf.networkRef: sf-vf has the type string; write {name: sf-vf}"}},
		"the network of no type":        {of("  network: {type: VF, resourceName: amd.com/sf_vf}\n"), []string{"spec.network.resourceName: unknown field; write spec.network.pf.resourceName or spec.network.vf.resourceName"}},
		"a percentage without its sign": {rule("metric: p99, maxIncrease: 5"), []string{`spec.criteria.rules[0].maxIncrease: Invalid value: "5" has no percent sign; write 5%`}},
		"a latency without a unit":      {rule("metric: p99, max: 10"), []string{`spec.criteria.rules[0].max: Invalid value: "10" has no unit; write 10us`}},
		"a fraction":                    {rule("metric: throughput, min: 2.5"), []string{"spec.criteria.rules[0].min: 2.5 has the type number; write a whole number, or a text such as 10us, 9G or 5%"}},
		"a limit of another name":       {rule("metric: p99, maxLatency: 10us"), []string{"spec.criteria.rules[0].maxLatency: unknown field; write spec.criteria.rules[0].max"}},
		"nothing that is like it":       {of("  workload: {duration: 1s, zeal: 5}\n"), []string{"spec.workload.zeal: unknown field; write one of duration, lossAfter, messageSizes, "}},
		"a gate": {gate, []string{"spec.dryRun: unknown field; write enforcement: {mode: Observe}",
			"spec.selector: unknown field; write nodeSelector: {matchLabels: {KEY: VALUE}}", "spec.nodeSelector: Required value"}},
		"errors of both kinds": {of("  protocols: [UDP]\n  acceleration: Onload\n"), []string{
			"spec.protocols: unknown field; write spec.workload.protocols", "spec.acceleration: Onload has the type string; write {type: Onload}"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := written(t, c.file)
			code, stdout, stderr := run("plan", "-f", file, "--nodes", written(t, nodes))
			lines := slices.Collect(strings.Lines(stderr))
			if code != 1 || stdout != "" || len(lines) != len(c.want) {
				t.Fatalf("exit code %d, it printed %q and said %q; want 1, nothing and %d lines", code, stdout, stderr, len(c.want))
			}
			for i, want := range c.want {
				if !strings.HasPrefix(lines[i], "kubectl tailgate: "+file+": "+want) {
					t.Errorf("it said %q, want %q", lines[i], want)
				}
			}
		})
	}
}
