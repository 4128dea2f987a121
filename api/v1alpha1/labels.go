package v1alpha1

// Labels on the objects of a benchmark select them; the ownerReference decides to which benchmark an object belongs.
const (
	LabelBenchmark    = "tailgate.dev/benchmark"       // name of the LatencyBenchmark, on its pods and ConfigMaps
	LabelMatrix       = "tailgate.dev/matrix"          // name of the LatencyMatrix, on the benchmark of each pair
	LabelRun          = "tailgate.dev/run"             // name of the run (internal/plan), on its pods and stored result
	LabelAttempt      = "tailgate.dev/attempt"         // number of the attempt, from 1, on the pods of a run
	LabelRole         = "tailgate.dev/role"            // RoleClient or RoleServer, on the pods of a run
	LabelGate         = "tailgate.dev/gate"            // name of the LatencyGate, on its benchmarks and hold pods
	LabelNode         = "tailgate.dev/node"            // name of the node of the object, Shortened to 63 characters
	LabelSeries       = "tailgate.dev/series"          // set by users: one series of benchmarks (spec.historyLimit)
	LabelHold         = "tailgate.dev/hold"            // "true" on hold pods, beside NodeLabelVerified as of creation
	LabelManagedBy    = "app.kubernetes.io/managed-by" // on all that the manager creates: it caches only these
	ManagedByTailgate = "tailgate"
)

const (
	RoleClient = "client"
	RoleServer = "server"
)
