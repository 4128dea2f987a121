// Package tool defines the measuring tools and their drivers. A Driver is pure: it builds the command lines of the two ends for one cell,
// and reads the output of the client. All latencies that leave this package are round-trip times in nanoseconds, whatever the tool
// prints.
package tool

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// Cell is the unit that one pair of tool processes measures: one kind of traffic.
type Cell struct {
	// Name is unique in a run, such as tcp-64, udp-64-at-23000 or tcp-stream-65536.
	Name string `json:"name"`
	v1alpha1.Traffic
	// Wait states whether both ends sleep or poll until a message arrives; empty: sleep.
	Wait v1alpha1.WaitMode `json:"wait,omitempty"`
	// Muxer is the system call with which both ends wait for a socket; empty: none, they call recv.
	Muxer v1alpha1.Muxer `json:"muxer,omitempty"`
	// MulticastGroup is the group of a cell with protocol Multicast; empty: the tool's own choice.
	MulticastGroup string `json:"multicastGroup,omitempty"`
	// Duration is the measuring time after the warm-up.
	Duration time.Duration `json:"duration"`
	// Warmup is the time whose samples do not count.
	Warmup time.Duration `json:"warmup"`
	// LossAfter is the time after which a datagram without an answer is lost; 0: the tool's own.
	LossAfter time.Duration `json:"lossAfter,omitempty"`
}

const (
	// DatagramHeaders is the size of the headers of IPv4 and UDP, in bytes.
	DatagramHeaders = 28
	// MaxDatagram is the payload of the largest UDP datagram over IPv4.
	MaxDatagram = 65_535 - DatagramHeaders
)

// Spins reports whether both ends poll.
func (c Cell) Spins() bool { return c.Wait == v1alpha1.WaitSpin }

// Target holds the addresses and resources that an end is started with.
type Target struct {
	Address string
	Port    int
	// LocalAddress is the client's own address on the measured network; set for the client only. See Command.Routed.
	LocalAddress string
	// CPUs are the CPUs on which the tool may run at this end, as many as Driver.CPUs asked for.
	CPUs []int
	// ServerCPU is the CPU on which the server runs; set for the client only, which tells it the server in some tools.
	ServerCPU int
	// Scratch is an existing, empty, writable folder; set only for the client of a tool with RawFiles.
	Scratch string
	// Token is a word that only the two ends of this run know; for tools whose server can authenticate its client.
	Token string
}

// Command is a program with its arguments. It is executed directly, never through a shell.
type Command struct {
	Path string
	Args []string
	// Env is added to the environment, as KEY=value.
	Env []string
	// Interrupt is true for a server that prints what it received when it is interrupted (SIGINT).
	Interrupt bool
	// Routed is true for a client that cannot bind all of its measured traffic to Target.LocalAddress: the route to the server decides.
	Routed bool
}

// Output holds the output of a finished client.
type Output struct {
	Stdout, Stderr []byte
	// ExitCode is 0 in some tools even when they fail.
	ExitCode int
	// OpenRaw opens a file that the client wrote in Target.Scratch, by its name.
	OpenRaw func(name string) (io.ReadCloser, error)
	// Server is the complete output of the tool's server; nil when it was not kept.
	Server []byte
	// Clocks are how far the agent's clocks advanced while the client's process existed.
	Clocks Clocks
}

// Measurement holds the contents of a client's output, except the recorded samples.
type Measurement struct {
	// Version is the tool's version as it prints it; empty when it printed none.
	Version string
	// Lost is the number of messages that were sent and not answered.
	Lost int64
	// Unrecorded is the number of messages whose latency is unknown, although they were not lost: the tool left their answers out, or did
	// not send them when they were due. A percentile is then known to a range that counts them at both of its ends.
	Unrecorded int64
	// Sums and ActualSums are the exact sums of the samples, from a tool that reports only the bucket of each; nil when samples are exact.
	Sums, ActualSums *Sums
	// Start states the time from which the recorded round trips of an open loop are measured.
	Start StartTime
	// Own holds the tool's own statistics, from a tool that reports no samples; nil when there are samples.
	Own *Own
	// Bandwidth is the result of a cell that streams, or of a tool that also reports it at its rate; nil otherwise.
	Bandwidth *Bandwidth
	// Attribution states which interruptions the slowest samples coincide with; nil from tools that do not report it.
	Attribution *Attribution
	// Intervals are the consecutive parts of a measurement, in order and without gaps; nil from tools that keep none.
	Intervals   []Interval
	Accelerated Accelerated
	// Figures are the tool's own results, such as "median (ns, half RTT)": kept for comparison, never used for our results.
	Figures []Figure
	// Warnings are the warnings of the tool and its driver, such as a clock that changed its speed during the test.
	Warnings []string
}

