package admission

import (
	"fmt"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// gate returns a case of a gate with a name, and with fields of its spec, and of its template's spec, replaced.
func gate(name, object, spec, template string, refusal ...string) Case {
	return Case{Name: "a gate with " + name, Object: Gate(object, spec, template), Refusal: refusal}
}

// labelled returns a case of a gate whose identity has a label.
func labelled(name, label string, refusal ...string) Case {
	if len(refusal) > 0 {
		refusal = append(refusal, "spec.identity.labels")
	}
	return gate("a label of the identity: "+name, "labels", fmt.Sprintf("identity: {labels: [%q]}", label), "{}", refusal...)
}

// scheduled returns a case of a gate with a schedule in a time zone.
func scheduled(schedule, zone string, refusal ...string) Case {
	spec := fmt.Sprintf("{schedule: %q, timeZone: %q}", schedule, zone)
	if zone == "" {
		spec = fmt.Sprintf("schedule: %q", schedule)
	}
	return gate("the schedule "+spec, "scheduled", spec, "{}", refusal...)
}

func gates() []Case {
	differences := "criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {type: Gate}, ignoreDifferences: ["
	tolerations := "pods: {tolerations: ["
	for i := range 32 {
		differences += fmt.Sprintf("key-%d, ", i)
		if i < 16 {
			tolerations += fmt.Sprintf("{key: key-%d, operator: Exists}, ", i)
		}
	}
	custom := "{tool: Custom, custom: {image: 'r.example/a:1%s', client: {command: [/c]}, server: {command: [/s]}, output: {format: Values}}}"
	return []Case{
		gate("a program by tag", "custom", "{}", fmt.Sprintf(custom, ""), "template.spec.custom.image", "by digest"),
		gate("a program by digest", "custom", "{}", fmt.Sprintf(custom, "@sha256:"+strings.Repeat("0a", 32))),
		gate("a name with a dot", "a.b", "{}", "{}", "metadata.name", "no dot"),
		gate("a long name", strings.Repeat("x", 64), "{}", "{}", "metadata.name", "at most 63"),
		gate("no selector", "small", "nodeSelector: null", "{}", "spec.nodeSelector", "Required value"),
		gate("an empty selector", "small", "nodeSelector: {}", "{}", "spec.nodeSelector", "operator: Exists"),
		gate("a selector with empty lists", "small", "nodeSelector: {matchLabels: {}, matchExpressions: []}", "{}", "spec.nodeSelector", "must have matchLabels or matchExpressions"),
		gate("a selector with an unknown operator", "small", "nodeSelector: {matchExpressions: [{key: rack, operator: Gt, values: ['1']}]}", "{}", "spec.nodeSelector", "operator must be In or NotIn"),
		gate("a selector with an operator without its values", "small", "nodeSelector: {matchExpressions: [{key: rack, operator: In}]}", "{}", "spec.nodeSelector", "1 to 64 values"),
		gate("a selector with an operator that takes no values", "small", "nodeSelector: {matchExpressions: [{key: rack, operator: Exists, values: ['1']}]}", "{}", "spec.nodeSelector", "without values"),
		gate("no namespace", "small", "namespace: null", "{}", "spec.namespace", "Required value"),
		gate("a namespace that cannot exist", "small", "namespace: perf/up", "{}", "spec.namespace", "should match"),
		gate("no template", "small", "template: null", "{}", "spec.template", "Required value"),
		gate("a template whose fixed baseline any editor of the namespace can refill", "small", "{}", "criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {type: Benchmark, benchmark: {name: golden}}}", "template.spec.criteria.baseline.benchmark.uid", "another benchmark can have the name later"),
		gate("a template that compares with a matrix", "small", "{}", "criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {type: Matrix, matrix: {name: m}}}", "template.spec.criteria.baseline.type", "use type Gate"),
		gate("a template that names its client", "small", "{}", "placement: {client: {nodeName: a}, server: {}}", "template.spec.placement.client", "must be {}"),
		gate("a template that selects its client", "small", "{}", "placement: {client: {nodeSelector: {matchLabels: {a: b}}}, server: {}}", "template.spec.placement.client", "must be {}"),
		gate("a template without rules", "small", "{}", "criteria: null", "template.spec.criteria", "rules are required"),
		gate("a rule against nothing", "small", "{}", "criteria: {rules: [{metric: p99, maxIncrease: 5%}]}", "spec.template.spec.criteria", "type Benchmark, Variant, Gate or Export"),
		gate("the results of another gate", "small", "{}", "criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {type: Gate, gate: {name: other}}}", "template.spec.criteria.baseline.gate", "must be absent"),
		gate("a rule that can never decide, against one round", "small", "{}", "{rounds: 1, maxRounds: 1, criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {type: Gate}}}", "template.spec.maxRounds", "at least 3"),
		gate("a rule that can never decide, with two rounds", "small", "{}", "{rounds: 2, maxRounds: 2, criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {type: Gate}}}", "template.spec.maxRounds", "at least 3"),
		gate("a limit that can never decide", "small", "{}", "{rounds: 3, maxRounds: 5, criteria: {rules: [{metric: p99, max: 5us}]}}", "template.spec.maxRounds", "fewer than 6"),
		gate("three rounds", "small", "{}", "{rounds: 3, maxRounds: 3, criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {type: Gate}}}"),
		gate("one round, and a second look", "small", "{}", "{rounds: 1, maxRounds: 8, criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {type: Gate}}}"),
		gate("no room for node among the differences", "small", "{}", differences+"]}", "template.spec.criteria.ignoreDifferences", "at most 31"),
		gate("no room for a toleration", "small", "{}", tolerations+"]}", "template.spec.pods.tolerations", "at most 15"),
		gate("a variant with a long name", "small", "{}", "variants: [{name: seventeen-letters}]", "template.spec.variants", "at most 16"),
		gate("a label that the operator writes", "small", "template: {metadata: {labels: {tailgate.dev/gate: x}}, spec: {tool: pinger, placement: {client: {}, server: {}}, criteria: {rules: [{metric: p99, max: 5us}]}}}", "{}", "spec.template.metadata.labels", "the operator's own"),
		gate("a label that no object can have", "small", "template: {metadata: {labels: {team: 'a b'}}, spec: {tool: pinger, placement: {client: {}, server: {}}, criteria: {rules: [{metric: p99, max: 5us}]}}}", "{}", "spec.template.metadata.labels.team", "should match"),
		gate("an annotation of the operator", "small", "template: {metadata: {annotations: {tailgate.dev/accept: x}}, spec: {tool: pinger, placement: {client: {}, server: {}}, criteria: {rules: [{metric: p99, max: 5us}]}}}", "{}", "spec.template.metadata.annotations", "the operator's own"),
		gate("a template that no benchmark could have", "small", "{}", "{tool: netperf, highestPercentile: p99.9}", "spec.template", "netperf reports only"),
		gate("an unknown key of the identity", "small", "identity: {keys: [Colour]}", "{}", "spec.identity.keys[0]", "supported values"),
		gate("a time zone without a schedule", "small", "timeZone: Europe/Zurich", "{}", "timeZone", "applies only to a schedule"),
		gate("a time zone in the schedule", "small", "schedule: 'TZ=UTC 0 3 * * *'", "{}", "spec.schedule", "time zone in timeZone"),
		gate("a schedule without times of day", "small", "schedule: '@every 1h'", "{}", "spec.schedule", "times of day"),
		gate("hold pods as a boolean", "small", "enforcement: {holdPod: true}", "{}", "spec.enforcement.holdPod", "must be of type object"),
		gate("an unknown effect", "small", "enforcement: {taint: {effect: PreferNoSchedule}}", "{}", "spec.enforcement.taint.effect", "supported values"),
		gate("no slot", "small", "maxParallel: 0", "{}", "spec.maxParallel", "must be a number from 1 to 100"),
		gate("more than all nodes", "small", "maxParallel: 101%", "{}", "spec.maxParallel", "must be a number from 1 to 100"),
		gate("a text as the number of slots", "small", "maxParallel: many", "{}", "spec.maxParallel", "must be a number from 1 to 100"),
		gate("a negative number of nodes", "small", "maxUnverified: -1", "{}", "spec.maxUnverified", "greater than or equal to 0"),
		gate("no history", "small", "historyLimit: 0", "{}", "spec.historyLimit", "greater than or equal to 1"),
		gate("a workload without labels", "small", "workloads: [{name: feed, namespace: trading, selector: ''}]", "{}", "spec.workloads[0].selector", "at least 1"),
		gate("two workloads of one name", "small", "workloads: [{name: feed, namespace: a, selector: app=a}, {name: feed, namespace: b, selector: app=a}]", "{}", "spec.workloads[1]", "Duplicate value"),
		gate("a template that is suspended", "small", "{}", "suspend: true", "spec.template.spec.suspend").but("unknown field", "write spec.suspend"),
		gate("a template that is deleted", "small", "{}", "ttlSecondsAfterFinished: 0", "spec.template.spec.ttlSecondsAfterFinished", "unknown field"),
		gate("a template of a series", "small", "{}", "historyLimit: 3", "spec.template.spec.historyLimit").but("unknown field", "write spec.historyLimit"),
		labelled("a space", "example.com/NIC firmware", "keys that a label can have"),
		labelled("an exclamation mark", "nic_firmware!", "keys that a label can have"),
		labelled("no name", "example.com/", "keys that a label can have"),
		labelled("two slashes", "a/b/c", "keys that a label can have"),
		labelled("an uppercase prefix", "Example.com/firmware", "keys that a label can have"),
		labelled("a name of 64 characters", strings.Repeat("x", 64), "keys that a label can have"),
		labelled("a prefix of 254 characters", strings.Repeat("x", 254)+"/a", "keys that a label can have"),
		labelled("the gate's own label", v1alpha1.NodeLabelVerified, "the gate itself sets this label"),
		labelled("a label of NFD", "feature.node.kubernetes.io/kernel-version.full"),
		labelled("the longest", strings.Repeat("x", 253)+"/"+strings.Repeat("y", 63)),

		scheduled("0 3 * * 7", "", "spec.schedule"),
		scheduled("@DAILY", "", "spec.schedule"),
		scheduled("0 0 3 * * *", "", "spec.schedule"),
		scheduled("5-1 * * * *", "", "spec.schedule"),
		scheduled("@daily", "UTC+2", "spec.timeZone"),
		scheduled("@weekly", "Local", "spec.timeZone"),
		scheduled("@monthly", "Europe/Zuerich", "spec.timeZone"),
		gate("a schedule in a time zone, with a window", "scheduled", "{schedule: 0 3 * * SUN, timeZone: Europe/Zurich, scheduleWindow: 1h}", "{}"),
	}
}

// verification returns a case of a verification that names what cannot exist.
func verification(name, gate, node, field string) Case {
	object := changed(`
apiVersion: tailgate.dev/v1alpha1
kind: LatencyVerification
metadata: {name: names}
spec: {}
`, fmt.Sprintf("{gateName: %q, nodeName: %q}", gate, node), "{}")
	return Case{Name: "a verification with " + name, Object: object, Refusal: []string{field, "should match"}}
}

func verifications() []Case {
	return []Case{
		verification("a gate with a slash", "a/b", "node-a", "spec.gateName"),
		verification("no gate", "", "node-a", "spec.gateName"),
		verification("a node with a slash", "gate", "a/b", "spec.nodeName"),
		verification("no node", "gate", "", "spec.nodeName"),
		request("an acceptance without a user", "{benchmark: b, requestTime: '2026-05-04T12:00:00Z'}", "spec.accept.requestedBy", "Required"),
		request("an acceptance of nothing", "{benchmark: '', requestedBy: a, requestTime: '2026-05-04T12:00:00Z'}", "spec.accept.benchmark", "at least 1"),
		request("an acceptance at no time", "{benchmark: b, requestedBy: a}", "spec.accept.requestTime", "Required"),
	}
}

// request returns a case of a verification that requests what cannot be requested.
func request(name, accept string, refusal ...string) Case {
	c := verification(name, "gate", "node-a", "")
	replace(c.Object.Object["spec"].(map[string]any), "{accept: "+accept+"}")
	c.Refusal = refusal
	return c
}
