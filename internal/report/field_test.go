package report

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tailgate-dev/tailgate/test/field"
)

// TestField tries the widths of tables in a terminal.
func TestField(t *testing.T) {
	field.Run(t, "looks", "internal/report", func(t *testing.T, _ field.Case) map[string]string {
		results := ByCell(compared(t, 5, 200_000).Status.Results)[0][:1]
		var out bytes.Buffer
		if err := latencies(results)[0].write(&out); err != nil {
			t.Fatal(err)
		}
		most := 0
		for line := range strings.Lines(out.String()) {
			most = max(most, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
		}
		return map[string]string{"within 80 columns": strconv.FormatBool(most <= 80)}
	})
}
