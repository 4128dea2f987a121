package integration

import (
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// smallest is a manifest with only the required fields. The specs change it below spec, as YAML, so that no
// default of a Go type hides anything.
const smallest = `
apiVersion: tailgate.dev/v1alpha1
kind: LatencyBenchmark
metadata: {name: smallest}
spec:
  tool: sockperf
  placement: {client: {}, server: {}}
`

// changesOfSpec holds other values for the fields that cannot change once a spec was accepted.
var changesOfSpec = map[string]any{
	"tool": "pinger", "workload": map[string]any{"duration": "4s"}, "rounds": int64(8), "maxRounds": int64(30),
	"placement": map[string]any{"client": map[string]any{}, "server": map[string]any{}, "cpus": int64(2)},
	"network":   map[string]any{"type": "Host"}, "variants": []any{map[string]any{"name": "a"}}, "capture": "Server",
	"latencyType": "RTT", "highestPercentile": "p99", "headline": map[string]any{"protocol": "TCP"},
	"acceleration": map[string]any{"type": "Onload"}, "pods": map[string]any{"runtimeClassName": "fast"},
	"notes": []any{map[string]any{"name": "bios", "value": "low latency"}},
}

// manifest returns the smallest manifest with top-level fields of its spec replaced; null removes a field.
func manifest(namespace, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(smallest), &object.Object)).To(Succeed())
	object.SetNamespace(namespace)
	var changes map[string]any
	Expect(yaml.Unmarshal([]byte(spec), &changes)).To(Succeed())
	fields := object.Object["spec"].(map[string]any)
	for name, value := range changes {
		if value == nil {
			delete(fields, name)
		} else {
			fields[name] = value
		}
	}
	return object
}

