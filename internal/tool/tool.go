// Package tool defines the measuring tools and their drivers. A Driver is pure: it builds the
// command lines of a cell's two ends, and reads the client's output. All latencies that leave this
// package are round-trip times in nanoseconds, whatever the tool prints.
package tool

import (
	"bufio"
	"errors"
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
	MulticastGroup string        `json:"multicastGroup,omitempty"`
	Duration       time.Duration `json:"duration"`
	// Warmup is the time whose samples do not count.
	Warmup time.Duration `json:"warmup"`
	// LossAfter is the time after which a datagram without an answer is lost; 0: the tool's own.
	LossAfter time.Duration `json:"lossAfter,omitempty"`
	// Custom is the user's program that measures the cell instead of a tool; or nil.
	Custom *v1alpha1.Custom `json:"custom,omitempty"`
}

const (
	// DatagramHeaders is the size of the headers of IPv4 and UDP, in bytes.
	DatagramHeaders = 28
	// MaxDatagram is the payload of the largest UDP datagram over IPv4.
	MaxDatagram = 65_535 - DatagramHeaders
)

// ServerCPUs is how many CPUs the server needs: one, unless it is a user's program that needs more.
func (c Cell) ServerCPUs() int {
	if c.Custom == nil {
		return 1
	}
	return max(1, int(c.Custom.Server.CPUs))
}

func (c Cell) Spins() bool { return c.Wait == v1alpha1.WaitSpin }

// Target holds the addresses and resources that an end is started with.
type Target struct {
	Address string
	Port    int
	// LocalAddress is the client's own on the measured network. See Command.Routed.
	LocalAddress string
	Interface    string
	// CPUs are the CPUs on which the tool may run at this end, as many as Driver.CPUs asked for.
	CPUs []int
	// ServerCPU is the server's; only the client has it, which some tools tell.
	ServerCPU int
	// Scratch is an empty writable folder, for a client with RawFiles.
	Scratch string
	// Key, of 32 hexadecimal digits, is known only to the attempt's two ends, for authentication.
	Key string
}

// Command is a program with its arguments. It is executed directly, never through a shell.
type Command struct {
	Path string
	Args []string
	// Env is added to the environment, as KEY=value.
	Env []string
	// Interrupt is true for a server that prints what it received when it is interrupted (SIGINT).
	Interrupt bool
	// Routed: the client cannot bind all traffic to LocalAddress, so the route decides.
	Routed bool
}

// Output holds the output of a finished client.
type Output struct {
	Stdout, Stderr []byte
	// Truncated: it printed more than was kept.
	Truncated bool
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
	// Unrecorded messages have an unknown latency, but were not lost: the tool left their answers
	// out, or sent them late. A percentile is then a range that counts them at both ends.
	Unrecorded int64
	// Sums and ActualSums are exact, from a tool that reports buckets; nil with samples.
	Sums, ActualSums *Sums
	// Start states the time from which the recorded round trips of an open loop are measured.
	Start StartTime
	// Own has the statistics of a tool without samples; nil with samples.
	Own *Own
	// Bandwidth is a stream's, or of a tool that reports it at its rate; or nil.
	Bandwidth *Bandwidth
	// Attribution says which interruptions slow samples coincide with, or nil.
	Attribution *Attribution
	// Intervals are a measurement's parts, in order without gaps, or nil.
	Intervals   []Interval
	Accelerated Accelerated
	// Figures are the tool's own, as "median (ns, half RTT)", for comparison only.
	Figures []Figure
	// Warnings are the tool's and its driver's, as of a clock that changed speed.
	Warnings []string
}

// StartTime is the time from which the round trips of an open loop are measured.
type StartTime string

// The start times. A closed loop has none: a message is due when the answer to the last has come.
const (
	// StartIntended is when the schedule required it: a sender's delays count.
	StartIntended StartTime = "Intended"
	// StartActual is the time at which it was sent: messages that were sent late look no slower.
	StartActual StartTime = "Actual"
)

// Own has a tool's own statistics of round trips, in ns. 0: not reported.
type Own struct {
	Count int64 `json:"count"`
	// MeanNs is exact when the tool reports the rate.
	MeanNs   float64 `json:"meanNs"`
	MinNs    int64   `json:"minNs,omitempty"`
	MaxNs    int64   `json:"maxNs,omitempty"`
	StdDevNs int64   `json:"stdDevNs,omitempty"`
	P50Ns    int64   `json:"p50Ns,omitempty"`
	P90Ns    int64   `json:"p90Ns,omitempty"`
	P99Ns    int64   `json:"p99Ns,omitempty"`
	// Ranges have the true percentiles, in order; without, they are rounded to StepNs.
	Ranges [3]Range `json:"ranges,omitzero"`
	// StepNs is the step of the tool's clock, such as 1000 for whole µs.
	StepNs int64 `json:"stepNs"`
	// Ladder has an unmeasured result's percentiles, ascending, instead.
	Ladder []OwnPercentile `json:"ladder,omitempty"`
}

// Range is where a value lies, in nanoseconds, both ends inclusive.
type Range struct {
	LowNs  int64 `json:"lowNs"`
	HighNs int64 `json:"highNs"`
}

// OwnPercentile is a tool's percentile, in ns, with the range of the true one.
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
	// Retransmits counts TCP segments; nil if the tool does not report it.
	Retransmits *int64 `json:"retransmits,omitempty"`
}

