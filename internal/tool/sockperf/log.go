package sockperf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// row is a row of the full log: when a message was sent and answered, in nanoseconds since the tool's start.
type row struct {
	sent, answered int64
}

// logHead begins the line of the rows' columns; the last column is rtt(usec) or latency(usec), the half of it.
const logHead = "packet, txTime(sec), rxTime(sec), "

// rule ends the rows.
const rule = "------------------------------"

// blockSize is how much of a log is read at once, in bytes; no line is nearly as long.
const blockSize = 64 << 10

// readLog passes on the rows of a full log. It is an error if they are not all there, from the head to the rule
// behind the last: the tool does not notice when the disk is full.
func readLog(r io.Reader, add func(row) error) error {
	l := log{add: add}
	block := make([]byte, blockSize)
	kept := 0 // of a line whose end is not in the block
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

// log is how far a log was read.
type log struct {
	add func(row) error
	// lines and rows are how many there were.
	lines, rows int64
	// within is true from the rows' head to the rule that ends them, ended from there on.
	within, ended bool
}

// read reads whole lines. Lines without an error are counted.
func (l *log) read(lines []byte) error {
	for len(lines) > 0 && !l.ended {
		if l.within {
			// Rows are numbered in their order. The number is not the message's: those without an answer have none.
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

// parseRow reads the line "packet, txTime(sec), rxTime(sec), latency(usec)" at the start of several and returns its
// length, 0 if it is not one. The two times have nine decimals, so their difference is the round trip to the nanosecond,
// and the fourth column, which has three, says the same again: in whole round trips, as the tool is configured to, or in
// halves. It is held against the difference.
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

// nowhere is the place behind something that is not there; nothing is found from there on.
const nowhere = -1

// comma returns the place behind the comma and the space at this one.
func comma(b []byte, at int) int {
	if at < 0 || at+1 >= len(b) || b[at] != ',' || b[at+1] != ' ' {
		return nowhere
	}
	return at + 2
}

// number reads a number of at most nine digits, then so many decimals, as an integer of the last one's place, and
// returns the place behind it. A log has millions of them, so it looks at each byte once.
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

// eightDigits reads eight digits at once, as most of a log are digits of nanoseconds: the word's lowest byte is the
// first of them, and neighbours are put together three times, to numbers of two, of four and of eight digits.
func eightDigits(b []byte) (n int64, ok bool) {
	v := binary.LittleEndian.Uint64(b) ^ 0x3030303030303030
	if (v|(v+0x0606060606060606))&0xf0f0f0f0f0f0f0f0 != 0 {
		return 0, false // one of the bytes is more than 9
	}
	v = (v*10 + v>>8) & 0x00ff00ff00ff00ff
	v = (v*100 + v>>16) & 0x0000ffff0000ffff
	return int64(v*10_000+v>>32) & 0xffffffff, true
}
