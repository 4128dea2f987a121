package integration

import (
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// smallest is the manifest with nothing but what is required. The specs change it below spec, as YAML, so that
// no default of a Go type hides anything.
const smallest = `
apiVersion: tailgate.dev/v1alpha1
kind: LatencyBenchmark
metadata: {name: smallest}
spec:
  tool: sockperf
  placement: {client: {}, server: {}}
`

// manifest is the smallest one with top-level fields of its spec replaced; null removes one.
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
	manyLabels := "placement: {server: {}, client: {nodeSelector: {"
	for i := range 17 {
		manyLabels += "label-" + strconv.Itoa(i) + ": x, "
	}
	manyLabels += "}}}"

	DescribeTable("refuses, naming the field and what to do,",
		func(ctx SpecContext, spec string, parts ...string) {
			err := k8s.Create(ctx, manifest(namespace, spec))
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
		Entry("memory that is none", "placement: {client: {}, server: {}, memory: plenty}", "spec.placement.memory", "such as 512Mi"),
		Entry("a duration without a unit", `workload: {duration: "3"}`, "spec.workload.duration", "such as 3s"),
		Entry("a negative duration", "workload: {duration: -1s}", "spec.workload.duration", "from 100ms to 12h"),
		Entry("a long duration", "workload: {duration: 13h}", "spec.workload.duration", "from 100ms to 12h"),
		Entry("a short duration", "workload: {duration: 99ms}", "spec.workload.duration", "from 100ms to 12h"),
		Entry("a duration of unknown unit", "workload: {duration: 5x}", "spec.workload.duration", "such as 3s"),
		Entry("a duration as a number", "workload: {duration: 3}", "spec.workload.duration", "string"),
		Entry("a long warm-up", "workload: {warmup: 61s}", "spec.workload.warmup", "from 0s to 60s"),
		Entry("a negative warm-up", "workload: {warmup: -1s}", "spec.workload.warmup", "from 0s to 60s"),
		Entry("an unknown network type", "network: {type: VF}", "spec.network.type", "supported values", "Secondary"),
		Entry("a network reference of type Pod", "network: {networkRef: {name: sf-vf}}", "spec.network", "networkRef", "set type: Secondary"),
		Entry("a secondary network without a reference", "network: {type: Secondary}", "spec.network", "networkRef is required"),
		Entry("a reference without a name", "network: {type: Secondary, networkRef: {}}", "spec.network.networkRef.name", "Required value"),
		Entry("a resource without its prefix", "network: {type: Secondary, networkRef: {name: net}, resourceName: sf_vf}", "spec.network.resourceName", "with its prefix", "amd.com/sf_vf"),
		Entry("a resource of type Pod", "network: {type: Pod, resourceName: amd.com/sf_vf}", "spec.network", "resourceName", "set type: Secondary"),
		Entry("a rate with sfnt-pingpong", "{tool: sfnt-pingpong, workload: {ratesPerSecond: [23000]}}", "spec.workload.ratesPerSecond", "pinger, sockperf and sfnt-stream"),
		Entry("a rate with netperf", "{tool: netperf, workload: {ratesPerSecond: [23000]}}", "spec.workload.ratesPerSecond", "pinger, sockperf and sfnt-stream"),
		Entry("a rate of 0", "workload: {ratesPerSecond: [0]}", "spec.workload.ratesPerSecond[0]", "greater than or equal to 1"),
		Entry("sfnt-stream without a rate", "{tool: sfnt-stream, workload: {protocols: [UDP]}, placement: {client: {}, server: {}, cpus: 2}}", "spec.workload.ratesPerSecond", "give at least one"),
		Entry("TCP with sfnt-stream", "{tool: sfnt-stream, workload: {ratesPerSecond: [1000]}, placement: {client: {}, server: {}, cpus: 2}}", "spec.workload.protocols", "UDP only", "pinger or sockperf"),
		Entry("23 bytes for sfnt-stream", "{tool: sfnt-stream, workload: {protocols: [UDP], messageSizes: [23], ratesPerSecond: [1000]}, placement: {client: {}, server: {}, cpus: 2}}", "spec.workload.messageSizes", "at least 24"),
		Entry("one CPU for sfnt-stream", "{tool: sfnt-stream, workload: {protocols: [UDP], ratesPerSecond: [1000]}}", "spec.placement.cpus", "two CPUs"),
		Entry("a stream with pinger", "{tool: pinger, workload: {streams: [{protocol: TCP, messageSize: 65536}]}}", "spec.workload.streams", "netperf and sockperf"),
		Entry("a stream of multicast", "{tool: netperf, workload: {streams: [{protocol: Multicast, messageSize: 64}]}}", "spec.workload.streams[0]", "TCP or UDP"),
		Entry("a stream of datagrams that are too large", "{tool: netperf, workload: {streams: [{protocol: UDP, messageSize: 65508}]}}", "spec.workload.streams[0]", "at most 65507"),
		Entry("p99.99 with netperf", "{tool: netperf, highestPercentile: p99.99}", "spec.highestPercentile", "beyond p99", "pinger"),
		Entry("an unknown percentile", "highestPercentile: p98", "spec.highestPercentile", "supported values", "p99.9999"),
		Entry("an unknown way to wait", "workload: {wait: Sleep}", "spec.workload.wait", "supported values", "Spin"),
		Entry("an unknown muxer", "workload: {muxer: Kqueue}", "spec.workload.muxer", "supported values", "Epoll"),
		Entry("a group that is not multicast", "workload: {protocols: [Multicast], multicastGroup: 192.0.2.1}", "spec.workload.multicastGroup", "such as 239.192.0.1"),
		Entry("a group that is no address", "workload: {protocols: [Multicast], multicastGroup: 239.1.1.999}", "spec.workload.multicastGroup", "such as 239.192.0.1"),
		Entry("two variants of one name", "variants: [{name: a}, {name: a}]", "spec.variants[1]", "Duplicate value"),
		Entry("a variant without a name", "variants: [{wait: Spin}]", "spec.variants[0].name", "Required value"),
		Entry("a variant whose name is no label", "variants: [{name: VF}]", "spec.variants[0].name", "should match"),
		Entry("a variant with half a network", "variants: [{name: vf, network: {type: Secondary}}]", "spec.variants[0].network", "networkRef is required"),
		Entry("401 runs", "{rounds: 58, variants: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}, {name: g}]}", "spec.rounds", "at most 400"),
		Entry("an unknown latency type", "latencyType: OneWay", "spec.latencyType", "supported values", "HalfRTT"),
		Entry("no placement", "placement: null", "spec.placement", "Required value"),
		Entry("no server", "placement: {client: {}}", "spec.placement.server", "Required value"),
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
		Entry("a resource with hyphens and underscores", "network: {type: Secondary, networkRef: {name: net, namespace: networks}, resourceName: openshift.io/x2522-vf_0}"),
		Entry("every tool's own", "{tool: netperf, highestPercentile: p99, workload: {protocols: [TCP, UDP], messageSizes: [1], streams: [{protocol: TCP, messageSize: 1048576}, {protocol: UDP, messageSize: 65507}]}}"),
		Entry("sfnt-stream at rates", "{tool: sfnt-stream, workload: {protocols: [UDP, Multicast], ratesPerSecond: [1000, 10000000]}, placement: {client: {}, server: {}, cpus: 2}}"),
		Entry("a multicast group", "{tool: pinger, workload: {protocols: [Multicast], multicastGroup: 239.192.0.1, wait: Spin}}"),
		Entry("variants", "variants: [{name: pod, wait: Spin, muxer: Epoll, capture: true}, {name: vf, network: {type: Secondary, networkRef: {name: net}, resourceName: amd.com/sf_vf}}]"),
		Entry("sixty-four CPUs and a hundred rounds", "{rounds: 100, placement: {client: {}, server: {}, cpus: 64}}"),
	)

	It("has good defaults", func(ctx SpecContext) {
		object := manifest(namespace, "{}")
		Expect(k8s.Create(ctx, object)).To(Succeed())
		var want map[string]any
		Expect(yaml.Unmarshal([]byte(`
tool: sockperf
workload: {protocols: [TCP], wait: Block, muxer: None, duration: 3s, warmup: 500ms}
rounds: 5
placement: {client: {}, server: {}, cpus: 1, memory: 512Mi}
network: {type: Pod}
latencyType: HalfRTT
`), &want)).To(Succeed())
		got, err := yaml.Marshal(object.Object["spec"])
		Expect(err).NotTo(HaveOccurred())
		wantYAML, err := yaml.Marshal(want)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(got)).To(Equal(string(wantYAML)))
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
		Expect(setRounds(8)).To(MatchError(And(ContainSubstring("spec cannot change"), ContainSubstring("delete the benchmark and apply it anew"))))

		Expect(unstructured.SetNestedField(object.Object, int64(7), "spec", "rounds")).To(Succeed())
		object.SetLabels(map[string]string{"team": "latency"})
		Expect(k8s.Update(ctx, object)).To(Succeed(), "labels may change at any time")
	})

	It("survives the Go types", func(ctx SpecContext) {
		b := MakeBenchmark(namespace, "typed").Obj()
		Expect(k8s.Create(ctx, b)).To(Succeed())
		b.Status.Conditions = []metav1.Condition{}
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "yes"))
		Expect(k8s.Status().Update(ctx, b)).To(Succeed())
		Expect(Get(ctx, b).Spec).To(Equal(b.Spec))
	})
})
