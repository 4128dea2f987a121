// Package tool knows the programs that measure. A Driver is pure: it builds the argument vectors of the two
// ends for one cell, and reads what the client left behind. Starting, pinning and killing processes is the
// agent's business.
//
// All latencies that leave this package are round-trip times in nanoseconds, whatever the tool prints.
package tool

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// Cell is what one pair of tool processes measures: one kind of traffic.
type Cell struct {
	// Name is unique in a run, such as tcp-64, udp-64-at-23000 or tcp-stream-65536.
	Name string `json:"name"`
	// Stream is true for a cell that measures bandwidth: messages one way, as fast as they go. Otherwise each
	// message is answered and its round trip measured.
	Stream bool `json:"stream,omitempty"`
	// Protocol of the messages.
	Protocol v1alpha1.Protocol `json:"protocol"`
	// MessageSize is the payload of each message, in bytes.
	MessageSize int32 `json:"messageSize"`
	// RatePerSecond is how many messages are sent each second (open loop), whatever becomes of them. 0: the next
	// message follows the answer to the last (closed loop, ping-pong).
	RatePerSecond int32 `json:"ratePerSecond,omitempty"`
	// Wait says whether both ends sleep or poll until a message comes; empty: sleep.
	Wait v1alpha1.WaitMode `json:"wait,omitempty"`
	// Muxer is the system call with which both ends wait for a socket; empty: none, they call recv.
	Muxer v1alpha1.Muxer `json:"muxer,omitempty"`
	// MulticastGroup is the group of a cell with protocol Multicast; empty: the tool's own choice.
	MulticastGroup string `json:"multicastGroup,omitempty"`
	// Duration is the measuring time after the warm-up.
	Duration time.Duration `json:"duration"`
	// Warmup is the time whose samples do not count.
	Warmup time.Duration `json:"warmup"`
}

// Spins says whether both ends poll.
func (c Cell) Spins() bool { return c.Wait == v1alpha1.WaitSpin }

// OpenLoop says whether messages are sent at a rate.
func (c Cell) OpenLoop() bool { return c.RatePerSecond > 0 }

// Target is where the two ends meet.
type Target struct {
	// Address is the server's IP address on the measured network.
	Address string
	// Port is the server's port for the tool.
	Port int
	// LocalAddress is the client's own address on the measured network, from which it sends; of the client only. A tool
	// that cannot says so: Command.Routed.
	LocalAddress string
	// CPUs are those of this end on which the tool may run, as many as Driver.CPUs asked for. The process is
	// started with exactly these as its affinity.
	CPUs []int
	// ServerCPU is the CPU on which the server's end runs; of the client only, for tools whose client tells the
	// server where to run.
	ServerCPU int
	// Scratch is an existing, empty, writable folder; of the client of a driver with RawFiles only.
	Scratch string
	// Token is a word that only the two ends of this run know; for tools whose server can tell its client from
	// strangers.
	Token string
}

// Command is a program with its arguments. It is executed directly, never through a shell.
type Command struct {
	// Path is the program's name, found through PATH.
	Path string
	// Args are the arguments without the program's name.
	Args []string
	// Env is added to the environment, as KEY=value.
	Env []string
	// Interrupt is true for a server that prints what it received when it is interrupted (SIGINT).
	Interrupt bool
	// Routed is true for a client that does not bind all that it measures to Target.LocalAddress, because the tool
	// cannot: the route to the server decides from which address and by which interface its messages leave.
	Routed bool
}

// Output is what a client left behind.
type Output struct {
	// Stdout and Stderr are what it printed, complete.
	Stdout, Stderr []byte
	// ExitCode is its exit status. Some tools exit 0 whatever happened.
	ExitCode int
	// OpenRaw opens a file that the client wrote in Target.Scratch, by its name.
	OpenRaw func(name string) (io.ReadCloser, error)
	// Server is what the tool's server printed until it ended; nil when it was not kept.
	Server []byte
}

// Measurement is what a client's output says, next to the samples themselves.
type Measurement struct {
	// Version is the tool's own words for its version; empty when it printed none.
	Version string
	// Lost is the number of messages that were sent and not answered.
	Lost int64
	// Sums are those of the samples themselves, from a tool that tells only in which bucket of a histogram each
	// sample lies; nil when the recorded samples are exact.
	Sums *Sums
	// Start says from when the recorded samples of an open loop count.
	Start StartTime
	// ActualStart are the same round trips counted from when each message was really sent, of an open loop whose
	// recorded samples count from when it should have been. Nil otherwise.
	ActualStart *Samples
	// Own are the tool's own statistics, of a tool that tells no samples; nil when there are samples.
	Own *Own
	// Bandwidth is what a cell that streams found, or a tool that also tells the bandwidth of its rate; nil in others.
	Bandwidth *Bandwidth
	// Attribution says with what the slowest samples coincide; nil from tools that do not know.
	Attribution *Attribution
	// Intervals are the course of a measurement, in order and without gaps; nil from tools that keep none.
	Intervals []Interval
	// Accelerated says for each end what the socket itself reported about its acceleration.
	Accelerated Accelerated
	// Figures are the tool's own results as it printed them, such as "median (ns, half RTT)": kept for
	// comparison, never used for ours.
	Figures []Figure
	// Warnings are the tool's own, such as a clock that changed its speed during the test.
	Warnings []string
}

