package sockperf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// row is a row of the full log: the times at which a message was sent and answered, in nanoseconds since the tool's
// start.
type row struct {
	sent, answered int64
}

// logHead is the beginning of the line with the column names; the last column is rtt(usec), or latency(usec), which is
// half of it.
const logHead = "packet, txTime(sec), rxTime(sec), "

// rule is the line that ends the rows.
const rule = "------------------------------"

// blockSize is how much of a log is read at once, in bytes; all lines are much shorter.
const blockSize = 64 << 10

// readLog passes on the rows of a full log. It returns an error if any row is missing between the head and the rule
// after the last row: the tool does not notice when the disk is full.
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

// log is the state of reading a log.
type log struct {
	add func(row) error
	// lines and rows are the numbers of lines and rows read so far.
	lines, rows int64
	// within is true from the rows' head to the rule that ends them; ended is true after that rule.
	within, ended bool
}

// read reads whole lines and counts the lines without an error.
func (l *log) read(lines []byte) error {
	for len(lines) > 0 && !l.ended {
		if l.within {
			// Rows are numbered in sequence. The number is not the message's, because messages without an answer have
			// no row.
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

// parseRow reads the line "packet, txTime(sec), rxTime(sec), latency(usec)" at the start of lines and returns its
// length, or 0 if it is not such a line. The two times have nine decimals, so their difference is the round trip to the
// nanosecond. The fourth column has three decimals and repeats the round trip, whole (as the tool is configured) or
// half. It is checked against the difference.
func parseRow(lines []byte) (index int64, r row, length int) {
	index, at := number(lines, 0, 0)
	r.sent, at = number(lines, comma(lines, at), 9)
	r.answered, at = number(lines, comma(lines, at), 9)
	latency, at := number(lines, comma(lines, at), 3)
	rtt := r.answered - r.sent
	if at < 0 || at == len(lines) || lines[at] != '\n' || !near(latency, rtt) && !near(latency, rtt/2) {
		return 0, row{}, 0
	}
	return index, r, at + 1
}

// near allows for the rounding of floats in the tool.
func near(a, b int64) bool { return a-b >= -2 && a-b <= 2 }

// nowhere is the position after something that was not found; parsing from there finds nothing.
const nowhere = -1

// comma returns the position after the comma and space at this position.
func comma(b []byte, at int) int {
	if at < 0 || at+1 >= len(b) || b[at] != ',' || b[at+1] != ' ' {
		return nowhere
	}
	return at + 2
}

// number reads a number of at most nine digits and then this many decimals. It returns the number as an integer in
// units of the last decimal, and the position after it. A log has millions of numbers, so it looks at each byte once.
func number(b []byte, at, decimals int) (n int64, behind int) {
	if at < 0 {
		return 0, nowhere
	}
	first := at
	for at < len(b) && b[at]-'0' <= 9 {
		n = n*10 + int64(b[at]-'0')
		at++
	}
	if at == first || at > first+9 {
		return 0, nowhere
	}
	if decimals == 0 {
		return n, at
	}
	if at+decimals >= len(b) || b[at] != '.' {
		return 0, nowhere
	}
	fraction := b[at+1 : at+1+decimals]
	if len(fraction) > 8 {
		eight, ok := eightDigits(fraction)
		if !ok {
			return 0, nowhere
		}
		n, fraction = n*100_000_000+eight, fraction[8:]
	}
	for _, c := range fraction {
		if c-'0' > 9 {
			return 0, nowhere
		}
		n = n*10 + int64(c-'0')
	}
	return n, at + 1 + decimals
}

// eightDigits reads eight digits at once, because most of a log consists of digits of nanoseconds: the lowest byte of
// the word is the first digit, and neighbours are combined three times, into numbers of two, four and eight digits.
func eightDigits(b []byte) (n int64, ok bool) {
	v := binary.LittleEndian.Uint64(b) ^ 0x3030303030303030
	if (v|(v+0x0606060606060606))&0xf0f0f0f0f0f0f0f0 != 0 {
		return 0, false // one of the bytes is more than 9
	}
	v = (v*10 + v>>8) & 0x00ff00ff00ff00ff
	v = (v*100 + v>>16) & 0x0000ffff0000ffff
	return int64(v*10_000+v>>32) & 0xffffffff, true
}
