package v1alpha1

// Labels on the objects of a benchmark select them; the ownerReference decides to which benchmark an object belongs.
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
	// LabelNode holds the name of the node that the object is about, shortened (Shortened) to 63 characters.
	LabelNode = "tailgate.dev/node"
	// LabelSeries is set by users: benchmarks of a namespace with the same value are one series (spec.historyLimit).
	LabelSeries = "tailgate.dev/series"
	// LabelHold is "true" on hold pods. Hold pods also have NodeLabelVerified, with the value at their creation.
	LabelHold = "tailgate.dev/hold"
	// LabelManagedBy marks everything the manager created. The manager caches pods and ConfigMaps with it only.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedByTailgate is the value of LabelManagedBy.
	ManagedByTailgate = "tailgate"
)

// The two roles of an endpoint.
const (
	RoleClient = "client"
	RoleServer = "server"
)