// StartTime is from when the round trips of an open loop count.
type StartTime string

// The start times. A closed loop has none: a message is due when the answer to the last has come.
const (
	// StartIntended is when the schedule said that the message was to be sent: a sender that is held up shows.
	StartIntended StartTime = "Intended"
	// StartActual is when it was sent: messages that left late look no slower.
	StartActual StartTime = "Actual"
)

// Samples are round-trip times in nanoseconds with their counts, in any order.
type Samples struct {
	RTT []Bucket
	// Sums of the samples where RTT has only buckets; nil when it is exact.
	Sums *Sums
}

// Bucket is a number of samples that took equally long.
type Bucket struct {
	RTTNs, Count int64
}

// Own are statistics as a tool made them, of round trips in nanoseconds. What is 0 was not reported, but for Lost.
type Own struct {
	// Count is the number of round trips.
	Count int64 `json:"count"`
	// MeanNs is exact when the tool knows the rate.
	MeanNs   float64 `json:"meanNs"`
	MinNs    int64   `json:"minNs,omitempty"`
	MaxNs    int64   `json:"maxNs,omitempty"`
	StdDevNs int64   `json:"stdDevNs,omitempty"`
	P50Ns    int64   `json:"p50Ns,omitempty"`
	P90Ns    int64   `json:"p90Ns,omitempty"`
	P99Ns    int64   `json:"p99Ns,omitempty"`
	// StepNs is the step to which all but the mean are rounded, such as 1000 for whole microseconds.
	StepNs int64 `json:"stepNs"`
}

// Bandwidth is the result of a cell that streams.
type Bandwidth struct {
	// BitsPerSecond is the payload that arrived at the receiver, in bits per second.
	BitsPerSecond float64 `json:"bitsPerSecond"`
	// SentBitsPerSecond is what the sender handed to its socket.
	SentBitsPerSecond float64 `json:"sentBitsPerSecond"`
	// Sent and Received count messages. TCP has none: there both are 0.
	Sent     int64 `json:"sent,omitempty"`
	Received int64 `json:"received,omitempty"`
	// Retransmits is the number of TCP segments sent again; nil when the tool does not tell.
	Retransmits *int64 `json:"retransmits,omitempty"`
}

// Attribution says with whose interruptions the samples beyond p99.9 coincide. All are numbers of samples but Slowest.
type Attribution struct {
	// Beyond is how many there are; Examined of them, the slowest, were looked at.
	Beyond   int64 `json:"beyond"`
	Examined int64 `json:"examined"`
	// Client, Server, Both and Neither say whose CPU was interrupted meanwhile, for at least half of the time by
	// which a sample is slower than the median. Undetermined is where an end could not tell.
	Client       int64 `json:"client"`
	Server       int64 `json:"server"`
	Both         int64 `json:"both"`
	Neither      int64 `json:"neither"`
	Undetermined int64 `json:"undetermined"`
	// ClientSeesGaps and ServerSeesGaps are false for an end that slept while it waited: it sees only the time
	// that its own send took.
	ClientSeesGaps bool `json:"clientSeesGaps"`
	ServerSeesGaps bool `json:"serverSeesGaps"`
	// Slowest are some of those examined one by one, the slowest first; empty from tools that do not tell.
	Slowest []Outlier `json:"slowest,omitempty"`
}

// Outlier is one slow sample.
type Outlier struct {
	// AtNs is when its message was sent or, at a rate, should have been sent, in ns from the start of the measurement;
	// RTTNs its round trip from then on, in ns.
	AtNs  int64 `json:"atNs"`
	RTTNs int64 `json:"rttNs"`
	// Samples is for how many of those examined it stands, itself included: at a rate a stall holds up many messages,
	// and the slowest stands for all with the same cause that were under way at the same time.
	Samples int64 `json:"samples"`
	// Where says with whose interruption it coincides.
	Where Where `json:"where"`
	// ClientGapNs and ServerGapNs are for how long that end was kept from the message, in ns beyond what is usual, and
	// as far as it sees: one that sleeps does not see how late it was woken. ServerGapNs is nil where the server's list
	// of its longest gaps does not have the message.
	ClientGapNs int64  `json:"clientGapNs"`
	ServerGapNs *int64 `json:"serverGapNs,omitempty"`
}

// Where is with whose interruption a slow sample coincides, as Attribution counts them.
type Where string

// The places.
const (
	WhereClient       Where = "client"
	WhereServer       Where = "server"
	WhereBoth         Where = "both"
	WhereNeither      Where = "neither"
	WhereUndetermined Where = "undetermined"
)