// Attribution counts the samples beyond p99.9 by the end whose interruption they coincide with.
type Attribution struct {
	// Beyond samples exceed p99.9; Examined are the slowest of them.
	Beyond   int64 `json:"beyond"`
	Examined int64 `json:"examined"`
	// Client, Server, Both and Neither say whose CPU was interrupted for half of a sample's excess
	// over the median; Undetermined samples lack an end's data.
	Client       int64 `json:"client"`
	Server       int64 `json:"server"`
	Both         int64 `json:"both"`
	Neither      int64 `json:"neither"`
	Undetermined int64 `json:"undetermined"`
	// ClientSeesGaps and ServerSeesGaps are false for an end that slept: it sees its sends.
	ClientSeesGaps bool `json:"clientSeesGaps"`
	ServerSeesGaps bool `json:"serverSeesGaps"`
	// Slowest lists examined samples, slowest first; some tools have none.
	Slowest []Outlier `json:"slowest,omitempty"`
}

// Outlier is one slow sample.
type Outlier struct {
	// AtNs is when it was, or at a rate should have been, sent, from the start; RTTNs from then.
	AtNs  int64 `json:"atNs"`
	RTTNs int64 `json:"rttNs"`
	// Samples is how many examined samples this one represents: at a rate a stall delays many, and
	// the slowest represents those with its cause that were in flight with it.
	Samples int64 `json:"samples"`
	Where   Where `json:"where"`
	// ClientGapNs and ServerGapNs are how long the two were kept from the message beyond the usual,
	// in ns: an end that sleeps does not see how late it woke. ServerGapNs is nil if unlisted.
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

// Interval is part of a measurement; StartNs counts from its start, latencies are round trips.
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

// Sums are exact, of samples from 1 ns to 60 s known only to a bucket's width.
type Sums struct {
	SumNs           int64
	SumOfSquaresNs2 float64
}

// FigureSent names the number of messages that a tool sent, of all with Base.TellsSent.
const FigureSent = "sent"

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
	// MostSamples returns a round's most round trips; known: it depends on no latency.
	MostSamples(c Cell) (n int64, known bool)
	// CPUs returns how many of its own the client needs; the server needs Cell.ServerCPUs.
	CPUs(c Cell) int
	// Parse reads a finished client's output and calls record for every sample that counts, in the
	// order of measurement or, of a histogram, ascending: the round trip in ns, and the number of
	// samples with it. A *Failure says that the measurement is not valid: drop what was recorded.
	// With StartIntended it calls actual with the round trips from each send, in any order.
	Parse(c Cell, out Output, record, actual func(rtt, count int64)) (Measurement, error)
}

// CPUsOf returns how many CPUs of its own an end needs.
func CPUsOf(d Driver, c Cell, role string) int {
	if role == v1alpha1.RoleServer {
		return c.ServerCPUs()
	}
	return d.CPUs(c)
}

// Unnumbered reports whether a tool's ping-pong may take any answer for that to its last message.
func Unnumbered(t v1alpha1.Tool) bool {
	return t == v1alpha1.ToolSfntPingpong || t == v1alpha1.ToolNetperf || t == v1alpha1.ToolCustom
}

// Failure is the error of a run without a valid measurement.
type Failure struct {
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

// mostUnrecorded bounds unknown latencies, in percent: the median is then p45 to p55.
const mostUnrecorded = 10

// CheckUnrecorded returns a Failure for too many unknown latencies; why is the cause.
func CheckUnrecorded(tool string, unrecorded, recorded int64, why string) error {
	if 100*unrecorded <= mostUnrecorded*(unrecorded+recorded) {
		return nil
	}
	return Fail(v1alpha1.OutcomeSamplesMissing, "%s recorded %d messages, and the latency of %d others is unknown, more than %d %%: %s",
		tool, recorded, unrecorded, mostUnrecorded, why)
}

// Exited returns the Failure of a tool that ended with a code, with cause and words.
func Exited(tool string, code int, cause, printed string) error {
	if printed != "" {
		cause += ": " + printed
	}
	return Failf("%s failed (exit code %d): %s", tool, code, cause)
}

// SecondPort says that a tool's control connection worked, but not the one of the messages.
const SecondPort = "its control connection worked, but not the second one, to another port: does a firewall or a NetworkPolicy block it? " +
	"All ports must be open between the two ends"

// WrongPeerRemedy is for a run in which something else than the other end answered.
const WrongPeerRemedy = "is a proxy between the two ends, or does another host have this address (duplicate address, forged ARP or ND)? Measure on a network whose path you trust"

// mostPrinted is the most of a tool's output that a message quotes, in bytes.
const mostPrinted = 400

func OneLine(printed string) string { return text.OneLine(printed, mostPrinted) }

// Cause is a failure's cause and remedy, then parts of output any of which means it.
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

// CutNumber reads an unsigned number of at most digits digits and exactly decimals after a point,
// in units of the last, and returns the rest, without making strings: files have millions.
func CutNumber(line []byte, digits, decimals int) (n int64, rest []byte, ok bool) {
	point := 0
	for ; point < len(line) && line[point]-'0' <= 9; point++ {
		if point == digits {
			return 0, nil, false
		}
		n = n*10 + int64(line[point]-'0')
	}
	if point == 0 || decimals == 0 {
		return n, line[point:], point > 0
	}
	end := point + 1 + decimals
	if end > len(line) || line[point] != '.' {
		return 0, nil, false
	}
	for _, c := range line[point+1 : end] {
		if c-'0' > 9 {
			return 0, nil, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, line[end:], true
}

// ErrCut is of a last line without a newline.
var ErrCut = errors.New("the last line has no end: the file was cut, or the disk is full")

// EachLine calls do with each line and its number. Without a newline, the last line is ErrCut.
func EachLine(r io.Reader, do func(number int, line []byte) error) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case err == nil:
			err = do(number, line[:len(line)-1])
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, io.EOF):
			err = ErrCut
		case errors.Is(err, bufio.ErrBufferFull):
			err = fmt.Errorf("it has more than %d bytes", lines.Size())
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
}
