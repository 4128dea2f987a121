package admission

import (
	"strconv"
	"strings"
)

// benchmark returns a case of a benchmark with fields of its spec replaced.
func benchmark(name, spec string, refusal ...string) Case {
	return Case{Name: "a benchmark with " + name, Object: Benchmark(spec), Refusal: refusal}
}

// criteria returns the criteria of a spec.
func criteria(fields string) string { return "criteria: {" + fields + "}" }

// rule returns criteria with rules that may compare with a baseline.
func rule(rules string) string {
	return criteria("rules: [" + rules + "], baseline: {benchmarkRef: {name: before}}")
}

func benchmarks() []Case {
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
	// named returns a case of a benchmark whose name has a length.
	named := func(name string, length int, spec string, refusal ...string) Case {
		c := benchmark(name, spec, refusal...)
		c.Object.SetName(strings.Repeat("x", length))
		return c
	}
	variant := "variants: [{name: " + strings.Repeat("v", 20) + "}]"
	return []Case{
		benchmark("an unknown tool", "tool: iperf3", "spec.tool", "supported values", "sockperf"),
		benchmark("no tool", "tool: null", "spec.tool", "Required value"),
		benchmark("size 0 with TCP for sfnt-pingpong", "{tool: sfnt-pingpong, workload: {messageSizes: [0]}}", "spec.workload.messageSizes", "use sizes from 1, or UDP alone"),
		benchmark("size 13 for sockperf", "workload: {messageSizes: [64, 13]}", "spec.workload.messageSizes", "14 to 65507"),
		benchmark("size 0 for pinger", "{tool: pinger, workload: {protocols: [UDP], messageSizes: [0]}}", "spec.workload.messageSizes", "at least 1 byte"),
		benchmark("size 65508 for sockperf", "workload: {messageSizes: [65508]}", "spec.workload.messageSizes", "14 to 65507", "use pinger or sfnt-pingpong"),
		benchmark("size 65508 with UDP", "{tool: sfnt-pingpong, workload: {protocols: [UDP], messageSizes: [65508]}}", "spec.workload.messageSizes", "at most 65507", "TCP alone"),
		benchmark("a negative size", "{tool: sfnt-pingpong, workload: {messageSizes: [-1]}}", "spec.workload.messageSizes[0]", "greater than or equal to 0"),
		benchmark("size 65537", "{tool: sfnt-pingpong, workload: {messageSizes: [65537]}}", "spec.workload.messageSizes[0]", "less than or equal to 65536"),
		benchmark("a size twice", "workload: {messageSizes: [64, 64]}", "spec.workload.messageSizes[1]", "Duplicate value: 64"),
		benchmark("33 sizes", manySizes, "spec.workload.messageSizes", "at most 32 items"),
		benchmark("no size", "workload: {messageSizes: []}", "spec.workload.messageSizes", "at least 1 item"),
		benchmark("four protocols", "workload: {protocols: [TCP, UDP, Multicast, SCTP]}", "spec.workload.protocols", "at most 3 items"),
		benchmark("a protocol twice", "workload: {protocols: [TCP, TCP]}", "spec.workload.protocols[1]", "Duplicate value"),
		benchmark("an unknown protocol", "workload: {protocols: [SCTP]}", "spec.workload.protocols[0]", "supported values", "TCP", "UDP"),
		benchmark("no round", "rounds: 0", "spec.rounds", "greater than or equal to 1"),
		benchmark("101 rounds", "rounds: 101", "spec.rounds", "less than or equal to 100"),
		benchmark("no CPU", "placement: {client: {}, server: {}, cpus: 0}", "spec.placement.cpus", "greater than or equal to 1"),
		benchmark("65 CPUs", "placement: {client: {}, server: {}, cpus: 65}", "spec.placement.cpus", "less than or equal to 64"),
		benchmark("little memory", "placement: {client: {}, server: {}, memory: 1Mi}", "spec.placement.memory", "from 128Mi to 64Gi"),
		benchmark("much memory", "placement: {client: {}, server: {}, memory: 65Gi}", "spec.placement.memory", "from 128Mi to 64Gi"),
		benchmark("memory as a number too small", "placement: {client: {}, server: {}, memory: 512}", "spec.placement.memory", "from 128Mi to 64Gi"),
		benchmark("an invalid amount of memory", "placement: {client: {}, server: {}, memory: plenty}", "spec.placement.memory", "should match").
			but("such as 512Mi", "[numkMGTPE]"),
		benchmark("a duration without a unit", `workload: {duration: "3"}`, "spec.workload.duration", "such as 3s"),
		benchmark("a negative duration", "workload: {duration: -1s}", "spec.workload.duration", "from 100ms to 12h"),
		benchmark("a long duration", "workload: {duration: 13h}", "spec.workload.duration", "from 100ms to 12h"),
		benchmark("a short duration", "workload: {duration: 99ms}", "spec.workload.duration", "from 100ms to 12h"),
		benchmark("a duration of unknown unit", "workload: {duration: 5x}", "spec.workload.duration", "such as 3s"),
		benchmark("a duration as a number", "workload: {duration: 3}", "spec.workload.duration").
			but("must be of type string", "3 has the type integer; must be a duration from 100ms to 12h, such as 3s"),
		benchmark("a long warm-up", "workload: {warmup: 61s}", "spec.workload.warmup", "from 0s to 60s"),
		benchmark("a negative warm-up", "workload: {warmup: -1s}", "spec.workload.warmup", "from 0s to 60s"),
		benchmark("an alignment with a resource without a prefix", "network: {type: Host, host: {alignWith: sf_vf}}", "spec.network.host.alignWith", "resource name with its prefix"),
		benchmark("an alignment of a variant with no resource", "variants: [{name: a, network: {type: NAD, nad: {networkRef: {name: net}, alignWith: ''}}}]", "spec.variants[0].network.nad.alignWith", "at least 3 chars"),
		benchmark("an alignment of the pod network", "network: {type: Pod, host: {alignWith: amd.com/sf_vf}}", "spec.network", "host belongs to type Host"),
		benchmark("an alignment of a VF", "network: {type: VF, vf: {networkRef: {name: net}, resourceName: amd.com/sf_vf, alignWith: amd.com/sf_vf}}", "spec.network.vf.alignWith").
			but(`unknown field "spec.network.vf.alignWith"`, "unknown field; write spec.network.host.alignWith or spec.network.nad.alignWith"),
		benchmark("an unknown network type", "network: {type: SRIOV}", "spec.network.type", "supported values", "NAD"),
		benchmark("a network reference of type Pod", "network: {type: Pod, nad: {networkRef: {name: sf-vf}}}", "spec.network", "nad belongs to type NAD", "remove nad"),
		benchmark("a network without a type", "network: {vf: {resourceName: amd.com/sf_vf, networkRef: {name: net}}}", "spec.network.type", "Required value"),
		benchmark("an interface of type Pod", "network: {type: Pod, host: {interface: eth0}}", "spec.network", "host belongs to type Host"),
		benchmark("the settings of two types", "network: {type: VF, vf: {resourceName: amd.com/sf_vf, networkRef: {name: net}}, pf: {resourceName: amd.com/sf_pf, networkRef: {name: net}}}", "spec.network", "pf belongs to type PF", "remove pf"),
		benchmark("an attached network without a reference", "network: {type: NAD}", "spec.network", "nad belongs to type NAD, which requires it: give nad.networkRef"),
		benchmark("a reference without a name", "network: {type: NAD, nad: {networkRef: {}}}", "spec.network.nad.networkRef.name", "Required value"),
		benchmark("a resource without its prefix", "network: {type: VF, vf: {networkRef: {name: net}, resourceName: sf_vf}}", "spec.network.vf.resourceName", "with its prefix", "such as openshift.io/sf_x2_vf"),
		benchmark("a resource of type Pod", "network: {type: Pod, vf: {resourceName: amd.com/sf_vf, networkRef: {name: net}}}", "spec.network", "vf belongs to type VF"),
		benchmark("a VF without a resource", "network: {type: VF, vf: {networkRef: {name: net}}}", "spec.network.vf.resourceName", "Required value"),
		benchmark("a PF without a network", "network: {type: PF, pf: {resourceName: amd.com/sf_pf}}", "spec.network.pf", "exactly one of networkRef", "and ipam"),
		benchmark("a VF with two networks", "network: {type: VF, vf: {resourceName: amd.com/sf_vf, networkRef: {name: net}, ipam: {type: Static, range: 192.168.40.0/24}}}", "spec.network.vf", "exactly one"),
		benchmark("ipam of type NAD", "network: {type: NAD, nad: {networkRef: {name: net}, ipam: {type: Static, range: 192.168.40.0/24}}}", "spec.network.nad.ipam", "unknown field"),
		benchmark("an MTU of an existing network", "network: {type: VF, vf: {resourceName: amd.com/sf_vf, networkRef: {name: net}, mtu: 9000}}", "spec.network.vf", "mtu is for networks that the operator creates"),
		benchmark("a VLAN of a PF", "network: {type: PF, pf: {resourceName: amd.com/sf_pf, ipam: {type: Static, range: 192.168.40.0/24}, vlan: 40}}", "spec.network.pf.vlan", "unknown field"),
		benchmark("a range that is an address", "network: {type: VF, vf: {resourceName: amd.com/sf_vf, ipam: {type: Static, range: 192.168.40.1/24}}}", "spec.network.vf.ipam.range", "such as 192.168.40.0/24"),
		benchmark("a range for one address", "network: {type: VF, vf: {resourceName: amd.com/sf_vf, ipam: {type: Static, range: 192.168.40.0/31}}}", "spec.network.vf.ipam.range", "room for two addresses"),
		benchmark("a start out of the range", "network: {type: VF, vf: {resourceName: amd.com/sf_vf, ipam: {type: Whereabouts, range: 192.168.40.0/24, rangeStart: 192.168.41.1}}}", "spec.network.vf.ipam", "rangeStart must be an address of range"),
		benchmark("an unknown profile", "acceleration: {type: Onload, onload: {profile: fast}}", "spec.acceleration.onload.profile", "supported values", "latency"),
		benchmark("two profiles", "acceleration: {type: Onload, onload: {profile: latency, profileRef: {name: mine}}}", "spec.acceleration.onload", "not both"),
		benchmark("a profile of the kernel", "acceleration: {type: Kernel, onload: {profile: latency}}", "spec.acceleration", "onload belongs to type Onload"),
		benchmark("a note that controls a terminal", `notes: [{name: bios, value: "\e[2J"}]`, "spec.notes[0].value", "should match"),
		benchmark("a note with a long value", "notes: [{name: bios, value: "+strings.Repeat("x", 257)+"}]", "spec.notes[0].value", "256"),
		benchmark("two notes of a name", "notes: [{name: bios, value: a}, {name: bios, value: b}]", "spec.notes[1]", "Duplicate value"),
		benchmark("a variable that loads a library", "pods: {env: [{name: LD_PRELOAD, value: x.so}]}", "spec.pods.env[0].name", "should match"),
		benchmark("an annotation of anybody", "pods: {annotations: {example.com/x: 'yes'}}", "spec.pods", "only CRI-O's"),
		benchmark("a priority class of the system", "pods: {priorityClassName: system-node-critical}", "spec.pods", "create your own"),
		benchmark("huge pages of another size", "pods: {hugepages: {size: 4Mi, amount: 64Mi}}", "spec.pods.hugepages.size", "supported values"),
		benchmark("a node by name and by labels", "placement: {client: {nodeName: a, nodeSelector: {matchLabels: {rack: '1'}}}, server: {}}", "spec.placement.client", "only one of"),
		benchmark("half a huge page", "pods: {hugepages: {size: 2Mi, amount: 63Mi}}", "spec.pods.hugepages", "a multiple of size"),
		benchmark("a node by name and by names", "placement: {client: {nodeName: a, nodeNames: [a, b]}, server: {}}", "spec.placement.client", "only one of"),
		benchmark("no node by names", "placement: {client: {nodeNames: []}}", "spec.placement.client.nodeNames", "at least 1"),
		benchmark("a matrix as baseline", criteria("rules: [{metric: p99, maxIncrease: 5%}], baseline: {matrixRef: {name: m}}"), "spec.criteria.baseline.matrixRef", "only the template of a LatencyMatrix"),
		benchmark("a priority beyond its bounds", "priority: 1001", "spec.priority", "less than or equal to 1000"),
		benchmark("a rate with sfnt-pingpong", "{tool: sfnt-pingpong, workload: {ratesPerSecond: [23000]}}", "spec.workload.ratesPerSecond", "pinger, sockperf and sfnt-stream"),
		benchmark("a rate with netperf", "{tool: netperf, workload: {ratesPerSecond: [23000]}}", "spec.workload.ratesPerSecond", "pinger, sockperf and sfnt-stream"),
		benchmark("a rate of 0", "workload: {ratesPerSecond: [0]}", "spec.workload.ratesPerSecond[0]", "greater than or equal to 1"),
		benchmark("sfnt-stream without a rate", "{tool: sfnt-stream, workload: {protocols: [UDP]}, placement: {client: {}, server: {}, cpus: 2}}", "spec.workload.ratesPerSecond", "give at least one"),
		benchmark("TCP with sfnt-stream", "{tool: sfnt-stream, workload: {ratesPerSecond: [1000]}, placement: {client: {}, server: {}, cpus: 2}}", "spec.workload.protocols", "UDP only", "pinger or sockperf"),
		benchmark("23 bytes for sfnt-stream", "{tool: sfnt-stream, workload: {protocols: [UDP], messageSizes: [23], ratesPerSecond: [1000]}, placement: {client: {}, server: {}, cpus: 2}}", "spec.workload.messageSizes", "at least 24"),
		benchmark("one CPU for sfnt-stream", "{tool: sfnt-stream, workload: {protocols: [UDP], ratesPerSecond: [1000]}, placement: {client: {}, server: {}, cpus: 1}}", "spec.placement.cpus", "two CPUs"),
		benchmark("one CPU for the client of sfnt-stream", "{tool: sfnt-stream, workload: {protocols: [UDP], ratesPerSecond: [1000]}, placement: {client: {cpus: 1}, server: {}, cpus: 2}}", "spec.placement.cpus", "two CPUs"),
		benchmark("too many CPUs of one endpoint", "placement: {server: {cpus: 65}}", "spec.placement.server.cpus", "less than or equal to 64"),
		benchmark("too little memory of one endpoint", "placement: {client: {memory: 64Mi}}", "spec.placement.client.memory", "from 128Mi to 64Gi"),
		benchmark("an unknown NUMA policy of a variant", "variants: [{name: a, numaPolicy: Maybe}]", "spec.variants[0].numaPolicy", "supported values"),
		benchmark("a stream with pinger", "{tool: pinger, workload: {streams: [{protocol: TCP, messageSize: 65536}]}}", "spec.workload.streams", "netperf and sockperf"),
		benchmark("a stream of multicast", "{tool: netperf, workload: {streams: [{protocol: Multicast, messageSize: 64}]}}", "spec.workload.streams[0]", "TCP or UDP"),
		benchmark("a stream of datagrams that are too large", "{tool: netperf, workload: {streams: [{protocol: UDP, messageSize: 65508}]}}", "spec.workload.streams[0]", "at most 65507"),
		benchmark("p99.99 with netperf", "{tool: netperf, highestPercentile: p99.99}", "spec.highestPercentile", "reports only p50, p90 and p99", "pinger"),
		benchmark("an unknown percentile", "highestPercentile: p98", "spec.highestPercentile", "supported values", "p99.9999"),
		benchmark("an unknown way to wait", "workload: {wait: Sleep}", "spec.workload.wait", "supported values", "Spin"),
		benchmark("an unknown muxer", "workload: {muxer: Kqueue}", "spec.workload.muxer", "supported values", "Epoll"),
		benchmark("a loss of TCP", "{tool: pinger, workload: {lossAfter: 100ms}}", "spec.workload.lossAfter", "for UDP and Multicast"),
		benchmark("a loss of another tool", "{tool: sockperf, workload: {protocols: [UDP], lossAfter: 100ms}}", "spec.workload.lossAfter", "only pinger has this setting"),
		benchmark("a loss that takes too long", "{tool: pinger, workload: {protocols: [UDP], lossAfter: 11s}}", "spec.workload.lossAfter", "from 10ms to 10s"),
		benchmark("a group that is not multicast", "workload: {protocols: [Multicast], multicastGroup: 192.0.2.1}", "spec.workload.multicastGroup", "such as 239.192.0.1"),
		benchmark("a group that is no address", "workload: {protocols: [Multicast], multicastGroup: 239.1.1.999}", "spec.workload.multicastGroup", "such as 239.192.0.1"),
		benchmark("two variants of one name", "variants: [{name: a}, {name: a}]", "spec.variants[1]", "Duplicate value"),
		benchmark("a variant without a name", "variants: [{wait: Spin}]", "spec.variants[0].name", "Required value"),
		benchmark("a variant whose name is no label", "variants: [{name: VF}]", "spec.variants[0].name", "should match"),
		benchmark("a variant with half a network", "variants: [{name: vf, network: {type: NAD}}]", "spec.variants[0].network", "nad belongs to type NAD"),
		benchmark("401 runs", "{rounds: 58, variants: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}, {name: g}]}", "spec.rounds", "at most 400"),
		benchmark("an unknown latency type", "latencyType: OneWay", "spec.latencyType", "supported values", "HalfRTT"),
		benchmark("criteria without rules", criteria("rules: []"), "spec.criteria.rules", "at least 1 item"),
		benchmark("a rule without a limit", rule("{metric: p99}"), "spec.criteria.rules[0]", "exactly one of max, min, maxIncrease and maxDecrease"),
		benchmark("a rule with two limits", rule("{metric: p99, maxIncrease: 5%, max: 2us}"), "spec.criteria.rules[0]", "a separate rule for each limit"),
		benchmark("a rule on the maximum", rule("{metric: max, max: 2us}"), "spec.criteria.rules[0]", "cannot be judged", "p99.999"),
		benchmark("a rule on an unknown metric", rule("{metric: p98, max: 2us}"), "spec.criteria.rules[0].metric", "supported values", "p99.9"),
		benchmark("a limit beyond a minute", rule("{metric: p99, max: 61s}"), "spec.criteria.rules[0].max", "from 1ns to 60s"),
		benchmark("a limit of nothing", rule("{metric: p99, max: 0us}"), "spec.criteria.rules[0].max", "from 1ns to 60s"),
		benchmark("a limit of half a nanosecond", rule("{metric: p99, max: 0.5ns}"), "spec.criteria.rules[0].max", "from 1ns to 60s"),
		benchmark("a limit of very many digits", rule("{metric: p99, max: 99999999999999999999s}"), "spec.criteria.rules[0].max", "from 1ns to 60s"),
		benchmark("a limit without a unit", rule("{metric: p99, max: '5'}"), "spec.criteria.rules[0].max", `"5" has no unit; write 5us`),
		benchmark("a latency limit in percent", rule("{metric: p99, max: 5%}"), "spec.criteria.rules[0].max", "such as 10us"),
		benchmark("a tolerance of four decimals", rule("{metric: p99, maxIncrease: 5.1234%}"), "spec.criteria.rules[0].maxIncrease", "at most three decimals"),
		benchmark("a tolerance without its sign", rule("{metric: p99, maxIncrease: '5'}"), "spec.criteria.rules[0].maxIncrease", `"5" has no percent sign; write 5%`),
		benchmark("a limit of lost in time", rule("{metric: lost, max: 1us}"), "spec.criteria.rules[0].max", "not a number of messages", "such as 5"),
		benchmark("a tolerance of lost in percent", rule("{metric: lost, maxIncrease: 5%}"), "spec.criteria.rules[0].maxIncrease", "not a number of messages", "such as 5"),
		benchmark("a negative number of messages", rule("{metric: lost, max: -1}"), "spec.criteria.rules[0].max", "not a number of messages from 0"),
		benchmark("a throughput of nothing", rule("{metric: throughput, min: 0}"), "spec.criteria.rules[0].min", "from 1 to 999999999999999"),
		benchmark("half a bit per second", rule("{metric: throughput, min: 0.5}"), "spec.criteria.rules[0].min").
			but("must be of type integer,string", "0.5 has the type number; write a whole number, or a text such as 10us, 9G or 5%"),
		benchmark("a throughput in another spelling", rule("{metric: throughput, min: 9Gbps}"), "spec.criteria.rules[0].min", "not a number of bits per second", "such as 9G"),
		benchmark("a throughput that may vanish", rule("{metric: throughput, maxDecrease: 100%}"), "spec.criteria.rules[0].maxDecrease", "below 100%"),
		benchmark("a throughput that may not grow", rule("{metric: throughput, maxIncrease: 5%}"), "spec.criteria.rules[0]", "throughput takes min or maxDecrease"),
		benchmark("a latency that may not fall", rule("{metric: p99, maxDecrease: 5%}"), "spec.criteria.rules[0]", "every other metric takes max or maxIncrease"),
		benchmark("a latency with a minimum", rule("{metric: p99, min: 9G}"), "spec.criteria.rules[0]", "every other metric takes max or maxIncrease"),
		benchmark("a tolerance without a baseline", criteria("rules: [{metric: p99, maxIncrease: 5%}]"), "spec.criteria", "name one by benchmarkRef, variant, accepted or export"),
		benchmark("differences from no baseline", criteria("rules: [{metric: p99, max: 5us}], ignoreDifferences: [kernel.release]"), "spec.criteria", "ignoreDifferences: applies only to a baseline"),
		benchmark("all differences ignored", criteria("rules: [{metric: p99, max: 5us}], baseline: {benchmarkRef: {name: b}}, ignoreDifferences: ['*']"), "spec.criteria.ignoreDifferences[0]", "should match"),
		benchmark("a baseline that names nothing", criteria("rules: [{metric: p99, max: 5us}], baseline: {}"), "spec.criteria.baseline", "exactly one of benchmarkRef, variant, accepted, matrixRef and export"),
		benchmark("two baselines", "{variants: [{name: a}, {name: b}], criteria: {rules: [{metric: p99, max: 5us}], baseline: {variant: a, benchmarkRef: {name: b}}}}", "spec.criteria.baseline", "exactly one"),
		benchmark("itself as baseline", criteria("rules: [{metric: p99, maxIncrease: 5%}], baseline: {benchmarkRef: {name: smallest}}"), "spec.criteria.baseline.benchmarkRef", "its own baseline"),
		benchmark("a baseline with a path as its name", criteria("rules: [{metric: p99, maxIncrease: 5%}], baseline: {benchmarkRef: {name: perf/before}}"), "spec.criteria.baseline.benchmarkRef.name", "should match"),
		benchmark("a gate with a path as its name", criteria("rules: [{metric: p99, maxIncrease: 5%}], baseline: {accepted: {gateName: a/b}}"), "spec.criteria.baseline.accepted.gateName", "should match"),
		benchmark("a network with its namespace in the name", "network: {type: NAD, nad: {networkRef: {name: networks/low}}}", "spec.network.nad.networkRef.name", "should match"),
		benchmark("a network of an impossible namespace", "network: {type: NAD, nad: {networkRef: {name: low, namespace: ..}}}", "spec.network.nad.networkRef.namespace", "should match"),
		benchmark("a profile with a path as its name", "acceleration: {type: Onload, onload: {profileRef: {name: ../low}}}", "spec.acceleration.onload.profileRef.name", "should match"),
		benchmark("a RuntimeClass with a path as its name", "pods: {runtimeClassName: a/b}", "spec.pods.runtimeClassName", "should match"),
		benchmark("a PriorityClass in capitals", "pods: {priorityClassName: High}", "spec.pods.priorityClassName", "should match"),
		benchmark("an unknown variant as baseline", "{variants: [{name: a}], criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {variant: b}}}", "spec.criteria.baseline.variant", "one of spec.variants"),
		benchmark("a variant as baseline without variants", criteria("rules: [{metric: p99, maxIncrease: 5%}], baseline: {variant: default}"), "spec.criteria.baseline.variant", "one of spec.variants"),
		benchmark("a rule on an unknown variant", "{variants: [{name: a}], criteria: {rules: [{metric: p99, max: 5us, variants: [a, b]}]}}", "spec.criteria.rules", "among spec.variants"),
		benchmark("401 runs after an extension", "{rounds: 10, maxRounds: 100, variants: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}]}", "spec.maxRounds", "at most 400"),
		benchmark("fewer rounds at the second look than at the first", "{rounds: 10, maxRounds: 9}", "spec.maxRounds", "must be at least spec.rounds"),
		benchmark("an unknown end that captures", "capture: Client", "spec.capture", "supported values"),
		benchmark("a capture as a boolean", "capture: true", "spec.capture", "must be of type string"),
		benchmark("a headline of another protocol", "headline: {protocol: UDP}", "spec.headline.protocol", "one of workload.protocols"),
		benchmark("a headline of another size", "{headline: {messageSize: 1024}, workload: {messageSizes: [64, 256]}}", "spec.headline.messageSize", "one of workload.messageSizes"),
		benchmark("a headline other than the default size", "headline: {messageSize: 1024}", "spec.headline.messageSize", "64 if unset"),
		benchmark("a headline of streams", "{tool: netperf, headline: {}, workload: {streams: [{protocol: TCP, messageSize: 64}]}}", "spec.headline.messageSize", "only streams"),
		benchmark("a headline at a rate of ping-pong", "headline: {ratePerSecond: 1000}", "spec.headline.ratePerSecond", "one of workload.ratesPerSecond"),
		benchmark("an empty node selector", "placement: {client: {nodeSelector: {}}, server: {}}", "spec.placement.client.nodeSelector", "to select any node, remove nodeSelector"),
		benchmark("a node selector with an unknown operator", "placement: {client: {nodeSelector: {matchExpressions: [{key: rack, operator: Equals, values: [a]}]}}}", "spec.placement.client.nodeSelector", "operator must be In or NotIn"),
		benchmark("a node selector without values", "placement: {server: {nodeSelector: {matchExpressions: [{key: rack, operator: NotIn}]}}}", "spec.placement.server.nodeSelector", "1 to 64 values"),
		benchmark("17 labels", manyLabels, "spec.placement.client.nodeSelector", "at most 16"),
		named("a name of 53 characters", 53, "{}", "metadata.name", "at most 52 characters"),
		named("a name and a variant that make pods' labels too long", 38, variant, "spec.variants", "at most 57 characters"),

		benchmark("size 0 with UDP for sfnt-pingpong", "{tool: sfnt-pingpong, workload: {protocols: [UDP], messageSizes: [0]}}"),
		benchmark("sizes 1 and 65536 with TCP for pinger", "{tool: pinger, workload: {messageSizes: [1, 65536]}}"),
		benchmark("size 65536 with TCP for sfnt-pingpong", "{tool: sfnt-pingpong, workload: {messageSizes: [1, 65536]}}"),
		benchmark("the smallest and the largest size for sockperf", "workload: {protocols: [TCP, UDP], messageSizes: [14, 65507]}"),
		benchmark("durations at their bounds", "workload: {duration: 12h0m0s, warmup: 0s}"),
		benchmark("a compound duration", "workload: {duration: 1m1.5s}"),
		benchmark("memory as a number", "placement: {client: {}, server: {}, memory: 536870912}"),
		benchmark("memory at its bounds", "placement: {client: {}, server: {}, memory: 64Gi}"),
		benchmark("a resource with hyphens and underscores", "network: {type: VF, vf: {networkRef: {name: net, namespace: networks}, resourceName: openshift.io/x2522-vf_0}}"),
		benchmark("a network that the operator makes", "network: {type: VF, vf: {resourceName: amd.com/sf_vf, ipam: {type: Whereabouts, range: 'fd00:40::/64', rangeStart: 'fd00:40::10'}, mtu: 9000, vlan: 40}}"),
		benchmark("the host's network beside a device", "network: {type: Host, host: {alignWith: openshift.io/sf_x2_vf}}"),
		benchmark("an attached network beside a device", "network: {type: NAD, nad: {networkRef: {name: macvlan}, alignWith: openshift.io/sf_x2_vf}}"),
		benchmark("the host's interface", "network: {type: Host, host: {interface: enp59s0f0np0}}"),
		benchmark("Onload", "{acceleration: {type: Onload, onload: {profile: latency}}, variants: [{name: kernel, acceleration: {type: Kernel}}, {name: image, acceleration: {type: Onload, onload: {profileRef: {name: mine}, resourceName: example.com/onload, source: Image}}, env: [{name: EF_POLL_USEC, value: '-1'}]}]}"),
		benchmark("all that a template has", "pods: {annotations: {irq-load-balancing.crio.io: disable, cpu-quota.crio.io: disable}, runtimeClassName: performance-x, priorityClassName: low, tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists}], hugepages: {size: 2Mi, amount: 64Mi}, env: [{name: EF_POLL_USEC, value: '100000'}]}"),
		benchmark("nodes by names", "placement: {client: {nodeNames: [a, b]}, numaPolicy: Preferred}"),
		benchmark("endpoints that differ", "{tool: sfnt-stream, workload: {protocols: [UDP], ratesPerSecond: [1000]}, placement: {cpus: 1, client: {nodeName: a, cpus: 2, memory: 1Gi, numaPolicy: Ignore, tolerations: [{key: gpu, operator: Exists}]}, server: {}}, variants: [{name: near, numaPolicy: Required}]}"),
		benchmark("no placement", "placement: null"),
		benchmark("every tool's own", "{tool: netperf, highestPercentile: p99, workload: {protocols: [TCP, UDP], messageSizes: [1], streams: [{protocol: TCP, messageSize: 1048576}, {protocol: UDP, messageSize: 65507}]}}"),
		benchmark("sfnt-stream at rates", "{tool: sfnt-stream, workload: {protocols: [UDP, Multicast], ratesPerSecond: [1000, 10000000]}, placement: {client: {}, server: {}, cpus: 2}}"),
		benchmark("a loss after 20 ms", "{tool: pinger, workload: {protocols: [TCP, UDP], lossAfter: 20ms}}"),
		benchmark("a multicast group", "{tool: pinger, workload: {protocols: [Multicast], multicastGroup: 239.192.0.1, wait: Spin}}"),
		benchmark("a headline", "{headline: {protocol: TCP, messageSize: 256, ratePerSecond: 20}, workload: {messageSizes: [64, 256], ratesPerSecond: [10, 20]}}"),
		benchmark("variants", "variants: [{name: pod, wait: Spin, muxer: Epoll, capture: Server}, {name: vf, network: {type: VF, vf: {networkRef: {name: net}, resourceName: amd.com/sf_vf}}}]"),
		benchmark("latency limits in every unit", criteria("rules: [{metric: p99, max: 840ns}, {metric: p99, max: 2us}, {metric: p99, max: 2.5µs}, {metric: p99, max: 2.5μs}, {metric: mean, max: 1.75ms}, {metric: p50, max: 60s}]")),
		benchmark("limits of messages lost", rule("{metric: lost, max: 0}, {metric: lost, max: '5'}, {metric: lost, maxIncrease: 10}")),
		benchmark("limits of throughput", rule("{metric: throughput, min: 9000000000}, {metric: throughput, min: 2.5G}, {metric: throughput, maxDecrease: 5%}")),
		benchmark("a tolerance with all that a gate has", criteria("rules: [{metric: p99, maxIncrease: 2.5%, variants: [default], protocols: [TCP], messageSizes: [64], cells: [tcp-64]}], baseline: {benchmarkRef: {name: b}}, ignoreDifferences: [kernel.*, nic.firmware-variant, cell.*.duration, sysctl.net.ipv4.tcp_timestamps]")),
		benchmark("a variant as baseline", "{variants: [{name: a}, {name: b}], criteria: {rules: [{metric: p99, maxIncrease: 5%, variants: [b]}], baseline: {variant: a}}}"),
		benchmark("sixty-four CPUs and a hundred rounds", "{rounds: 100, placement: {client: {}, server: {}, cpus: 64}}"),
		named("a name of 52 characters", 52, "{}"),
		named("a name and a variant that make pods' labels as long as they may be", 37, variant),
	}
}