// Interval is a part of a measurement. Times are nanoseconds from its start; latencies are round trips in ns.
type Interval struct {
	StartNs  int64 `json:"startNs"`
	LengthNs int64 `json:"lengthNs"`
	Count    int64 `json:"count"`
	P50Ns    int64 `json:"p50Ns"`
	P99Ns    int64 `json:"p99Ns"`
	P999Ns   int64 `json:"p999Ns"`
	MaxNs    int64 `json:"maxNs"`
	// Lost is how many of the messages sent in it were lost.
	Lost int64 `json:"lost,omitempty"`
}

// Accelerated is what the sockets reported about themselves.
type Accelerated struct {
	Client Acceleration `json:"client,omitempty"`
	Server Acceleration `json:"server,omitempty"`
}

// Acceleration is an answer to whether a socket is accelerated by Onload.
type Acceleration string

// The answers. Empty: not requested.
const (
	// AccelerationYes and AccelerationNo are Onload's own words of the socket.
	AccelerationYes Acceleration = "Yes"
	AccelerationNo  Acceleration = "No"
	// AccelerationAbsent: Onload is not loaded into the process.
	AccelerationAbsent Acceleration = "Absent"
)

// Sums are exact where the samples are known only to the width of a bucket.
type Sums struct {
	// SumNs and SumOfSquaresNs2 are those of the samples between 1 ns and 60 s.
	SumNs           int64
	SumOfSquaresNs2 float64
}

// Figure is one result as the tool itself printed it.
type Figure struct {
	// Name says what it is and in which unit.
	Name string `json:"name"`
	// Value as printed.
	Value string `json:"value"`
}

// Driver drives one tool.
type Driver interface {
	// Name of the tool.
	Name() v1alpha1.Tool
	// Validate says why the tool cannot measure a cell, or nil.
	Validate(c Cell) error
	// Server is the process at the server's end, one for each cell. It listens on Target.Port.
	Server(c Cell, t Target) Command
	// Listens is the protocol in which a server that is ready has a socket bound to Target.Port.
	Listens(c Cell) v1alpha1.Protocol
	// Client is the process at the client's end, one for each cell. It ends by itself.
	Client(c Cell, t Target) Command
	// Deadline is the longest that a client may take for a cell before it is killed.
	Deadline(c Cell) time.Duration
	// Memory is the most that a client may come to use for a cell, in bytes: the tools keep every sample.
	Memory(c Cell) int64
	// MostSamples is the most round trips that a cell can give in a round; known is false where that depends on how
	// long a round trip takes.
	MostSamples(c Cell) (n int64, known bool)
	// CPUs is how many CPUs of its own the client's end needs for a cell, at least 1; the server's needs one.
	CPUs(c Cell) int
	// Parse reads a finished client's output and calls record for every sample that counts, in the order of
	// measurement, or, for a tool that counts itself, in ascending order: with the round-trip time in nanoseconds
	// and the number of samples that took so long. It returns a *Failure when the tool says, or the output shows,
	// that the measurement did not hold; samples recorded before are then to be dropped.
	Parse(c Cell, out Output, record func(rtt, count int64)) (Measurement, error)
}

// IPv4Only is implemented by the drivers of tools that cannot use IPv6 addresses.
type IPv4Only interface{ IPv4Only() }

// RawFiles is implemented by the drivers of tools whose clients write their samples to files in Target.Scratch. The pods of the
// others have no volume: a kubelet starts a container without volumes 300 ms sooner.
type RawFiles interface{ RawFiles() }

// WritesFiles says whether a tool's client needs Target.Scratch.
func WritesFiles(d Driver) bool {
	_, ok := d.(RawFiles)
	return ok
}

// Failure is a measurement that did not hold.
type Failure struct {
	// Message says what happened and, where it is known, what to do. One line.
	Message string
}

// Error is the message.
func (f *Failure) Error() string { return f.Message }

// Failf makes a Failure.
func Failf(format string, args ...any) error {
	return &Failure{Message: fmt.Sprintf(format, args...)}
}

// Exited makes the Failure of a tool that ended with an exit code, with the cause and what the tool printed of it.
func Exited(tool string, code int, cause, printed string) error {
	if printed != "" {
		cause += ": " + printed
	}
	return Failf("%s failed (exit code %d): %s", tool, code, cause)
}

// mostPrinted is how much of a tool's output a message quotes, in bytes.
const mostPrinted = 400

// OneLine makes of a tool's output one line that is short enough for a message.
func OneLine(printed string) string { return text.OneLine(printed, mostPrinted) }

// HasAny says whether a text contains one of several parts.
func HasAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// ErrUnknown is returned by a Registry for a tool it does not have.
var ErrUnknown = errors.New("unknown tool")

// Registry finds drivers by name.
type Registry map[v1alpha1.Tool]Driver

// NewRegistry makes a registry of drivers.
func NewRegistry(drivers ...Driver) Registry {
	r := Registry{}
	for _, d := range drivers {
		r[d.Name()] = d
	}
	return r
}

// Get returns the driver of a tool, or ErrUnknown.
func (r Registry) Get(name v1alpha1.Tool) (Driver, error) {
	d, ok := r[name]
	if !ok {
		return nil, fmt.Errorf("%w %q", ErrUnknown, name)
	}
	return d, nil
}
