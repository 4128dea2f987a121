package v1alpha1

import "strconv"

// PlacementState says whether the placement of endpoints was proved to be as requested.
// +kubebuilder:validation:Enum=Verified;Unverified
type PlacementState string

const (
	PlacementVerified   PlacementState = "Verified"
	PlacementUnverified PlacementState = "Unverified"
)

// CellResult is the result of one cell over all finished rounds, with latencies in nanoseconds of latencyType.
type CellResult struct {
	// variant is the name of the variant, default if the spec has no variants.
	// +kubebuilder:validation:MaxLength=63
	Variant string `json:"variant"`
	// name is protocol, size and rate, such as tcp-64, udp-64-at-23000 or tcp-stream-65536.
	// +kubebuilder:validation:MaxLength=63
	Name    string `json:"name"`
	Traffic `json:",inline"`
	// latencyType is RTT, HalfRTT or InToOut (at the server's interface, from request to response); absent for streams.
	LatencyType ResultLatencyType `json:"latencyType,omitempty"`
	// countedFrom is the start of latencies at a rate: Intended (when the message was scheduled) or Actual (when sent).
	// +kubebuilder:validation:Enum=Intended;Actual
	CountedFrom string `json:"countedFrom,omitempty"`
	// rounds is the number of rounds of the result.
	Rounds int32 `json:"rounds"`
	// samples is the number of round trips of the result.
	Samples int64 `json:"samples"`
	// lost is the number of messages without a sample: not answered or received, or out of the histogram's range.
	Lost int64 `json:"lost"`
	// lostFrom is the lowest percentile that is unknown because of lost or unrecorded messages, if there is one.
	LostFrom Percentile `json:"lostFrom,omitempty"`
	// minNanoseconds is the exact smallest sample.
	MinNanoseconds *int64 `json:"minNanoseconds,omitempty"`
	// meanNanoseconds is the mean of all samples.
	MeanNanoseconds *int64 `json:"meanNanoseconds,omitempty"`
	// stddevNanoseconds is the standard deviation of all samples.
	StddevNanoseconds *int64 `json:"stddevNanoseconds,omitempty"`
	// maxNanoseconds is the exact largest sample.
	MaxNanoseconds *int64 `json:"maxNanoseconds,omitempty"`
	// percentiles are in ascending order, those with ten samples beyond them that do not fall among the lost messages.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=9
	Percentiles []PercentileResult `json:"percentiles,omitempty"`
	// needsSamples is the total number of samples that the first absent percentile needs; 0 if no percentile is absent.
	NeedsSamples int64 `json:"needsSamples,omitempty"`
	// stepNanoseconds is the resolution of a tool without samples. Percentiles are then medians of rounds' percentiles.
	StepNanoseconds int64 `json:"stepNanoseconds,omitempty"`
	// spread is the variation of each percentile between the rounds, with two rounds or more.
	// +listType=map
	// +listMapKey=percentile
	// +kubebuilder:validation:MaxItems=9
	Spread []Spread `json:"spread,omitempty"`
	// ratios are p50, p99 and p99.9 relative to the first variant; absent for the first variant itself.
	// +listType=map
	// +listMapKey=percentile
	// +kubebuilder:validation:MaxItems=3
	Ratios []Ratio `json:"ratios,omitempty"`
	// bandwidth is the result of a stream.
	Bandwidth *BandwidthResult `json:"bandwidth,omitempty"`
	// outliers describes the events with which samples beyond p99.9 coincide, if the tool reports them.
	// +kubebuilder:validation:MaxLength=512
	Outliers string `json:"outliers,omitempty"`
}

// Headline returns the result of the first variant in the cell of summary, or the first result; nil without results.
func (s *LatencyBenchmarkStatus) Headline() *CellResult {
	if len(s.Results) == 0 {
		return nil
	}
	if s.Summary != nil {
		for i := range s.Results {
			if s.Results[i].Variant == s.Summary.Variant && s.Results[i].Name == s.Summary.Cell {
				return &s.Results[i]
			}
		}
	}
	return &s.Results[0]
}

func (c *CellResult) Percentile(name Percentile) *int64 { return nanosecondsOf(c.Percentiles, name) }

// PercentileResult is the value of one percentile.
type PercentileResult struct {
	// name of the percentile, p50 to p99.9999.
	Name Percentile `json:"name"`
	// nanoseconds is its value.
	Nanoseconds int64 `json:"nanoseconds"`
}

func nanosecondsOf(all []PercentileResult, name Percentile) *int64 {
	for i := range all {
		if all[i].Name == name {
			return &all[i].Nanoseconds
		}
	}
	return nil
}

// ResultLatencyType says what the latencies of a result count.
// +kubebuilder:validation:Enum=HalfRTT;RTT;InToOut
type ResultLatencyType string

// ResultInToOut is the time from the arrival of a request at the server's interface to the departure of the answer.
const ResultInToOut ResultLatencyType = "InToOut"

// Spread is the variation of a percentile between rounds, in nanoseconds of the result's latencyType.
type Spread struct {
	// percentile of the samples of each round.
	Percentile Percentile `json:"percentile"`
	// rounds is the number of rounds with enough samples for the percentile.
	Rounds int32 `json:"rounds"`
	// minNanoseconds is the lowest value.
	MinNanoseconds int64 `json:"minNanoseconds"`
	// medianNanoseconds is the median, for an even number of rounds the lower median.
	MedianNanoseconds int64 `json:"medianNanoseconds"`
	// maxNanoseconds is the highest value.
	MaxNanoseconds int64 `json:"maxNanoseconds"`
}

