package result

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// A mark begins an agent's lines for programs; others may separate them. Longer content is framed:
//
//	tailgate-log listening <address>
//	tailgate-log begin <what is framed> <version> <bytes>
//	tailgate-log data <base64 of the content, at most 4 KiB a line>
//	tailgate-log end <SHA-256 of the content, in hex>
const (
	mark          = "tailgate-log "
	kindListening = "listening"
	kindBegin     = "begin"
	kindData      = "data"
	kindEnd       = "end"
	bytesPerLine  = 3030 // in base64, with the mark and the line ending, within 4 KiB
	maxLine       = 4096
	MaxLog        = 8 << 20 // bytes of a log that are read: a result takes at most 1.3 MiB
)

// Framing reports whether a line of a log is for a program, and not for people.
func Framing(line string) bool { return strings.HasPrefix(line, mark) }

type record struct {
	kind, content string
	whole         bool // false if the log ends before the line does
}

// records yields the records in a log's first bytes. The error is the reader's own, and last.
func records(log io.Reader, limit int64) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		lines := bufio.NewReader(io.LimitReader(log, limit))
		for {
			line, err := readLine(lines)
			if err != nil && !errors.Is(err, io.EOF) {
				yield(record{}, fmt.Errorf("reading a log: %w", err))
				return
			}
			if text, ok := strings.CutPrefix(line, mark); ok {
				kind, content, _ := strings.Cut(text, " ")
				if !yield(record{kind, content, err == nil}, nil) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

// readLine reads a line without its ending, or only the beginning of one too long for a record.
func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if room := maxLine - len(line); room > 0 {
			line = append(line, part[:min(len(part), room)]...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return strings.TrimRight(string(line), "\r\n"), err
		}
	}
}

func writeFrame(w io.Writer, what string, version int, content []byte) error {
	b := bufio.NewWriter(w)
	// Start with a new line: the text before it may not end in one.
	fmt.Fprintf(b, "\n%s%s %s %d %d\n", mark, kindBegin, what, version, len(content))
	for rest := content; len(rest) > 0; {
		n := min(len(rest), bytesPerLine)
		fmt.Fprintf(b, "%s%s %s\n", mark, kindData, base64.StdEncoding.EncodeToString(rest[:n]))
		rest = rest[n:]
	}
	fmt.Fprintf(b, "%s%s %s\n", mark, kindEnd, digestOf(content))
	if err := b.Flush(); err != nil {
		return fmt.Errorf("writing a %s: %w", what, err)
	}
	return nil
}

// readFrame returns a log's first frame that open accepts. The error wraps ErrMissing without one,
// ErrCorrupt if one is incomplete or of another version, or is open's or the reader's.
func readFrame[T any](log io.Reader, what string, version int, open func(content []byte, digest string) (T, error)) (T, error) {
	var none T
	problem := fmt.Errorf("%w in the log", ErrMissing)
	for found, err := range frames(log, what, version, open) {
		if err == nil {
			return found, nil
		}
		problem = err
	}
	return none, problem
}

// frames yields each frame of a log that open accepts, or why it does not. The reader's own error is
// last.
func frames[T any](log io.Reader, what string, version int, open func(content []byte, digest string) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var (
			none    T
			current *frame
		)
		for r, err := range records(log, MaxLog) {
			if err != nil {
				yield(none, err)
				return
			}
			switch r.kind {
			case kindBegin:
				current = begin(r.content, what, version)
			case kindData:
				current.add(r.content)
			case kindEnd:
				if current == nil {
					continue
				}
				found, wrong := none, current.whole()
				if wrong == nil {
					found, wrong = open(current.content, r.content)
				}
				if current = nil; !yield(found, wrong) {
					return
				}
			}
		}
		if current != nil {
			yield(none, fmt.Errorf("%w: the log ends within it", ErrCorrupt))
		}
	}
}

// frame is a frame that is being read; nil is a frame that is skipped.
type frame struct {
	size    int
	content []byte
	wrong   error
}

func begin(header, what string, want int) *frame {
	rest, ok := strings.CutPrefix(header, what+" ")
	if !ok {
		return nil
	}
	f := &frame{}
	version, size, _ := strings.Cut(rest, " ")
	if version != strconv.Itoa(want) {
		f.wrong = otherVersion(version, want)
		return f
	}
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 || n > maxStored {
		f.wrong = fmt.Errorf("%w: a size of %.20q bytes", ErrCorrupt, size)
		return f
	}
	f.size = n
	return f
}

