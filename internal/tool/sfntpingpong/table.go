package sfntpingpong

import (
	"github.com/tailgate-dev/tailgate/internal/tool/sfnt"
)

// Row is a row of the table as printed: nanoseconds, except for the size in bytes and the number of iterations.
type Row struct {
	Size, Mean, Min, Median, Max, Percentile, StdDev, Iterations int64
}

// columns are the names of a Row's fields in the tool's header.
var columns = []string{"size", "mean", "min", "median", "max", "%ile", "stddev", "iter"}

// ParseTable reads the tool's standard output, which has one row per measured size.
func ParseTable(output []byte) (sfnt.Header, []Row, error) {
	table, err := sfnt.ParseTable(output, columns)
	var rows []Row
	for _, r := range table.Rows {
		rows = append(rows, Row{r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]})
	}
	return table.Header, rows, err
}
