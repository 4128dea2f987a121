package imported

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/sfntpingpong"
)

// longest is a stored histogram's largest latency, in ns; mostSizes bounds a table's rows.
const (
	longest   = 60_000_000_000
	mostSizes = 32
)

// Sfnt reads sfnt-pingpong's table, and its latency type. Rows become round trips.
func Sfnt(output []byte) (Round, v1alpha1.LatencyType, error) {
	header, rows, err := sfntpingpong.ParseTable(output)
	if err != nil {
		return nil, "", err
	}
	if len(rows) == 0 || len(rows) > mostSizes {
		return nil, "", fmt.Errorf("it has %d rows of numbers, and 1 to %d can be imported", len(rows), mostSizes)
	}
	fullRTT, err := header.FullRTT()
	if err != nil {
		return nil, "", fmt.Errorf("%w: import the whole output, with its lines that begin with #", err)
	}
	if p := header.Value("percentile"); p != "99" {
		return nil, "", fmt.Errorf("percentile: its %%ile is p%.20s, not p99: run it without --percentile, and import the whole output", p)
	}
	var protocol v1alpha1.Protocol
	for _, word := range strings.Fields(header.Value("cmdline")) {
		if p := v1alpha1.Protocol(strings.ToUpper(word)); p == v1alpha1.ProtocolTCP || p == v1alpha1.ProtocolUDP {
			protocol = p
		}
	}
	if protocol == "" {
		return nil, "", errors.New("cmdline: it names neither tcp nor udp: import the whole output of one of these")
	}
	kind, factor := v1alpha1.LatencyHalfRTT, int64(2)
	if fullRTT {
		kind, factor = v1alpha1.LatencyRTT, 1
	}
	var round Round
	for _, r := range rows {
		ordered := slices.IsSorted([]int64{1, r.Min, r.Median, r.Percentile, r.Max, longest / factor}) && r.Min <= r.Mean && r.Mean <= r.Max
		if !ordered || r.StdDev < 0 || r.StdDev > longest || r.Iterations < 1 || r.Size < 0 || r.Size > math.MaxInt32 {
			return nil, "", fmt.Errorf("size %d: its figures contradict each other, or a stall overflowed the tool's counters, as 1.5.0's do after 2 s; use 1.6 or later", r.Size)
		}
		if slices.ContainsFunc(round, func(c result.Cell) bool { return int64(c.MessageSize) == r.Size }) {
			return nil, "", fmt.Errorf("size %d: it has two rows; import one sweep a file", r.Size)
		}
		round = append(round, result.Cell{
			Cell: tool.Cell{Traffic: v1alpha1.Traffic{Protocol: protocol, MessageSize: int32(r.Size)}}, ToolVersion: header.Version(),
			Own: &tool.Own{
				Count: r.Iterations, MeanNs: float64(r.Mean * factor), MinNs: r.Min * factor, MaxNs: r.Max * factor,
				StdDevNs: r.StdDev * factor, P50Ns: r.Median * factor, P99Ns: r.Percentile * factor, StepNs: factor,
			},
		})
	}
	return round, kind, nil
}

// Nanoseconds reads whole ns of a latency type, one a line, as sfnt-pingpong's raw files.
func Nanoseconds(r io.Reader, kind v1alpha1.LatencyType) (result.Histogram, error) {
	recorder, number := result.NewRecorder(), 0
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		number++
		ns, err := strconv.ParseInt(strings.TrimSpace(lines.Text()), 10, 64)
		if err != nil || ns < 1 || ns > longest/factorOf(kind) {
			return result.Histogram{}, fmt.Errorf("line %d: %.40q is not a number of nanoseconds from 1 to %d", number, lines.Text(), longest/factorOf(kind))
		}
		recorder.Record(ns * factorOf(kind))
	}
	if err := lines.Err(); err != nil {
		return result.Histogram{}, fmt.Errorf("line %d: %w", number+1, err)
	}
	if number == 0 {
		return result.Histogram{}, errors.New("it has no samples")
	}
	return recorder.Histogram()
}

func factorOf(kind v1alpha1.LatencyType) int64 {
	if kind == v1alpha1.LatencyHalfRTT {
		return 2
	}
	return 1
}

// mostIntervals is the largest number of intervals of a histogram log: a day of seconds.
const mostIntervals = 86_400

// HistogramLog reads an HdrHistogram log of ns: each interval's histogram, or all in one.
func HistogramLog(r io.Reader, kind v1alpha1.LatencyType, each bool) ([]result.Histogram, error) {
	var all []result.Histogram
	recorder, number, intervals := result.NewRecorder(), 0, 0
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		number++
		line := lines.Text()
		if line == "" || line[0] == '#' || line[0] == '"' {
			continue
		}
		if intervals++; intervals > mostIntervals {
			return nil, fmt.Errorf("line %d: it has more than %d intervals", number, mostIntervals)
		}
		if err := result.RecordEncoded(recorder, line[strings.LastIndexByte(line, ',')+1:], factorOf(kind)); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if each {
			h, err := recorder.Histogram()
			if err != nil {
				return nil, err
			}
			all, recorder = append(all, h), result.NewRecorder()
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", number+1, err)
	}
	if intervals == 0 {
		return nil, errors.New("it has no intervals")
	}
	if each {
		return all, nil
	}
	h, err := recorder.Histogram()
	return []result.Histogram{h}, err
}