// StartTime is the time from which the round trips of an open loop are measured.
type StartTime string

// The start times. A closed loop has none: a message is due when the answer to the last has come.
const (
	// StartIntended is the time at which the schedule required the message to be sent: delays of the sender are included.
	StartIntended StartTime = "Intended"
	// StartActual is the time at which it was sent: messages that were sent late look no slower.
	StartActual StartTime = "Actual"
)

// Own holds statistics as computed by a tool, of round trips in nanoseconds. A field that is 0 was not reported.
type Own struct {
	// Count is the number of round trips.
	Count int64 `json:"count"`
	// MeanNs is exact when the tool reports the rate.
	MeanNs   float64 `json:"meanNs"`
	MinNs    int64   `json:"minNs,omitempty"`
	MaxNs    int64   `json:"maxNs,omitempty"`
	StdDevNs int64   `json:"stdDevNs,omitempty"`
	P50Ns    int64   `json:"p50Ns,omitempty"`
	P90Ns    int64   `json:"p90Ns,omitempty"`
	P99Ns    int64   `json:"p99Ns,omitempty"`
	// Ranges hold the true percentiles, in the order of the fields above. Without a range, a percentile is rounded to StepNs.
	Ranges [3]Range `json:"ranges,omitzero"`
	// StepNs is the step of the clock with which the tool timed each round trip, such as 1000 for whole microseconds.
	StepNs int64 `json:"stepNs"`
	// Ladder holds all percentiles of a result that was not measured by Tailgate, in ascending order, instead of the fields above.
	Ladder []OwnPercentile `json:"ladder,omitempty"`
}

// Range is where a value lies, in nanoseconds, both ends inclusive.
type Range struct {
	LowNs  int64 `json:"lowNs"`
	HighNs int64 `json:"highNs"`
}

// OwnPercentile is a percentile that a tool computed, in nanoseconds, with the range in which the true one lies.
type OwnPercentile struct {
	Name v1alpha1.Percentile `json:"name"`
	Ns   int64               `json:"ns"`
	Range
	// Events is the number of samples up to the percentile; 0 if it was not reported.
	Events int64 `json:"events,omitempty"`
}

// Percentiles returns the percentiles that the tool reported, in ascending order.
func (o Own) Percentiles() []OwnPercentile {
	all := slices.Clone(o.Ladder)
	for i, p := range []OwnPercentile{
		{Name: v1alpha1.P50, Ns: o.P50Ns}, {Name: v1alpha1.P90, Ns: o.P90Ns}, {Name: v1alpha1.P99, Ns: o.P99Ns},
	} {
		if p.Range = o.Ranges[i]; p.Range == (Range{}) {
			p.Range = Range{max(p.Ns-(o.StepNs+1)/2, 0), p.Ns + (o.StepNs+1)/2}
		}
		if p.Ns > 0 {
			all = append(all, p)
		}
	}
	return all
}

// Bandwidth is the result of a cell that streams.
type Bandwidth struct {
	// BitsPerSecond is the payload that arrived at the receiver, in bits per second.
	BitsPerSecond float64 `json:"bitsPerSecond"`
	// SentBitsPerSecond is the payload that the sender handed to its socket.
	SentBitsPerSecond float64 `json:"sentBitsPerSecond"`
	// Sent and Received count messages. Both are 0 for TCP, which has no messages.
	Sent     int64 `json:"sent,omitempty"`
	Received int64 `json:"received,omitempty"`
	// Retransmits is the number of retransmitted TCP segments; nil when the tool does not report it.
	Retransmits *int64 `json:"retransmits,omitempty"`
}

