package export

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"path"

	"github.com/tailgate-dev/tailgate/internal/report"
)

// slowest writes each round's slowest samples as stored, if the tool reports them.
func (w *writer) slowest(under string, b Benchmark) error {
	for _, s := range report.AllSeries(b.Object, b.Runs) {
		lines := [][]string{{"round", "at_ns", "rtt_ns", "samples", "where", "client_gap_ns", "server_gap_ns"}}
		for _, r := range s.Rounds {
			if r.Attribution == nil {
				continue
			}
			for _, o := range r.Attribution.Slowest {
				line := []string{fmt.Sprint(r.Number), fmt.Sprint(o.AtNs), fmt.Sprint(o.RTTNs), fmt.Sprint(o.Samples), string(o.Where), fmt.Sprint(o.ClientGapNs), ""}
				if o.ServerGapNs != nil {
					line[len(line)-1] = fmt.Sprint(*o.ServerGapNs)
				}
				lines = append(lines, line)
			}
		}
		if len(lines) == 1 {
			continue
		}
		var out bytes.Buffer
		if err := csv.NewWriter(&out).WriteAll(lines); err != nil {
			return fmt.Errorf("slowest samples of %s: %w", s.Name, err)
		}
		if err := w.file(path.Join(under, "slowest", s.Variant.Name, s.Name+".csv"), out.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