func (f *frame) add(line string) {
	if f == nil || f.wrong != nil {
		return
	}
	var err error
	if f.content, err = base64.StdEncoding.AppendDecode(f.content, []byte(line)); err != nil {
		f.wrong = fmt.Errorf("%w: %w", ErrCorrupt, err)
	} else if len(f.content) > f.size {
		f.wrong = fmt.Errorf("%w: more than %d bytes", ErrCorrupt, f.size)
	}
}

func (f *frame) whole() error {
	if f.wrong == nil && len(f.content) != f.size {
		return fmt.Errorf("%w: %d bytes of %d", ErrCorrupt, len(f.content), f.size)
	}
	return f.wrong
}

var errNotListening = errors.New("the log contains no address at which a server listens")

const maxBeforeListening = 64 << 10 // bytes that are read for the line, at the log's beginning

// ListenLine is the line, without its ending, in which a server's agent reports its address, which
// nothing else knows with the host's network: first of all, before it is ready.
func ListenLine(address netip.Addr) string {
	return mark + kindListening + " " + address.Unmap().String()
}

// ParseListen finds the address in the untrusted log of a server's pod: a global unicast address
// without a zone, which another node can reach. Otherwise the error wraps ErrCorrupt.
func ParseListen(log io.Reader) (netip.Addr, error) {
	for r, err := range records(log, maxBeforeListening) {
		switch {
		case err != nil:
			return netip.Addr{}, err
		// A line without its line ending may be incomplete.
		case r.kind != kindListening || !r.whole:
			continue
		}
		address, err := netip.ParseAddr(r.content)
		if err != nil || address.Zone() != "" || address.Is4In6() || !address.IsGlobalUnicast() {
			return netip.Addr{}, fmt.Errorf("%w: the server reports that it listens at %.64q", ErrCorrupt, r.content)
		}
		return address, nil
	}
	return netip.Addr{}, errNotListening
}

const maxTermination = 4096 // bytes of a termination message that the kubelet keeps

// Termination is an agent's final report, the termination message of its container.
type Termination struct {
	// Reason is one of the API's for an attempt; empty with a result in the log.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Encode returns JSON of at most 4096 bytes. A message that is too long ends in "…".
func (t Termination) Encode() ([]byte, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encoding a termination message: %w", err)
	}
	if len(b) <= maxTermination {
		return b, nil
	}
	// JSON escapes lengthen some characters: search for the longest message that fits.
	message := t.Message
	fits := func(limit int) bool {
		t.Message = text.Shorten(message, limit)
		b, err = json.Marshal(t)
		return err == nil && len(b) <= maxTermination
	}
	if beyond := sort.Search(len(message), func(limit int) bool { return !fits(limit) }); !fits(beyond - 1) {
		return nil, fmt.Errorf("encoding a termination message: the reason alone takes more than %d bytes", maxTermination)
	}
	return b, nil
}

func (t Termination) WriteFile(path string) error {
	b, err := t.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return fmt.Errorf("writing the termination message: %w", err)
	}
	return nil
}

// ofAgent are the outcomes that an agent decides. All others are the operator's, whatever a program
// in the pod writes: with some of them an attempt does not count.
var ofAgent = []string{
	v1alpha1.OutcomeAccelerationFailed, v1alpha1.OutcomeAgentFailed, v1alpha1.OutcomeClockWrong, v1alpha1.OutcomeDeadlineExceeded,
	v1alpha1.OutcomeInterfaceLost, v1alpha1.OutcomePeerUnreachable, v1alpha1.OutcomePodLost, v1alpha1.OutcomeResourceUnavailable,
	v1alpha1.OutcomeResultTooLarge, v1alpha1.OutcomeSamplesMissing, v1alpha1.OutcomeToolFailed, v1alpha1.OutcomeToolMissing,
	v1alpha1.OutcomeToolTimeout, v1alpha1.OutcomeWrongNetwork, v1alpha1.OutcomeWrongPeer,
}

func OfAgent(reason string) bool { return slices.Contains(ofAgent, reason) }

// ParseTermination reads a termination message. The runtime's own messages are errors.
func ParseTermination(message string) (Termination, error) {
	var t Termination
	if len(message) > maxTermination {
		return Termination{}, fmt.Errorf("reading a termination message: it has %d bytes, and the kubelet keeps at most %d", len(message), maxTermination)
	}
	if err := json.Unmarshal([]byte(message), &t); err != nil {
		return Termination{}, fmt.Errorf("reading a termination message: %w", err)
	}
	return t, nil
}