// Ratio is a percentile of a variant as a multiple of the first variant's. Bounds are rounded outwards.
type Ratio struct {
	// percentile that is compared.
	Percentile Percentile `json:"percentile"`
	// estimate is the median ratio of pairs of rounds (Hodges-Lehmann); with too few samples, the ratio of all samples.
	Estimate Factor `json:"estimate"`
	// lower is the lower bound of the 95 % interval (exact Mann-Whitney); absent with fewer than four rounds a side.
	Lower Factor `json:"lower,omitempty"`
	// upper is the upper bound of the 95 % interval; absent without an upper bound.
	Upper Factor `json:"upper,omitempty"`
}

// Factor is a ratio, or a relative deviation, as a decimal number, such as 1.0700.
// +kubebuilder:validation:MaxLength=32
type Factor string

func FactorOf(v float64, decimals int) Factor {
	return Factor(strconv.FormatFloat(v, 'f', decimals, 64))
}

// Value returns the number; 0 if it is absent.
func (f Factor) Value() float64 {
	v, _ := strconv.ParseFloat(string(f), 64) // The operator writes no other.
	return v
}

// BandwidthResult is the payload that arrived at the receiver of a stream.
type BandwidthResult struct {
	// bitsPerSecond is the median of the rounds.
	BitsPerSecond int64 `json:"bitsPerSecond"`
	// minBitsPerSecond is the lowest of the rounds.
	MinBitsPerSecond int64 `json:"minBitsPerSecond"`
	// maxBitsPerSecond is the highest of the rounds.
	MaxBitsPerSecond int64 `json:"maxBitsPerSecond"`
	// sentBitsPerSecond is the rate at which the sender wrote to its socket, the median of the rounds.
	SentBitsPerSecond int64 `json:"sentBitsPerSecond"`
	// retransmits is the number of retransmitted TCP segments in all rounds; absent if the tool does not report it.
	Retransmits *int64 `json:"retransmits,omitempty"`
}

// Warning is a limitation of the results.
type Warning struct {
	// reason is the warning's type.
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason"`
	// message describes the observation and its meaning.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}

// Endpoint has the observations of an agent in its pod.
type Endpoint struct {
	// variant is the name of the variant.
	// +kubebuilder:validation:MaxLength=63
	Variant string `json:"variant"`
	// role is client or server.
	// +kubebuilder:validation:Enum=client;server
	Role string `json:"role"`
	// node is the node's name.
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// kernel is the node's kernel release.
	// +kubebuilder:validation:MaxLength=256
	Kernel string `json:"kernel,omitempty"`
	// cpus is the list of CPUs that the pod may use, as in /proc/self/status.
	// +kubebuilder:validation:MaxLength=256
	CPUs string `json:"cpus,omitempty"`
	// measuringCPU is the CPU to which the tool was pinned.
	MeasuringCPU int32 `json:"measuringCPU"`
	// cpuNUMANode is the NUMA node of the measuring CPU, -1 when unknown.
	CPUNUMANode int32 `json:"cpuNUMANode"`
	// interface is the interface that carried the messages.
	// +kubebuilder:validation:MaxLength=64
	Interface string `json:"interface,omitempty"`
	// address is the endpoint's address on the measured network.
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address,omitempty"`
	// mtu is the interface's MTU in bytes.
	MTU int32 `json:"mtu,omitempty"`
	// driver is the interface's kernel driver.
	// +kubebuilder:validation:MaxLength=64
	Driver string `json:"driver,omitempty"`
	// pciAddress is the PCI address of the interface's device, if there is one.
	// +kubebuilder:validation:MaxLength=64
	PCIAddress string `json:"pciAddress,omitempty"`
	// deviceNUMANode is the NUMA node of the device, -1 when unknown.
	DeviceNUMANode int32 `json:"deviceNUMANode"`
	// toolVersion is the version that the tool reports.
	// +kubebuilder:validation:MaxLength=256
	ToolVersion string `json:"toolVersion,omitempty"`
	// placement is Verified if every request about placement, device and acceleration was proved at this endpoint.
	Placement PlacementState `json:"placement"`
	// proof are the checks, each with the expected and the found value.
	// +listType=map
	// +listMapKey=check
	// +kubebuilder:validation:MaxItems=24
	Proof []ProofLine `json:"proof,omitempty"`
}

// +kubebuilder:validation:Enum=Proved;Failed;Unknown;Noted
type ProofState string

const (
	// ProofProved is for a found value that is the expected one.
	ProofProved ProofState = "Proved"
	// ProofFailed is for a found value that is not the expected one.
	ProofFailed ProofState = "Failed"
	// ProofUnknown is for an expected value that could not be verified.
	ProofUnknown ProofState = "Unknown"
	// ProofNoted is for a fact that the spec does not request but that affects the measurement.
	ProofNoted ProofState = "Noted"
)

// ProofLine is one check of an endpoint.
type ProofLine struct {
	// check is the check's name, such as CPUsExclusive or NUMALocal.
	// +kubebuilder:validation:MaxLength=63
	Check string `json:"check"`
	// state is Proved, Failed, Unknown or Noted.
	State ProofState `json:"state"`
	// expected is the requested value; absent if the state is Noted.
	// +kubebuilder:validation:MaxLength=256
	Expected string `json:"expected,omitempty"`
	// found is the value that the agent or the API server reported.
	// +kubebuilder:validation:MaxLength=256
	Found string `json:"found,omitempty"`
}
