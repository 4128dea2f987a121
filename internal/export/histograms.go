package export

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"path"
	"strings"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/samples"
)

// ticksPerHalfDistance lines of a .hgrm halve the share beyond, as in HistogramLogProcessor.
const ticksPerHalfDistance = 5

// histograms writes each cell's distribution as percentiles in µs of the benchmark's latency type, and a
// histogram log with an interval for each round, in ns: whole round trips, or captured times.
func (w *writer) histograms(under string, b Benchmark) error {
	for _, s := range report.AllSeries(b.Object, b.Runs) {
		name := path.Join(under, "histograms", s.Variant.Name, s.Name)
		// Columns verifies the histograms against the figures stored with them.
		if _, err := s.Columns(); err != nil {
			return err
		}
		all, log, err := w.rounds(name, s)
		if err != nil {
			return fmt.Errorf("histograms of %s: %w", s.Name, err)
		}
		if err := w.percentiles(name+".hgrm", all, s); err != nil {
			return err
		}
		if err := w.file(name+".hlog", log); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) rounds(name string, s report.Series) (all *hdr.Histogram, log []byte, err error) {
	var out bytes.Buffer
	intervals := hdr.NewHistogramLogWriter(&out)
	comment := samples.RoundTrips + string(s.LatencyType) + "]"
	if s.LatencyType == v1alpha1.ResultInToOut {
		comment = samples.LogComment + "an interval is a round, in ns of captured times (" + string(s.LatencyType) + ")]"
	}
	err = intervals.OutputLogFormatVersion()
	if fmt.Fprintln(&out, comment); !s.Rounds[0].StartedAt.IsZero() {
		err = errors.Join(err, intervals.OutputStartTime(s.Rounds[0].StartedAt.UnixMilli()))
	}
	if err := errors.Join(err, intervals.OutputLegend()); err != nil {
		return nil, nil, err
	}
	var decoded []*hdr.Histogram
	for _, r := range s.Rounds {
		if of := r.Histogram; r.Lost+of.Unrecorded+of.OverRange > 0 {
			fmt.Fprintf(&out, "%s%d lost, %d unrecorded and %d out-of-range messages of round %d]\n", samples.Lacking, r.Lost, of.Unrecorded, of.OverRange, r.Number)
		}
		h, err := hdr.Decode([]byte(r.Histogram.Encoded))
		if err != nil {
			return nil, nil, fmt.Errorf("round %d: %w", r.Number, err)
		}
		h.SetStartTimeMs(max(r.StartedAt.UnixMilli(), 0))
		h.SetEndTimeMs(max(r.FinishedAt.UnixMilli(), 0))
		if err := intervals.OutputIntervalHistogram(h); err != nil {
			return nil, nil, fmt.Errorf("round %d: %w", r.Number, err)
		}
		if err := w.percentiles(fmt.Sprintf("%s-round-%d.hgrm", name, r.Number), h, s); err != nil {
			return nil, nil, err
		}
		decoded = append(decoded, h)
		if all == nil || h.SignificantFigures() < all.SignificantFigures() {
			all = hdr.New(h.LowestTrackableValue(), h.HighestTrackableValue(), int(h.SignificantFigures()))
		}
	}
	for _, h := range decoded {
		if dropped := all.Merge(h); dropped > 0 {
			return nil, nil, fmt.Errorf("%d samples are out of range", dropped)
		}
	}
	return all, out.Bytes(), nil
}

// percentiles writes a histogram's percentiles in the format of HdrHistogram's
// outputPercentileDistribution. The library's text has six decimals; only its last lines are taken.
func (w *writer) percentiles(name string, h *hdr.Histogram, s report.Series) error {
	scale := 1_000.0
	if s.LatencyType == v1alpha1.ResultLatencyType(v1alpha1.LatencyHalfRTT) {
		scale = 2_000
	}
	var out, own bytes.Buffer
	fmt.Fprintf(&out, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")
	if h.TotalCount() > 0 {
		for _, b := range h.CumulativeDistributionWithTicks(ticksPerHalfDistance) {
			fmt.Fprintf(&out, "%12.3f %2.12f %10d", float64(s.Shown(b.ValueAt))/1_000, b.Quantile/100, b.Count)
			if b.Quantile < 100 {
				fmt.Fprintf(&out, " %14.2f", 1/(1-b.Quantile/100))
			}
			fmt.Fprintln(&out)
		}
	}
	if _, err := h.PercentilesPrint(&own, ticksPerHalfDistance, scale); err != nil {
		return fmt.Errorf("writing percentiles: %w", err)
	}
	for line := range strings.Lines(own.String()) {
		if strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
	}
	fmt.Fprintf(&out, "%sus of type %s]\n", samples.LogComment, s.LatencyType)
	return w.file(name, out.Bytes())
}

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
