package admission

import "strings"

// matrix returns a case of a matrix with fields of its spec, and of its template's spec, replaced.
func matrix(name, spec, template string, refusal ...string) Case {
	return Case{Name: "a matrix with " + name, Object: Matrix(spec, template), Refusal: refusal}
}

func matrices() []Case {
	// named returns a case of a matrix whose name, and the name of its variant, have a length.
	named := func(name string, length, variant int, refusal ...string) Case {
		variants := "{}"
		if variant > 0 {
			variants = "variants: [{name: " + strings.Repeat("v", variant) + "}]"
		}
		c := matrix(name, "{}", variants, refusal...)
		c.Object.SetName(strings.Repeat("x", length))
		return c
	}
	return []Case{
		matrix("no topology", "topology: null", "{}", "spec.topology", "Required value"),
		matrix("an unknown topology", "topology: Mesh", "{}", "spec.topology", "supported values", "AllPairs"),
		matrix("no nodes", "nodes: null", "{}", "spec.nodes", "Required value"),
		matrix("no template", "template: null", "{} # none", "spec.template", "Required value"),
		matrix("a star without a server", "topology: Star", "{}", "server: required by topology Star"),
		matrix("a server of a ring", "{topology: Ring, server: {}}", "{}", "server: required by topology Star, and not allowed with Ring and AllPairs"),
		matrix("no place for a pair", "parallelism: 0", "{}", "spec.parallelism", "greater than or equal to 1"),
		matrix("51 pairs at once", "parallelism: 51", "{}", "spec.parallelism", "less than or equal to 50"),
		matrix("nodes by name and by labels", "nodes: {nodeName: a, nodeSelector: {matchLabels: {rack: '1'}}}", "{}", "spec.nodes", "only one of"),
		matrix("a template that selects its client", "{}", "placement: {client: {nodeName: a}}", "template.spec.placement", "must not select nodes"),
		matrix("a template that selects its server", "{}", "placement: {server: {nodeSelector: {matchLabels: {rack: '1'}}}}", "template.spec.placement", "must not select nodes"),
		matrix("a template that lists its clients", "{}", "placement: {client: {nodeNames: [a]}}", "template.spec.placement", "must not select nodes"),
		matrix("a template that is suspended", "{}", "suspend: true", "spec.template.spec.suspend").but("unknown field", "write spec.suspend"),
		matrix("a template that is deleted", "{}", "ttlSecondsAfterFinished: 60", "spec.template.spec.ttlSecondsAfterFinished").but("unknown field", "write spec.ttlSecondsAfterFinished"),
		matrix("a template of a series", "{}", "historyLimit: 3", "spec.template.spec.historyLimit", "unknown field"),
		matrix("itself as baseline", "{}", "criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {type: Matrix, matrix: {name: smallest}}}", "spec.criteria.baseline.matrix", "cannot be its own baseline"),
		matrix("two baselines", "{}", "criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {type: Matrix, matrix: {name: m}, benchmark: {name: b}}}", "benchmark belongs to type Benchmark"),
		matrix("a baseline that no gate accepted", "{}", "criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {type: Gate}}", "spec.criteria.baseline.gate", "name the LatencyGate"),
		matrix("a size that the tool does not have", "{}", "workload: {messageSizes: [1]}", "spec.template.spec"),
		matrix("a negative time to live", "ttlSecondsAfterFinished: -1", "{}", "spec.ttlSecondsAfterFinished", "greater than or equal to 0"),
		named("a name of 47 characters", 47, 0, "metadata.name: at most 46 characters, because the benchmark of each pair"),
		named("a long name and a long variant", 41, 11, "together have at most 51 characters"),

		matrix("the smallest", "{}", "{}"),
		matrix("a star", "{topology: Star, server: {nodeName: a}, parallelism: 50}", "{}"),
		matrix("a ring of nodes by names", "{topology: Ring, nodes: {nodeNames: [a, b, c]}}", "placement: {client: {}, server: {}, cpus: 2, numaPolicy: Preferred}"),
		matrix("another matrix as baseline", "{suspend: true, ttlSecondsAfterFinished: 0}", "criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {type: Matrix, matrix: {name: m}}}"),
		named("a name of 46 characters", 46, 0),
		named("a name and a variant as long as they may be", 41, 10),
	}
}
