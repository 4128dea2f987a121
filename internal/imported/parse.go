package imported

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/sfntpingpong"
)

// longest is the largest latency, in nanoseconds: that of a stored histogram. mostSizes is the largest number of rows of a table.
const (
	longest   = 60_000_000_000
	mostSizes = 32
)

// Sfnt reads the table of sfnt-pingpong, and returns the latency type that it reports. Its rows become round trips.
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
			Cell: tool.Cell{Protocol: protocol, MessageSize: int32(r.Size)}, ToolVersion: header.Version(),
			Own: &tool.Own{
				Count: r.Iterations, MeanNs: float64(r.Mean * factor), MinNs: r.Min * factor, MaxNs: r.Max * factor,
				StdDevNs: r.StdDev * factor, P50Ns: r.Median * factor, P99Ns: r.Percentile * factor, StepNs: factor,
			},
		})
	}
	return round, kind, nil
}

// Nanoseconds reads one latency a line, in whole nanoseconds of a latency type, as sfnt-pingpong's raw files have them.
func Nanoseconds(r io.Reader, kind v1alpha1.LatencyType) (result.Histogram, error) {
	recorder, number := result.NewRecorder(), 0
	for lines := bufio.NewScanner(r); ; {
		if !lines.Scan() {
			if err := lines.Err(); err != nil {
				return result.Histogram{}, fmt.Errorf("line %d: %w", number+1, err)
			}
			break
		}
		number++
		ns, err := strconv.ParseInt(strings.TrimSpace(lines.Text()), 10, 64)
		if err != nil || ns < 1 || ns > longest/factorOf(kind) {
			return result.Histogram{}, fmt.Errorf("line %d: %.40q is not a number of nanoseconds from 1 to %d", number, lines.Text(), longest/factorOf(kind))
		}
		recorder.Record(ns * factorOf(kind))
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

// HistogramLog reads an HdrHistogram log of nanoseconds and returns the histogram of each interval, or of all together.
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

// point is a line of a percentile distribution: a share of the samples, their largest latency, and their number.
type point struct {
	share      float64
	ns, events int64
}

// moments is the line with the mean and the standard deviation.
var moments = regexp.MustCompile(`^#\[Mean\s*=\s*([0-9.]+), StdDeviation\s*=\s*([0-9.]+)\]`)

// Percentiles reads a percentile distribution (.hgrm), whose unit has a number of nanoseconds. It keeps the percentiles that the
// distribution states, or encloses to 1 %. A step of 0 is that of the last decimal.
func Percentiles(text []byte, unit float64, step int64, kind v1alpha1.LatencyType) (*tool.Own, error) {
	own := &tool.Own{}
	var points []point
	scale := func(text string) (float64, error) {
		v, err := strconv.ParseFloat(text, 64)
		if v *= unit * float64(factorOf(kind)); err != nil || !(v >= 0 && v <= longest) {
			return 0, fmt.Errorf("%.40q is not a latency from 0 to 60 s", text)
		}
		return v, nil
	}
	for number, line := range strings.Split(string(bytes.TrimSpace(text)), "\n") {
		line = strings.TrimSpace(line)
		if m := moments.FindStringSubmatch(line); m != nil {
			mean, err := scale(m[1])
			deviation, other := scale(m[2])
			if err := errors.Join(err, other); err != nil {
				return nil, fmt.Errorf("line %d: %w", number+1, err)
			}
			own.MeanNs, own.StdDevNs = mean, int64(math.Round(deviation))
		}
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0][0] < '0' || fields[0][0] > '9' {
			continue
		}
		value, err := scale(fields[0])
		share, noShare := strconv.ParseFloat(fields[1], 64)
		events, noEvents := strconv.ParseInt(fields[2], 10, 64)
		p := point{share, int64(math.Round(value)), events}
		last := point{}
		if len(points) > 0 {
			last = points[len(points)-1]
		}
		if errors.Join(err, noShare, noEvents) != nil || !(share >= last.share && share <= 1) || p.ns < last.ns || p.events < last.events || events < 1 {
			return nil, fmt.Errorf("line %d: %.80q is not a higher percentile than the line before", number+1, line)
		}
		_, decimals, _ := strings.Cut(fields[0], ".")
		own.StepNs = max(own.StepNs, 1, int64(unit*math.Pow10(-len(decimals)))*factorOf(kind))
		points = append(points, p)
	}
	if len(points) < 2 || points[len(points)-1].share != 1 {
		return nil, errors.New("it does not end with 100 %: import the whole file")
	}
	first, last := points[0], points[len(points)-1]
	own.Count, own.MaxNs, own.MinNs = last.events, last.ns, 0
	if first.share == 0 {
		own.MinNs = first.ns
	}
	own.StepNs = cmp.Or(step, own.StepNs)
	own.Ladder = ladder(points, own.StepNs)
	return own, nil
}

// Smallest is the name of the smallest latency in a ladder.
const Smallest v1alpha1.Percentile = "p0"

// ladder returns the percentiles that the points state, or enclose to 1 %.
func ladder(points []point, step int64) []tool.OwnPercentile {
	var all []tool.OwnPercentile
	if first := points[0]; first.share == 0 {
		all = append(all, tool.OwnPercentile{Name: Smallest, Ns: first.ns, Range: tool.Range{LowNs: first.ns, HighNs: first.ns}, Events: first.events})
	}
	for _, p := range stats.Ladder() {
		share := float64(p.Num) / float64(p.Den)
		i := slices.IndexFunc(points, func(at point) bool { return at.share >= share-1e-12 })
		at := points[i]
		low := at.ns
		if i > 0 && at.share > share+1e-12 {
			low = points[i-1].ns
		}
		if at.ns < 1 || at.ns-low > at.ns/100 || i == 0 && at.share > share+1e-12 {
			continue
		}
		all = append(all, tool.OwnPercentile{
			Name: v1alpha1.Percentile(p.Name), Ns: at.ns, Range: tool.Range{LowNs: max(low-step/2, 0), HighNs: at.ns + step/2}, Events: at.events,
		})
	}
	return all
}