var _ = Describe("The API", func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	manySizes := "workload: {messageSizes: ["
	for i := range 33 {
		manySizes += strconv.Itoa(64+i) + ", "
	}
	manySizes += "]}"
	manyLabels := "placement: {server: {}, client: {nodeSelector: {matchLabels: {"
	for i := range 17 {
		manyLabels += "label-" + strconv.Itoa(i) + ": x, "
	}
	manyLabels += "}}}}"

	criteria := func(fields string) string { return "criteria: {" + fields + "}" }
	// rule returns criteria with rules that may compare with a baseline.
	rule := func(rules string) string {
		return criteria("rules: [" + rules + "], baseline: {benchmarkRef: {name: before}}")
	}

	DescribeTable("refuses, naming the field and what to do,",
		func(ctx SpecContext, spec string, parts ...string) {
			err := k8s.Create(ctx, manifest(namespace, spec), client.FieldValidation("Strict"))
			Expect(err).To(HaveOccurred())
			for _, part := range parts {
				Expect(err.Error()).To(ContainSubstring(part))
			}
		},
		Entry("an unknown tool", "tool: iperf3", "spec.tool", "supported values", "sockperf"),
		Entry("no tool", "tool: null", "spec.tool", "Required value"),
		Entry("size 0 with TCP for sfnt-pingpong", "{tool: sfnt-pingpong, workload: {messageSizes: [0]}}", "spec.workload.messageSizes", "use sizes from 1, or UDP alone"),
		Entry("size 13 for sockperf", "workload: {messageSizes: [64, 13]}", "spec.workload.messageSizes", "14 to 65507"),
		Entry("size 0 for pinger", "{tool: pinger, workload: {protocols: [UDP], messageSizes: [0]}}", "spec.workload.messageSizes", "at least 1 byte"),
		Entry("size 65508 for sockperf", "workload: {messageSizes: [65508]}", "spec.workload.messageSizes", "14 to 65507", "use pinger or sfnt-pingpong"),
		Entry("size 65508 with UDP", "{tool: sfnt-pingpong, workload: {protocols: [UDP], messageSizes: [65508]}}", "spec.workload.messageSizes", "at most 65507", "TCP alone"),
		Entry("a negative size", "{tool: sfnt-pingpong, workload: {messageSizes: [-1]}}", "spec.workload.messageSizes[0]", "greater than or equal to 0"),
		Entry("size 65537", "{tool: sfnt-pingpong, workload: {messageSizes: [65537]}}", "spec.workload.messageSizes[0]", "less than or equal to 65536"),
		Entry("a size twice", "workload: {messageSizes: [64, 64]}", "spec.workload.messageSizes[1]", "Duplicate value: 64"),
		Entry("33 sizes", manySizes, "spec.workload.messageSizes", "at most 32 items"),
		Entry("no size", "workload: {messageSizes: []}", "spec.workload.messageSizes", "at least 1 item"),
		Entry("four protocols", "workload: {protocols: [TCP, UDP, Multicast, SCTP]}", "spec.workload.protocols", "at most 3 items"),
		Entry("a protocol twice", "workload: {protocols: [TCP, TCP]}", "spec.workload.protocols[1]", "Duplicate value"),
		Entry("an unknown protocol", "workload: {protocols: [SCTP]}", "spec.workload.protocols[0]", "supported values", "TCP", "UDP"),
		Entry("no round", "rounds: 0", "spec.rounds", "greater than or equal to 1"),
		Entry("101 rounds", "rounds: 101", "spec.rounds", "less than or equal to 100"),
		Entry("no CPU", "placement: {client: {}, server: {}, cpus: 0}", "spec.placement.cpus", "greater than or equal to 1"),
		Entry("65 CPUs", "placement: {client: {}, server: {}, cpus: 65}", "spec.placement.cpus", "less than or equal to 64"),
		Entry("little memory", "placement: {client: {}, server: {}, memory: 1Mi}", "spec.placement.memory", "from 128Mi to 64Gi"),
		Entry("much memory", "placement: {client: {}, server: {}, memory: 65Gi}", "spec.placement.memory", "from 128Mi to 64Gi"),
		Entry("memory as a number too small", "placement: {client: {}, server: {}, memory: 512}", "spec.placement.memory", "from 128Mi to 64Gi"),
		Entry("an invalid amount of memory", "placement: {client: {}, server: {}, memory: plenty}", "spec.placement.memory", "such as 512Mi"),
		Entry("a duration without a unit", `workload: {duration: "3"}`, "spec.workload.duration", "such as 3s"),
		Entry("a negative duration", "workload: {duration: -1s}", "spec.workload.duration", "from 100ms to 12h"),
		Entry("a long duration", "workload: {duration: 13h}", "spec.workload.duration", "from 100ms to 12h"),
		Entry("a short duration", "workload: {duration: 99ms}", "spec.workload.duration", "from 100ms to 12h"),
		Entry("a duration of unknown unit", "workload: {duration: 5x}", "spec.workload.duration", "such as 3s"),
		Entry("a duration as a number", "workload: {duration: 3}", "spec.workload.duration", "string"),
		Entry("a long warm-up", "workload: {warmup: 61s}", "spec.workload.warmup", "from 0s to 60s"),
		Entry("a negative warm-up", "workload: {warmup: -1s}", "spec.workload.warmup", "from 0s to 60s"),
		Entry("an alignment with a resource without a prefix", "network: {type: Host, host: {alignWith: sf_vf}}", "spec.network.host.alignWith", "resource name with its prefix"),
		Entry("an alignment of a variant with no resource", "variants: [{name: a, network: {type: NAD, nad: {networkRef: {name: net}, alignWith: ''}}}]", "spec.variants[0].network.nad.alignWith", "at least 3 chars"),
		Entry("an alignment of the pod network", "network: {type: Pod, host: {alignWith: amd.com/sf_vf}}", "spec.network", "host belongs to type Host"),
		Entry("an alignment of a VF", "network: {type: VF, vf: {networkRef: {name: net}, resourceName: amd.com/sf_vf, alignWith: amd.com/sf_vf}}", `unknown field "spec.network.vf.alignWith"`),
		Entry("an unknown network type", "network: {type: SRIOV}", "spec.network.type", "supported values", "NAD"),
		Entry("a network reference of type Pod", "network: {type: Pod, nad: {networkRef: {name: sf-vf}}}", "spec.network", "nad belongs to type NAD", "remove nad"),
		Entry("a network without a type", "network: {vf: {resourceName: amd.com/sf_vf, networkRef: {name: net}}}", "spec.network.type", "Required value"),
		Entry("an interface of type Pod", "network: {type: Pod, host: {interface: eth0}}", "spec.network", "host belongs to type Host"),
		Entry("the settings of two types", "network: {type: VF, vf: {resourceName: amd.com/sf_vf, networkRef: {name: net}}, pf: {resourceName: amd.com/sf_pf, networkRef: {name: net}}}", "spec.network", "pf belongs to type PF", "remove pf"),
		Entry("an attached network without a reference", "network: {type: NAD}", "spec.network", "nad belongs to type NAD, which requires it: give nad.networkRef"),
		Entry("a reference without a name", "network: {type: NAD, nad: {networkRef: {}}}", "spec.network.nad.networkRef.name", "Required value"),
		Entry("a resource without its prefix", "network: {type: VF, vf: {networkRef: {name: net}, resourceName: sf_vf}}", "spec.network.vf.resourceName", "with its prefix", "such as openshift.io/sf_x2_vf"),
		Entry("a resource of type Pod", "network: {type: Pod, vf: {resourceName: amd.com/sf_vf, networkRef: {name: net}}}", "spec.network", "vf belongs to type VF"),
		Entry("a VF without a resource", "network: {type: VF, vf: {networkRef: {name: net}}}", "spec.network.vf.resourceName", "Required value"),
		Entry("a PF without a network", "network: {type: PF, pf: {resourceName: amd.com/sf_pf}}", "spec.network.pf", "exactly one of networkRef", "and ipam"),
		Entry("a VF with two networks", "network: {type: VF, vf: {resourceName: amd.com/sf_vf, networkRef: {name: net}, ipam: {type: Static, range: 192.168.40.0/24}}}", "spec.network.vf", "exactly one"),
		Entry("ipam of type NAD", "network: {type: NAD, nad: {networkRef: {name: net}, ipam: {type: Static, range: 192.168.40.0/24}}}", "spec.network.nad.ipam", "unknown field"),
		Entry("an MTU of an existing network", "network: {type: VF, vf: {resourceName: amd.com/sf_vf, networkRef: {name: net}, mtu: 9000}}", "spec.network.vf", "mtu is for networks that the operator creates"),
		Entry("a VLAN of a PF", "network: {type: PF, pf: {resourceName: amd.com/sf_pf, ipam: {type: Static, range: 192.168.40.0/24}, vlan: 40}}", "spec.network.pf.vlan", "unknown field"),
		Entry("a range that is an address", "network: {type: VF, vf: {resourceName: amd.com/sf_vf, ipam: {type: Static, range: 192.168.40.1/24}}}", "spec.network.vf.ipam.range", "such as 192.168.40.0/24"),
		Entry("a range for one address", "network: {type: VF, vf: {resourceName: amd.com/sf_vf, ipam: {type: Static, range: 192.168.40.0/31}}}", "spec.network.vf.ipam.range", "room for two addresses"),
		Entry("a start out of the range", "network: {type: VF, vf: {resourceName: amd.com/sf_vf, ipam: {type: Whereabouts, range: 192.168.40.0/24, rangeStart: 192.168.41.1}}}", "spec.network.vf.ipam", "rangeStart must be an address of range"),
		Entry("an unknown profile", "acceleration: {type: Onload, onload: {profile: fast}}", "spec.acceleration.onload.profile", "supported values", "latency"),
		Entry("two profiles", "acceleration: {type: Onload, onload: {profile: latency, profileRef: {name: mine}}}", "spec.acceleration.onload", "not both"),
		Entry("a profile of the kernel", "acceleration: {type: Kernel, onload: {profile: latency}}", "spec.acceleration", "onload belongs to type Onload"),
		Entry("a note that controls a terminal", `notes: [{name: bios, value: "\e[2J"}]`, "spec.notes[0].value", "should match"),
		Entry("a note with a long value", "notes: [{name: bios, value: "+strings.Repeat("x", 257)+"}]", "spec.notes[0].value", "256"),
		Entry("two notes of a name", "notes: [{name: bios, value: a}, {name: bios, value: b}]", "spec.notes[1]", "Duplicate value"),
		Entry("a variable that loads a library", "pods: {env: [{name: LD_PRELOAD, value: x.so}]}", "spec.pods.env[0].name", "should match"),
		Entry("an annotation of anybody", "pods: {annotations: {example.com/x: 'yes'}}", "spec.pods", "only CRI-O's"),
		Entry("a priority class of the system", "pods: {priorityClassName: system-node-critical}", "spec.pods", "create your own"),
		Entry("huge pages of another size", "pods: {hugepages: {size: 4Mi, amount: 64Mi}}", "spec.pods.hugepages.size", "supported values"),
		Entry("a node by name and by labels", "placement: {client: {nodeName: a, nodeSelector: {matchLabels: {rack: '1'}}}, server: {}}", "spec.placement.client", "only one of"),
		Entry("half a huge page", "pods: {hugepages: {size: 2Mi, amount: 63Mi}}", "spec.pods.hugepages", "a multiple of size"),
		Entry("a node by name and by names", "placement: {client: {nodeName: a, nodeNames: [a, b]}, server: {}}", "spec.placement.client", "only one of"),
		Entry("no node by names", "placement: {client: {nodeNames: []}}", "spec.placement.client.nodeNames", "at least 1"),
		Entry("a matrix as baseline", criteria("rules: [{metric: p99, maxIncrease: 5%}], baseline: {matrixRef: {name: m}}"), "spec.criteria.baseline.matrixRef", "only the template of a LatencyMatrix"),
		Entry("a priority beyond its bounds", "priority: 1001", "spec.priority", "less than or equal to 1000"),
		Entry("a rate with sfnt-pingpong", "{tool: sfnt-pingpong, workload: {ratesPerSecond: [23000]}}", "spec.workload.ratesPerSecond", "pinger, sockperf and sfnt-stream"),
		Entry("a rate with netperf", "{tool: netperf, workload: {ratesPerSecond: [23000]}}", "spec.workload.ratesPerSecond", "pinger, sockperf and sfnt-stream"),
		Entry("a rate of 0", "workload: {ratesPerSecond: [0]}", "spec.workload.ratesPerSecond[0]", "greater than or equal to 1"),
		Entry("sfnt-stream without a rate", "{tool: sfnt-stream, workload: {protocols: [UDP]}, placement: {client: {}, server: {}, cpus: 2}}", "spec.workload.ratesPerSecond", "give at least one"),
		Entry("TCP with sfnt-stream", "{tool: sfnt-stream, workload: {ratesPerSecond: [1000]}, placement: {client: {}, server: {}, cpus: 2}}", "spec.workload.protocols", "UDP only", "pinger or sockperf"),
		Entry("23 bytes for sfnt-stream", "{tool: sfnt-stream, workload: {protocols: [UDP], messageSizes: [23], ratesPerSecond: [1000]}, placement: {client: {}, server: {}, cpus: 2}}", "spec.workload.messageSizes", "at least 24"),
		Entry("one CPU for sfnt-stream", "{tool: sfnt-stream, workload: {protocols: [UDP], ratesPerSecond: [1000]}, placement: {client: {}, server: {}, cpus: 1}}", "spec.placement.cpus", "two CPUs"),
		Entry("one CPU for the client of sfnt-stream", "{tool: sfnt-stream, workload: {protocols: [UDP], ratesPerSecond: [1000]}, placement: {client: {cpus: 1}, server: {}, cpus: 2}}", "spec.placement.cpus", "two CPUs"),
		Entry("too many CPUs of one endpoint", "placement: {server: {cpus: 65}}", "spec.placement.server.cpus", "less than or equal to 64"),
		Entry("too little memory of one endpoint", "placement: {client: {memory: 64Mi}}", "spec.placement.client.memory", "from 128Mi to 64Gi"),
		Entry("an unknown NUMA policy of a variant", "variants: [{name: a, numaPolicy: Maybe}]", "spec.variants[0].numaPolicy", "supported values"),
		Entry("a stream with pinger", "{tool: pinger, workload: {streams: [{protocol: TCP, messageSize: 65536}]}}", "spec.workload.streams", "netperf and sockperf"),
		Entry("a stream of multicast", "{tool: netperf, workload: {streams: [{protocol: Multicast, messageSize: 64}]}}", "spec.workload.streams[0]", "TCP or UDP"),
		Entry("a stream of datagrams that are too large", "{tool: netperf, workload: {streams: [{protocol: UDP, messageSize: 65508}]}}", "spec.workload.streams[0]", "at most 65507"),
		Entry("p99.99 with netperf", "{tool: netperf, highestPercentile: p99.99}", "spec.highestPercentile", "reports only p50, p90 and p99", "pinger"),
		Entry("an unknown percentile", "highestPercentile: p98", "spec.highestPercentile", "supported values", "p99.9999"),
		Entry("an unknown way to wait", "workload: {wait: Sleep}", "spec.workload.wait", "supported values", "Spin"),
		Entry("an unknown muxer", "workload: {muxer: Kqueue}", "spec.workload.muxer", "supported values", "Epoll"),
		Entry("a loss of TCP", "{tool: pinger, workload: {lossAfter: 100ms}}", "spec.workload.lossAfter", "for UDP and Multicast"),
		Entry("a loss of another tool", "{tool: sockperf, workload: {protocols: [UDP], lossAfter: 100ms}}", "spec.workload.lossAfter", "only pinger has this setting"),
		Entry("a loss that takes too long", "{tool: pinger, workload: {protocols: [UDP], lossAfter: 11s}}", "spec.workload.lossAfter", "from 10ms to 10s"),
		Entry("a group that is not multicast", "workload: {protocols: [Multicast], multicastGroup: 192.0.2.1}", "spec.workload.multicastGroup", "such as 239.192.0.1"),
		Entry("a group that is no address", "workload: {protocols: [Multicast], multicastGroup: 239.1.1.999}", "spec.workload.multicastGroup", "such as 239.192.0.1"),
		Entry("two variants of one name", "variants: [{name: a}, {name: a}]", "spec.variants[1]", "Duplicate value"),
		Entry("a variant without a name", "variants: [{wait: Spin}]", "spec.variants[0].name", "Required value"),
		Entry("a variant whose name is no label", "variants: [{name: VF}]", "spec.variants[0].name", "should match"),
		Entry("a variant with half a network", "variants: [{name: vf, network: {type: NAD}}]", "spec.variants[0].network", "nad belongs to type NAD"),
		Entry("401 runs", "{rounds: 58, variants: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}, {name: g}]}", "spec.rounds", "at most 400"),
		Entry("an unknown latency type", "latencyType: OneWay", "spec.latencyType", "supported values", "HalfRTT"),
		Entry("criteria without rules", criteria("rules: []"), "spec.criteria.rules", "at least 1 item"),
		Entry("a rule without a limit", rule("{metric: p99}"), "spec.criteria.rules[0]", "exactly one of max, min, maxIncrease and maxDecrease"),
		Entry("a rule with two limits", rule("{metric: p99, maxIncrease: 5%, max: 2us}"), "spec.criteria.rules[0]", "a separate rule for each limit"),
		Entry("a rule on the maximum", rule("{metric: max, max: 2us}"), "spec.criteria.rules[0]", "cannot be judged", "p99.999"),
		Entry("a rule on an unknown metric", rule("{metric: p98, max: 2us}"), "spec.criteria.rules[0].metric", "supported values", "p99.9"),
		Entry("a limit beyond a minute", rule("{metric: p99, max: 61s}"), "spec.criteria.rules[0].max", "from 1ns to 60s"),
		Entry("a limit of nothing", rule("{metric: p99, max: 0us}"), "spec.criteria.rules[0].max", "from 1ns to 60s"),
		Entry("a limit of half a nanosecond", rule("{metric: p99, max: 0.5ns}"), "spec.criteria.rules[0].max", "from 1ns to 60s"),
		Entry("a limit of very many digits", rule("{metric: p99, max: 99999999999999999999s}"), "spec.criteria.rules[0].max", "from 1ns to 60s"),
		Entry("a limit without a unit", rule("{metric: p99, max: '5'}"), "spec.criteria.rules[0].max", `"5" has no unit; write 5us`),
		Entry("a latency limit in percent", rule("{metric: p99, max: 5%}"), "spec.criteria.rules[0].max", "such as 10us"),
		Entry("a tolerance of four decimals", rule("{metric: p99, maxIncrease: 5.1234%}"), "spec.criteria.rules[0].maxIncrease", "at most three decimals"),
		Entry("a tolerance without its sign", rule("{metric: p99, maxIncrease: '5'}"), "spec.criteria.rules[0].maxIncrease", `"5" has no percent sign; write 5%`),
		Entry("a limit of lost in time", rule("{metric: lost, max: 1us}"), "spec.criteria.rules[0].max", "not a number of messages", "such as 5"),
		Entry("a tolerance of lost in percent", rule("{metric: lost, maxIncrease: 5%}"), "spec.criteria.rules[0].maxIncrease", "not a number of messages", "such as 5"),
		Entry("a negative number of messages", rule("{metric: lost, max: -1}"), "spec.criteria.rules[0].max", "not a number of messages from 0"),
		Entry("a throughput of nothing", rule("{metric: throughput, min: 0}"), "spec.criteria.rules[0].min", "from 1 to 999999999999999"),
		Entry("half a bit per second", rule("{metric: throughput, min: 0.5}"), "spec.criteria.rules[0].min", "must be of type integer,string"),
		Entry("a throughput in another spelling", rule("{metric: throughput, min: 9Gbps}"), "spec.criteria.rules[0].min", "not a number of bits per second", "such as 9G"),
		Entry("a throughput that may vanish", rule("{metric: throughput, maxDecrease: 100%}"), "spec.criteria.rules[0].maxDecrease", "below 100%"),
		Entry("a throughput that may not grow", rule("{metric: throughput, maxIncrease: 5%}"), "spec.criteria.rules[0]", "throughput takes min or maxDecrease"),
		Entry("a latency that may not fall", rule("{metric: p99, maxDecrease: 5%}"), "spec.criteria.rules[0]", "every other metric takes max or maxIncrease"),
		Entry("a latency with a minimum", rule("{metric: p99, min: 9G}"), "spec.criteria.rules[0]", "every other metric takes max or maxIncrease"),
		Entry("a tolerance without a baseline", criteria("rules: [{metric: p99, maxIncrease: 5%}]"), "spec.criteria", "name one by benchmarkRef, variant, accepted or export"),
		Entry("differences from no baseline", criteria("rules: [{metric: p99, max: 5us}], ignoreDifferences: [kernel.release]"), "spec.criteria", "ignoreDifferences: applies only to a baseline"),
		Entry("all differences ignored", criteria("rules: [{metric: p99, max: 5us}], baseline: {benchmarkRef: {name: b}}, ignoreDifferences: ['*']"), "spec.criteria.ignoreDifferences[0]", "should match"),
		Entry("a baseline that names nothing", criteria("rules: [{metric: p99, max: 5us}], baseline: {}"), "spec.criteria.baseline", "exactly one of benchmarkRef, variant, accepted, matrixRef and export"),
		Entry("two baselines", "{variants: [{name: a}, {name: b}], criteria: {rules: [{metric: p99, max: 5us}], baseline: {variant: a, benchmarkRef: {name: b}}}}", "spec.criteria.baseline", "exactly one"),
		Entry("itself as baseline", criteria("rules: [{metric: p99, maxIncrease: 5%}], baseline: {benchmarkRef: {name: smallest}}"), "spec.criteria.baseline.benchmarkRef", "its own baseline"),
		Entry("a baseline with a path as its name", criteria("rules: [{metric: p99, maxIncrease: 5%}], baseline: {benchmarkRef: {name: perf/before}}"), "spec.criteria.baseline.benchmarkRef.name", "should match"),
		Entry("a gate with a path as its name", criteria("rules: [{metric: p99, maxIncrease: 5%}], baseline: {accepted: {gateName: a/b}}"), "spec.criteria.baseline.accepted.gateName", "should match"),
		Entry("a network with its namespace in the name", "network: {type: NAD, nad: {networkRef: {name: networks/low}}}", "spec.network.nad.networkRef.name", "should match"),
		Entry("a network of an impossible namespace", "network: {type: NAD, nad: {networkRef: {name: low, namespace: ..}}}", "spec.network.nad.networkRef.namespace", "should match"),
		Entry("a profile with a path as its name", "acceleration: {type: Onload, onload: {profileRef: {name: ../low}}}", "spec.acceleration.onload.profileRef.name", "should match"),
		Entry("a RuntimeClass with a path as its name", "pods: {runtimeClassName: a/b}", "spec.pods.runtimeClassName", "should match"),
		Entry("a PriorityClass in capitals", "pods: {priorityClassName: High}", "spec.pods.priorityClassName", "should match"),
		Entry("an unknown variant as baseline", "{variants: [{name: a}], criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {variant: b}}}", "spec.criteria.baseline.variant", "one of spec.variants"),
		Entry("a variant as baseline without variants", criteria("rules: [{metric: p99, maxIncrease: 5%}], baseline: {variant: default}"), "spec.criteria.baseline.variant", "one of spec.variants"),
		Entry("a rule on an unknown variant", "{variants: [{name: a}], criteria: {rules: [{metric: p99, max: 5us, variants: [a, b]}]}}", "spec.criteria.rules", "among spec.variants"),
		Entry("401 runs after an extension", "{rounds: 10, maxRounds: 100, variants: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}]}", "spec.maxRounds", "at most 400"),
		Entry("fewer rounds at the second look than at the first", "{rounds: 10, maxRounds: 9}", "spec.maxRounds", "must be at least spec.rounds"),
		Entry("an unknown end that captures", "capture: Client", "spec.capture", "supported values"),
		Entry("a capture as a boolean", "capture: true", "spec.capture", "must be of type string"),
		Entry("a headline of another protocol", "headline: {protocol: UDP}", "spec.headline.protocol", "one of workload.protocols"),
		Entry("a headline of another size", "{headline: {messageSize: 1024}, workload: {messageSizes: [64, 256]}}", "spec.headline.messageSize", "one of workload.messageSizes"),
		Entry("a headline other than the default size", "headline: {messageSize: 1024}", "spec.headline.messageSize", "64 if unset"),
		Entry("a headline of streams", "{tool: netperf, headline: {}, workload: {streams: [{protocol: TCP, messageSize: 64}]}}", "spec.headline.messageSize", "only streams"),
		Entry("a headline at a rate of ping-pong", "headline: {ratePerSecond: 1000}", "spec.headline.ratePerSecond", "one of workload.ratesPerSecond"),
		Entry("an empty node selector", "placement: {client: {nodeSelector: {}}, server: {}}", "spec.placement.client.nodeSelector", "to select any node, remove nodeSelector"),
		Entry("a node selector with an unknown operator", "placement: {client: {nodeSelector: {matchExpressions: [{key: rack, operator: Equals, values: [a]}]}}}", "spec.placement.client.nodeSelector", "operator must be In or NotIn"),
		Entry("a node selector without values", "placement: {server: {nodeSelector: {matchExpressions: [{key: rack, operator: NotIn}]}}}", "spec.placement.server.nodeSelector", "1 to 64 values"),
		Entry("17 labels", manyLabels, "spec.placement.client.nodeSelector", "at most 16"),
	)

	It("refuses a name of 53 characters", func(ctx SpecContext) {
		object := manifest(namespace, "{}")
		object.SetName(strings.Repeat("x", 53))
		err := k8s.Create(ctx, object)
		Expect(err).To(MatchError(And(ContainSubstring("metadata.name"), ContainSubstring("at most 52 characters"))))
		object.SetName(strings.Repeat("x", 52))
		Expect(k8s.Create(ctx, object)).To(Succeed())
	})

	It("refuses names of benchmark and variant that make pods' labels too long", func(ctx SpecContext) {
		object := manifest(namespace, "variants: [{name: "+strings.Repeat("v", 20)+"}]")
		object.SetName(strings.Repeat("x", 38))
		Expect(k8s.Create(ctx, object)).To(MatchError(And(ContainSubstring("spec.variants"), ContainSubstring("at most 57 characters"))))
		object.SetName(strings.Repeat("x", 37))
		Expect(k8s.Create(ctx, object)).To(Succeed())
	})

	DescribeTable("takes",
		func(ctx SpecContext, spec string) { Expect(k8s.Create(ctx, manifest(namespace, spec))).To(Succeed()) },
		Entry("size 0 with UDP for sfnt-pingpong", "{tool: sfnt-pingpong, workload: {protocols: [UDP], messageSizes: [0]}}"),
		Entry("sizes 1 and 65536 with TCP for pinger", "{tool: pinger, workload: {messageSizes: [1, 65536]}}"),
		Entry("size 65536 with TCP for sfnt-pingpong", "{tool: sfnt-pingpong, workload: {messageSizes: [1, 65536]}}"),
		Entry("the smallest and the largest size for sockperf", "workload: {protocols: [TCP, UDP], messageSizes: [14, 65507]}"),
		Entry("durations at their bounds", "workload: {duration: 12h0m0s, warmup: 0s}"),
		Entry("a compound duration", "workload: {duration: 1m1.5s}"),
		Entry("memory as a number", "placement: {client: {}, server: {}, memory: 536870912}"),
		Entry("memory at its bounds", "placement: {client: {}, server: {}, memory: 64Gi}"),
		Entry("a resource with hyphens and underscores", "network: {type: VF, vf: {networkRef: {name: net, namespace: networks}, resourceName: openshift.io/x2522-vf_0}}"),
		Entry("a network that the operator makes", "network: {type: VF, vf: {resourceName: amd.com/sf_vf, ipam: {type: Whereabouts, range: 'fd00:40::/64', rangeStart: 'fd00:40::10'}, mtu: 9000, vlan: 40}}"),
		Entry("the host's network beside a device", "network: {type: Host, host: {alignWith: openshift.io/sf_x2_vf}}"),
		Entry("an attached network beside a device", "network: {type: NAD, nad: {networkRef: {name: macvlan}, alignWith: openshift.io/sf_x2_vf}}"),
		Entry("the host's interface", "network: {type: Host, host: {interface: enp59s0f0np0}}"),
		Entry("Onload", "{acceleration: {type: Onload, onload: {profile: latency}}, variants: [{name: kernel, acceleration: {type: Kernel}}, {name: image, acceleration: {type: Onload, onload: {profileRef: {name: mine}, resourceName: example.com/onload, source: Image}}, env: [{name: EF_POLL_USEC, value: '-1'}]}]}"),
		Entry("all that a template has", "pods: {annotations: {irq-load-balancing.crio.io: disable, cpu-quota.crio.io: disable}, runtimeClassName: performance-x, priorityClassName: low, tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists}], hugepages: {size: 2Mi, amount: 64Mi}, env: [{name: EF_POLL_USEC, value: '100000'}]}"),
		Entry("nodes by names", "placement: {client: {nodeNames: [a, b]}, numaPolicy: Preferred}"),
		Entry("endpoints that differ", "{tool: sfnt-stream, workload: {protocols: [UDP], ratesPerSecond: [1000]}, placement: {cpus: 1, client: {nodeName: a, cpus: 2, memory: 1Gi, numaPolicy: Ignore, tolerations: [{key: gpu, operator: Exists}]}, server: {}}, variants: [{name: near, numaPolicy: Required}]}"),
		Entry("no placement", "placement: null"),
		Entry("every tool's own", "{tool: netperf, highestPercentile: p99, workload: {protocols: [TCP, UDP], messageSizes: [1], streams: [{protocol: TCP, messageSize: 1048576}, {protocol: UDP, messageSize: 65507}]}}"),
		Entry("sfnt-stream at rates", "{tool: sfnt-stream, workload: {protocols: [UDP, Multicast], ratesPerSecond: [1000, 10000000]}, placement: {client: {}, server: {}, cpus: 2}}"),
		Entry("a loss after 20 ms", "{tool: pinger, workload: {protocols: [TCP, UDP], lossAfter: 20ms}}"),
		Entry("a multicast group", "{tool: pinger, workload: {protocols: [Multicast], multicastGroup: 239.192.0.1, wait: Spin}}"),
		Entry("a headline", "{headline: {protocol: TCP, messageSize: 256, ratePerSecond: 20}, workload: {messageSizes: [64, 256], ratesPerSecond: [10, 20]}}"),
		Entry("variants", "variants: [{name: pod, wait: Spin, muxer: Epoll, capture: Server}, {name: vf, network: {type: VF, vf: {networkRef: {name: net}, resourceName: amd.com/sf_vf}}}]"),
		Entry("latency limits in every unit", criteria("rules: [{metric: p99, max: 840ns}, {metric: p99, max: 2us}, {metric: p99, max: 2.5µs}, {metric: p99, max: 2.5μs}, {metric: mean, max: 1.75ms}, {metric: p50, max: 60s}]")),
		Entry("limits of messages lost", rule("{metric: lost, max: 0}, {metric: lost, max: '5'}, {metric: lost, maxIncrease: 10}")),
		Entry("limits of throughput", rule("{metric: throughput, min: 9000000000}, {metric: throughput, min: 2.5G}, {metric: throughput, maxDecrease: 5%}")),
		Entry("a tolerance with all that a gate has", criteria("rules: [{metric: p99, maxIncrease: 2.5%, variants: [default], protocols: [TCP], messageSizes: [64], cells: [tcp-64]}], baseline: {benchmarkRef: {name: b}}, ignoreDifferences: [kernel.*, nic.firmware-variant, cell.*.duration, sysctl.net.ipv4.tcp_timestamps]")),
		Entry("a variant as baseline", "{variants: [{name: a}, {name: b}], criteria: {rules: [{metric: p99, maxIncrease: 5%, variants: [b]}], baseline: {variant: a}}}"),
		Entry("sixty-four CPUs and a hundred rounds", "{rounds: 100, placement: {client: {}, server: {}, cpus: 64}}"),
	)

	It("takes the samples of the documentation", func(ctx SpecContext) {
		var files []string
		for _, pattern := range []string{"*.yaml", "experiments/*.yaml"} {
			found, err := filepath.Glob(filepath.Join("..", "..", "config", "samples", pattern))
			Expect(err).NotTo(HaveOccurred())
			files = append(files, found...)
		}
		taken := 0
		for _, file := range files {
			content, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			for part := range strings.SplitSeq(string(content), "\n---\n") {
				object := &unstructured.Unstructured{}
				Expect(yaml.UnmarshalStrict([]byte(part), &object.Object)).To(Succeed(), file)
				if object.GetKind() != "LatencyBenchmark" && object.GetKind() != "LatencyMatrix" {
					continue
				}
				object.SetNamespace(namespace)
				Expect(k8s.Create(ctx, object, client.FieldValidation(metav1.FieldValidationStrict))).To(Succeed(), file)
				taken++
			}
		}
		Expect(taken).To(BeNumerically(">=", 3))
	})

	It("has good defaults", func(ctx SpecContext) {
		object := manifest(namespace, "{}")
		Expect(k8s.Create(ctx, object)).To(Succeed())
		var want map[string]any
		Expect(yaml.Unmarshal([]byte(`
tool: sockperf
workload: {protocols: [TCP], wait: Block, muxer: None, duration: 3s, warmup: 500ms}
rounds: 6
placement: {client: {}, server: {}, memory: 512Mi}
network: {type: Pod}
latencyType: HalfRTT
`), &want)).To(Succeed())
		got, err := yaml.Marshal(object.Object["spec"])
		Expect(err).NotTo(HaveOccurred())
		wantYAML, err := yaml.Marshal(want)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(got)).To(Equal(string(wantYAML)))
	})

	It("answers in one line, and says the rest in wide columns", func(ctx SpecContext) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Expect(k8s.Get(ctx, types.NamespacedName{Name: "latencybenchmarks.tailgate.dev"}, crd)).To(Succeed())
		var narrow, wide []string
		for _, c := range crd.Spec.Versions[0].AdditionalPrinterColumns {
			if c.Priority == 0 {
				narrow = append(narrow, c.Name)
			} else {
				wide = append(wide, c.Name)
			}
		}
		Expect(narrow).To(Equal([]string{"State", "Runs", "Type", "P50", "P99", "Verdict", "Age"}))
		Expect(wide).To(Equal([]string{"P99.9", "P50-ns", "P99-ns", "P99.9-ns", "Tool", "Network", "Client", "Server", "Cell", "Samples", "Placement", "Ratios", "Message"}))
	})

	It("lets the spec change until it was accepted, and not after", func(ctx SpecContext) {
		object := manifest(namespace, "{}")
		Expect(k8s.Create(ctx, object)).To(Succeed())
		setRounds := func(n int64) error {
			Expect(unstructured.SetNestedField(object.Object, n, "spec", "rounds")).To(Succeed())
			return k8s.Update(ctx, object)
		}
		Expect(setRounds(7)).To(Succeed())

		status := map[string]any{"pair": map[string]any{"clientNode": "a", "serverNode": "b"}}
		Expect(unstructured.SetNestedMap(object.Object, status, "status")).To(Succeed())
		Expect(k8s.Status().Update(ctx, object)).To(Succeed())
		Expect(setRounds(8)).To(MatchError(And(ContainSubstring("spec cannot change"), ContainSubstring("delete the benchmark and apply it again"))))

		Expect(unstructured.SetNestedField(object.Object, int64(7), "spec", "rounds")).To(Succeed())
		object.SetLabels(map[string]string{"team": "latency"})
		Expect(k8s.Update(ctx, object)).To(Succeed(), "labels may change at any time")
	})

	It("refuses each change of an accepted spec that could affect its results", func(ctx SpecContext) {
		object := manifest(namespace, "{}")
		Expect(k8s.Create(ctx, object)).To(Succeed())
		status := map[string]any{"pair": map[string]any{"clientNode": "a", "serverNode": "b"}}
		Expect(unstructured.SetNestedMap(object.Object, status, "status")).To(Succeed())
		Expect(k8s.Status().Update(ctx, object)).To(Succeed())

		allowed := map[string]any{
			"priority": int64(5), "suspend": true, "ttlSecondsAfterFinished": int64(60), "historyLimit": int64(3),
			"criteria": map[string]any{"rules": []any{map[string]any{"metric": "p99", "max": "2us"}}},
		}
		fields := reflect.TypeFor[v1alpha1.LatencyBenchmarkSpec]()
		for i := range fields.NumField() {
			name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
			changed := object.DeepCopy()
			if value, ok := allowed[name]; ok {
				Expect(unstructured.SetNestedField(changed.Object, value, "spec", name)).To(Succeed())
				Expect(k8s.Update(ctx, changed, client.DryRunAll)).To(Succeed(), name)
				continue
			}
			Expect(changesOfSpec).To(HaveKey(name), "a field of the spec that this test does not change")
			Expect(unstructured.SetNestedField(changed.Object, changesOfSpec[name], "spec", name)).To(Succeed())
			Expect(k8s.Update(ctx, changed)).To(MatchError(ContainSubstring("spec cannot change")), name)
		}

		for _, limit := range []string{"2us", "3us"} {
			criteria := map[string]any{"rules": []any{map[string]any{"metric": "p99", "max": limit}}}
			Expect(unstructured.SetNestedMap(object.Object, criteria, "spec", "criteria")).To(Succeed())
			Expect(k8s.Update(ctx, object)).To(Succeed())
		}
		unstructured.RemoveNestedField(object.Object, "spec", "criteria")
		Expect(k8s.Update(ctx, object)).To(Succeed())
	})

	It("survives the Go types", func(ctx SpecContext) {
		b := MakeBenchmark(namespace, "typed").On("a", "b").Obj()
		Expect(k8s.Create(ctx, b)).To(Succeed())
		b.Status.Conditions = []metav1.Condition{}
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "yes"))
		Expect(k8s.Status().Update(ctx, b)).To(Succeed())
		Expect(Get(ctx, b).Spec).To(Equal(b.Spec))
	})
})