// Attribution counts the samples beyond p99.9 by the end whose interruption they coincide with.
type Attribution struct {
	// Beyond is the number of samples beyond p99.9. Examined is how many of them, the slowest, were examined.
	Beyond   int64 `json:"beyond"`
	Examined int64 `json:"examined"`
	// Client, Server, Both and Neither state whose CPU was interrupted for at least half of the time by which a sample exceeds the
	// median. Undetermined counts the samples for which an end lacked the data.
	Client       int64 `json:"client"`
	Server       int64 `json:"server"`
	Both         int64 `json:"both"`
	Neither      int64 `json:"neither"`
	Undetermined int64 `json:"undetermined"`
	// ClientSeesGaps and ServerSeesGaps are false for an end that slept while it waited: it sees only the time of its own send.
	ClientSeesGaps bool `json:"clientSeesGaps"`
	ServerSeesGaps bool `json:"serverSeesGaps"`
	// Slowest lists some of the examined samples one by one, the slowest first; empty from tools that do not.
	Slowest []Outlier `json:"slowest,omitempty"`
}

// Outlier is one slow sample.
type Outlier struct {
	// AtNs is when its message was or, at a rate, should have been sent, in ns from the start of the measurement, and RTTNs its round
	// trip from that time on.
	AtNs  int64 `json:"atNs"`
	RTTNs int64 `json:"rttNs"`
	// Samples is the number of examined samples that this one represents: at a rate a stall delays many messages, and the slowest
	// represents all that have the same cause and were in flight at the same time.
	Samples int64 `json:"samples"`
	Where   Where `json:"where"`
	// ClientGapNs and ServerGapNs are how long the two were kept from the message, in ns beyond the usual time: an end that sleeps does
	// not see how late it was woken. ServerGapNs is nil when the server's list of its longest gaps lacks the message.
	ClientGapNs int64  `json:"clientGapNs"`
	ServerGapNs *int64 `json:"serverGapNs,omitempty"`
}

// Where states whose interruption a slow sample coincides with, as counted in Attribution.
type Where string

const (
	WhereClient       Where = "client"
	WhereServer       Where = "server"
	WhereBoth         Where = "both"
	WhereNeither      Where = "neither"
	WhereUndetermined Where = "undetermined"
)

// Interval is a part of a measurement. StartNs counts from its start; latencies are round trips in ns.
type Interval struct {
	StartNs  int64 `json:"startNs"`
	LengthNs int64 `json:"lengthNs"`
	Count    int64 `json:"count"`
	P50Ns    int64 `json:"p50Ns"`
	P99Ns    int64 `json:"p99Ns"`
	P999Ns   int64 `json:"p999Ns"`
	MaxNs    int64 `json:"maxNs"`
	Lost     int64 `json:"lost,omitempty"`
}

// Accelerated holds what the sockets of the two ends reported about their acceleration.
type Accelerated struct {
	Client Acceleration `json:"client,omitempty"`
	Server Acceleration `json:"server,omitempty"`
}

// Acceleration states whether a socket is accelerated by Onload.
type Acceleration string

// The values of Acceleration. Empty: not requested, or Onload did not report it.
const (
	// AccelerationYes and AccelerationNo are Onload's own report for the socket.
	AccelerationYes Acceleration = "Yes"
	AccelerationNo  Acceleration = "No"
	// AccelerationAbsent means that Onload is not loaded into the process.
	AccelerationAbsent Acceleration = "Absent"
)

// Sums are exact sums, of the samples between 1 ns and 60 s, when the samples are known only to the width of a bucket.
type Sums struct {
	SumNs           int64
	SumOfSquaresNs2 float64
}

