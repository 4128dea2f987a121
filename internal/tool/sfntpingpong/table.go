package sfntpingpong

import (
	"github.com/tailgate-dev/tailgate/internal/tool/sfnt"
)

// Table is what the tool prints on its standard output.
type Table struct {
	sfnt.Header
	// Rows are the sizes that were measured.
	Rows []Row
}

// Row is a row of the table, as printed: nanoseconds, but for the size in bytes and the number of iterations.
type Row struct {
	Size, Mean, Min, Median, Max, Percentile, StdDev, Iterations int64
}

// columns are the names of a Row's fields in the tool's header.
var columns = []string{"size", "mean", "min", "median", "max", "%ile", "stddev", "iter"}

// ParseTable reads the tool's standard output.
func ParseTable(output []byte) (Table, error) {
	parsed, err := sfnt.ParseTable(output, columns)
	if err != nil {
		return Table{}, err
	}
	t := Table{Header: parsed.Header}
	for _, r := range parsed.Rows {
		t.Rows = append(t.Rows, Row{r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]})
	}
	return t, nil
}
