package sfntpingpong

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Table is what the tool prints on its standard output.
type Table struct {
	// Header is the lines that begin with #, in their order, which differs from run to run and from terminal
	// to file.
	Header []Entry
	// Rows are the sizes that were measured.
	Rows []Row
}

// Entry is a line of the header: "# key: value" or "# key=value".
type Entry struct {
	Key, Value string
}

// Row is a row of the table, as printed: nanoseconds, but for the size in bytes and the number of iterations.
type Row struct {
	Size, Mean, Min, Median, Max, Percentile, StdDev, Iterations int64
}

// columns are the names of a Row's fields in the tool's header.
var columns = []string{"size", "mean", "min", "median", "max", "%ile", "stddev", "iter"}

// ParseTable reads the tool's standard output, or a copy of it in which spaces stand for tabs (those that do not
// break among them). Lines that are
// neither header nor row (of Onload, of a shell) are passed over.
func ParseTable(output []byte) (Table, error) {
	var t Table
	number := 0
	for line := range bytes.Lines(output) {
		number++
		text := strings.TrimSpace(string(line))
		if comment, ok := strings.CutPrefix(text, "#"); ok {
			comment = strings.TrimSpace(comment)
			if fields := strings.Fields(comment); len(fields) > 0 && fields[0] == columns[0] {
				if !slices.Equal(fields, columns) {
					return Table{}, fmt.Errorf("line %d: columns %v, not %v", number, fields, columns)
				}
				continue
			}
			if comment != "" {
				t.Header = append(t.Header, entry(comment))
			}
			continue
		}
		if text == "" || text[0] < '0' || text[0] > '9' {
			continue
		}
		row, err := parseRow(strings.Fields(text))
		if err != nil {
			return Table{}, fmt.Errorf("line %d: %w", number, err)
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// entry splits at the first ": " or "=": command lines hold both.
func entry(comment string) Entry {
	colon := strings.Index(comment+" ", ": ")
	equals := strings.IndexByte(comment, '=')
	if colon < 0 && equals < 0 {
		return Entry{Key: comment}
	}
	at := colon
	if colon < 0 || equals >= 0 && equals < colon {
		at = equals
	}
	return Entry{Key: comment[:at], Value: strings.TrimSpace(comment[at+1:])}
}

func parseRow(fields []string) (Row, error) {
	if len(fields) != len(columns) {
		return Row{}, fmt.Errorf("%d columns, not %d", len(fields), len(columns))
	}
	var r Row
	for i, v := range []*int64{&r.Size, &r.Mean, &r.Min, &r.Median, &r.Max, &r.Percentile, &r.StdDev, &r.Iterations} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return Row{}, fmt.Errorf("%s: %w", columns[i], err)
		}
		*v = n
	}
	return r, nil
}

// Value is the first of the header's values with a key, or "".
func (t Table) Value(key string) string {
	for _, e := range t.Header {
		if e.Key == key {
			return e.Value
		}
	}
	return ""
}

// OnloadVersion is the version of the Onload library that was really loaded into the client, or "" when none
// was. LD_PRELOAD and EF_* lines prove nothing: they show the environment, also when the library could not be
// loaded. And a library that is loaded need not have taken the socket.
func (t Table) OnloadVersion() string { return t.Value("onload_version") }

// FullRTT says whether the latencies, in rows and raw files, are round-trip times and not half of them. Builds
// before 2026 do not say so; then it depends on whether --rtt was among the arguments. It is an error if
// nothing tells.
func (t Table) FullRTT() (bool, error) {
	switch reporting := t.Value("reporting"); reporting {
	case "RTT":
		return true, nil
	case "1/2 RTT":
		return false, nil
	case "":
	default:
		return false, fmt.Errorf("it reports %q, which is neither RTT nor 1/2 RTT", reporting)
	}
	arguments := strings.Fields(t.Value("cmdline"))
	if len(arguments) == 0 {
		return false, fmt.Errorf("nothing tells whether it reports RTT or 1/2 RTT")
	}
	return slices.Contains(arguments, "--rtt"), nil
}