type Figure struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Driver drives one tool. Server and client are one process per cell; the client ends by itself.
type Driver interface {
	Name() v1alpha1.Tool
	// Limits returns what the tool measures, and what it needs.
	Limits() Base
	// Validate returns the reason why the tool cannot measure a cell, or nil.
	Validate(c Cell) error
	// Server returns the command of the server, which listens on Target.Port.
	Server(c Cell, t Target) Command
	// Listens returns the protocol of the socket that a ready server has bound to Target.Port.
	Listens(c Cell) v1alpha1.Protocol
	Client(c Cell, t Target) Command
	// Deadline returns the longest time that a client may take for a cell before it is killed.
	Deadline(c Cell) time.Duration
	// Memory returns the most memory that a client may use for a cell, in bytes.
	Memory(c Cell) int64
	// MostSamples returns the most round trips of a cell in a round; known is false when that depends on how long a round trip takes.
	MostSamples(c Cell) (n int64, known bool)
	// CPUs returns how many CPUs of its own the client needs for a cell, at least 1; the server needs one.
	CPUs(c Cell) int
	// Parse reads the output of a finished client and calls record for every sample that counts, in the order of measurement or, for a
	// tool that keeps a histogram, in ascending order: with the round-trip time in ns and the number of samples with that time. It
	// returns a *Failure when the measurement is not valid; the samples recorded before must then be dropped.
	// If Start is StartIntended, it calls actual with the same round trips from the time each message was sent, in any order.
	Parse(c Cell, out Output, record, actual func(rtt, count int64)) (Measurement, error)
}

// Failure is the error of a run without a valid measurement.
type Failure struct {
	// Reason is the outcome of the run.
	Reason string
	// Message states in one line what happened and, where it is known, the remedy.
	Message string
}

func (f *Failure) Error() string { return f.Message }

// Failf returns the Failure of a tool that failed, or did not measure, with a formatted message.
func Failf(format string, args ...any) error {
	return Fail(v1alpha1.OutcomeToolFailed, format, args...)
}

// Fail returns the Failure of a run with this outcome, with a formatted message.
func Fail(reason, format string, args ...any) error {
	return &Failure{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// mostUnrecorded is the largest share of unknown latencies, in percent: the median then lies between the p45 and the p55 of the samples.
const mostUnrecorded = 10

// CheckUnrecorded returns a Failure if too large a share of messages has an unknown latency; why states the cause.
func CheckUnrecorded(tool string, unrecorded, recorded int64, why string) error {
	if 100*unrecorded <= mostUnrecorded*(unrecorded+recorded) {
		return nil
	}
	return Fail(v1alpha1.OutcomeSamplesMissing, "%s recorded %d messages, and the latency of %d others is unknown, more than %d %%: %s",
		tool, recorded, unrecorded, mostUnrecorded, why)
}

// Exited returns the Failure of a tool that ended with an exit code, with the cause and what the tool printed about it.
func Exited(tool string, code int, cause, printed string) error {
	if printed != "" {
		cause += ": " + printed
	}
	return Failf("%s failed (exit code %d): %s", tool, code, cause)
}

// SecondPort is the cause of the failure of a tool whose control connection worked, but not the one for its messages.
const SecondPort = "its control connection worked, but not the second one, to another port: does a firewall or a NetworkPolicy block it? " +
	"All ports must be open between the two ends"

// mostPrinted is the most of a tool's output that a message quotes, in bytes.
const mostPrinted = 400

func OneLine(printed string) string { return text.OneLine(printed, mostPrinted) }

// Cause is the cause of a failure, with the remedy where it is known, and then the parts of a tool's output any of which means it.
type Cause []string

// WhyOf returns the first of the causes that a text names; empty if it names none.
func WhyOf(text string, causes []Cause) string {
	for _, c := range causes {
		if slices.ContainsFunc(c[1:], func(part string) bool { return strings.Contains(text, part) }) {
			return c[0]
		}
	}
	return ""
}

// Registry finds drivers by name.
type Registry map[v1alpha1.Tool]Driver

func NewRegistry(drivers ...Driver) Registry {
	r := Registry{}
	for _, d := range drivers {
		r[d.Name()] = d
	}
	return r
}

func (r Registry) Get(name v1alpha1.Tool) (Driver, error) {
	d, ok := r[name]
	if !ok {
		return nil, fmt.Errorf("unknown tool %q", name)
	}
	return d, nil
}
