package sockperf

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/field"
	"github.com/tailgate-dev/tailgate/test/field/driven"
)

func TestField(t *testing.T) {
	field.Run(t, "tools", "internal/tool/sockperf", func(t *testing.T, c field.Case) map[string]string {
		log := logOf(t, c)
		out := tool.Output{OpenRaw: func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(log)), nil }}
		return driven.Parse(t, c, New(), out)
	})
}

// logOf returns the log that a case describes: `log` is the number of rows, the interval of the messages and the round trip; cold is
// a longer round trip until a time; stall is for how long the sender is stalled, and when.
func logOf(t *testing.T, c field.Case) []byte {
	t.Helper()
	if c.Arguments["log"] == "" {
		return nil
	}
	scan := func(text string) (all []time.Duration) {
		for _, word := range strings.Fields(text) {
			if d, err := time.ParseDuration(word); err == nil {
				all = append(all, d)
			}
		}
		return all
	}
	var rows int
	if _, err := fmt.Sscan(c.Arguments["log"], &rows); err != nil {
		t.Fatal(err)
	}
	times := scan(c.Arguments["log"])
	interval, rtt := times[0], times[1]
	cold, stall := append(scan(c.Arguments["cold"]), 0, 0), append(scan(c.Arguments["stall"]), 0, 0)
	lostAt := -1
	if c.Arguments["dropped"] != "" {
		lostAt = 10
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%srtt(usec)\n", rule, logHead)
	const begin = 833 * time.Second
	free := time.Duration(0)
	row := 0
	for i := 0; row < rows; i++ {
		due := time.Duration(i) * interval
		if due >= stall[1] && due < stall[1]+stall[0] {
			free = max(free, stall[1]+stall[0])
		}
		sent := max(due, free)
		free = sent + 2*time.Microsecond
		took := rtt
		if due < cold[1] {
			took = cold[0]
		}
		if i == lostAt {
			continue
		}
		tx, rx := int64(begin+sent), int64(begin+sent+took)
		fmt.Fprintf(&b, "%d, %d.%09d, %d.%09d, %d.%03d\n", row, tx/1e9, tx%1e9, rx/1e9, rx%1e9, int64(took)/1000, int64(took)%1000)
		row++
	}
	b.WriteString(rule + "\n")
	return b.Bytes()
}
