package v1alpha1

// Labels on the pods and ConfigMaps of a benchmark. A benchmark's name is short enough to be a label value
// (admission sees to it). A label selects; the ownerReference decides.
const (
	// LabelBenchmark holds the name of the LatencyBenchmark, on every pod and ConfigMap made for it.
	LabelBenchmark = "tailgate.dev/benchmark"
	// LabelMatrix holds the name of the LatencyMatrix, on the benchmark of each pair.
	LabelMatrix = "tailgate.dev/matrix"
	// LabelRun holds the name of the run (see internal/plan), on its pods and its stored result.
	LabelRun = "tailgate.dev/run"
	// LabelAttempt holds the number of the attempt, from 1, on the pods of a run.
	LabelAttempt = "tailgate.dev/attempt"
	// LabelRole holds RoleClient or RoleServer, on the pods of a run.
	LabelRole = "tailgate.dev/role"
	// LabelGate holds the name of the LatencyGate, on the benchmarks and hold pods made for it.
	LabelGate = "tailgate.dev/gate"
	// LabelNode holds the name of the node that they are about, or what Shortened makes of a name of more than 63
	// characters.
	LabelNode = "tailgate.dev/node"
	// LabelSeries is the user's, on benchmarks: those of a namespace with the same value are one history. A rerun keeps it;
	// see spec.historyLimit.
	LabelSeries = "tailgate.dev/series"
	// LabelHold is "true" on hold pods. They also have NodeLabelVerified, as it was when they were made.
	LabelHold = "tailgate.dev/hold"
	// LabelManagedBy marks everything the manager created; its value is ManagedByTailgate. The manager
	// caches pods and ConfigMaps with this label only.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedByTailgate is the value of LabelManagedBy.
	ManagedByTailgate = "tailgate"
)

// The two roles of an endpoint.
const (
	RoleClient = "client"
	RoleServer = "server"
)
