package sockperf

import (
	"bytes"
	"fmt"
	"io"

	"github.com/tailgate-dev/tailgate/internal/tool"
)

// row is a row of the full log: when a message was sent and answered, in ns since the start.
type row struct {
	sent, answered int64
}

// logHead begins the columns; the last is rtt(usec), or latency(usec), half of it.
const logHead = "packet, txTime(sec), rxTime(sec), "

// rule is the line that ends the rows.
const rule = "------------------------------"

// blockSize is how much of a log is read at once, in bytes; all lines are much shorter.
const blockSize = 64 << 10

// readLog passes on a full log's rows, up to the rule: the tool does not notice a full disk.
func readLog(r io.Reader, add func(row) error) error {
	l := log{add: add}
	block := make([]byte, blockSize)
	kept := 0 // bytes of a line whose end is not in the block
	for !l.ended {
		n, err := r.Read(block[kept:])
		whole := bytes.LastIndexByte(block[:kept+n], '\n') + 1
		if err := l.read(block[:whole]); err != nil {
			return fmt.Errorf("line %d: %w", l.lines+1, err)
		}
		kept = copy(block, block[whole:kept+n])
		switch {
		case l.ended:
		case err == io.EOF && l.within:
			return fmt.Errorf("it ends at line %d, within the rows", l.lines+1)
		case err == io.EOF:
			return fmt.Errorf("it has no rows")
		case err != nil:
			return fmt.Errorf("line %d: %w", l.lines+1, err)
		case kept == len(block):
			return fmt.Errorf("line %d has more than %d bytes", l.lines+1, len(block))
		}
	}
	return nil
}

type log struct {
	add         func(row) error
	lines, rows int64
	// within is true from the rows' head to the rule that ends them; ended is true after that rule.
	within, ended bool
}

func (l *log) read(lines []byte) error {
	for len(lines) > 0 && !l.ended {
		if l.within {
			// Rows are numbered in sequence, without the messages that have no answer.
			if index, r, length := parseRow(lines); length > 0 && index == l.rows {
				if err := l.add(r); err != nil {
					return err
				}
				l.rows++
				l.lines++
				lines = lines[length:]
				continue
			}
		}
		line, rest, _ := bytes.Cut(lines, []byte("\n"))
		switch {
		case !l.within:
			l.within = bytes.HasPrefix(line, []byte(logHead))
		case string(line) == rule:
			l.ended = true
		default:
			return fmt.Errorf("%.80q is not row %d", line, l.rows)
		}
		l.lines++
		lines = rest
	}
	return nil
}

// parseRow reads the line "packet, txTime(sec), rxTime(sec), latency(usec)" at the start of lines
// and returns its length, or 0. The difference of the times is the round trip to the ns, against
// which the fourth column, which repeats it whole or half, is checked.
func parseRow(lines []byte) (index int64, r row, length int) {
	var latency int64
	rest := lines
	for i, field := range []struct {
		of       *int64
		decimals int
	}{{&index, 0}, {&r.sent, 9}, {&r.answered, 9}, {&latency, 3}} {
		ok := true
		if i > 0 {
			rest, ok = bytes.CutPrefix(rest, []byte(", "))
		}
		if ok {
			*field.of, rest, ok = tool.CutNumber(rest, 9, field.decimals)
		}
		if !ok {
			return 0, row{}, 0
		}
	}
	rtt := r.answered - r.sent
	if len(rest) == 0 || rest[0] != '\n' || !near(latency, rtt) && !near(latency, rtt/2) {
		return 0, row{}, 0
	}
	return index, r, len(lines) - len(rest) + 1
}

func near(a, b int64) bool { return a-b >= -2 && a-b <= 2 }
