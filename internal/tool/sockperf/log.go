package sockperf

import (
	"bufio"
	"bytes"
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

// readLog passes on the rows of a full log. It is an error if they are not all there, from the head to the rule
// behind the last: the tool does not notice when the disk is full.
func readLog(r io.Reader, add func(row) error) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	within := false
	for number, next := 1, int64(0); ; number++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case err == io.EOF && within:
			return fmt.Errorf("it ends at line %d, within the rows", number)
		case err == io.EOF:
			return fmt.Errorf("it has no rows")
		case err != nil:
			return fmt.Errorf("line %d: %w", number, err)
		}
		line = line[:len(line)-1]
		if !within {
			within = bytes.HasPrefix(line, []byte(logHead))
			continue
		}
		if string(line) == rule {
			return nil
		}
		// Rows are numbered in their order. The number is not the message's: those without an answer have none.
		index, parsed, ok := parseRow(line)
		if !ok || index != next {
			return fmt.Errorf("line %d: %.80q is not row %d", number, line, next)
		}
		next++
		if err := add(parsed); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
}

// parseRow reads "packet, txTime(sec), rxTime(sec), latency(usec)". The two times have nine decimals, so their
// difference is the round trip to the nanosecond, and the fourth column, which has three, says the same again:
// in whole round trips, as the tool is told to, or in halves. It is held against the difference.
func parseRow(line []byte) (index int64, r row, ok bool) {
	var latency int64
	line, index, ok = cutNumber(line, 0)
	for _, column := range []struct {
		of       *int64
		decimals int
	}{{&r.sent, 9}, {&r.answered, 9}, {&latency, 3}} {
		if !ok || len(line) < 2 || line[0] != ',' || line[1] != ' ' {
			return 0, row{}, false
		}
		line, *column.of, ok = cutNumber(line[2:], column.decimals)
	}
	rtt := r.answered - r.sent
	return index, r, ok && len(line) == 0 && (near(latency, rtt) || near(latency, rtt/2))
}

// near allows for the rounding of floats in the tool.
func near(a, b int64) bool { return a-b >= -2 && a-b <= 2 }

// cutNumber reads a number of at most nine digits with so many decimals, as an integer of the last one's place.
// There are millions of them, so it looks at each byte once.
func cutNumber(line []byte, decimals int) (rest []byte, n int64, ok bool) {
	i := 0
	for i < len(line) && line[i]-'0' <= 9 {
		n = n*10 + int64(line[i]-'0')
		i++
	}
	if i == 0 || i > 9 {
		return nil, 0, false
	}
	if decimals == 0 {
		return line[i:], n, true
	}
	if i == len(line) || line[i] != '.' || len(line)-i-1 < decimals {
		return nil, 0, false
	}
	fraction := line[i+1 : i+1+decimals]
	for _, c := range fraction {
		if c-'0' > 9 {
			return nil, 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return line[i+1+decimals:], n, true
}
