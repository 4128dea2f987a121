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
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Cell is what one pair of tool processes measures.
type Cell struct {
	// Name is unique in a run, such as tcp-64.
	Name string `json:"name"`
	// Protocol of the messages.
	Protocol v1alpha1.Protocol `json:"protocol"`
	// MessageSize is the payload of each message, in bytes.
	MessageSize int32 `json:"messageSize"`
	// Duration is the measuring time after the warm-up.
	Duration time.Duration `json:"duration"`
	// Warmup is the time whose samples do not count.
	Warmup time.Duration `json:"warmup"`
}

// Target is where the two ends meet.
type Target struct {
	// Address is the server's IP address on the measured network.
	Address string
	// Port is the server's port for the tool.
	Port int
	// Scratch is an existing, empty, writable folder of the client.
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
}

// Output is what a client left behind.
type Output struct {
	// Stdout and Stderr are what it printed, complete.
	Stdout, Stderr []byte
	// ExitCode is its exit status. Some tools exit 0 whatever happened.
	ExitCode int
	// OpenRaw opens a file that the client wrote in Target.Scratch, by its name.
	OpenRaw func(name string) (io.ReadCloser, error)
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
	// Figures are the tool's own results as it printed them, such as "median (ns, half RTT)": kept for
	// comparison, never used for ours.
	Figures []Figure
	// Warnings are the tool's own, such as a clock that changed its speed during the test.
	Warnings []string
}

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
	// Parse reads a finished client's output and calls record for every sample that counts, in the order of
	// measurement, or, for a tool that counts itself, in ascending order: with the round-trip time in nanoseconds
	// and the number of samples that took so long. It returns a *Failure when the tool says, or the output shows,
	// that the measurement did not hold; samples recorded before are then to be dropped.
	Parse(c Cell, out Output, record func(rtt, count int64)) (Measurement, error)
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
