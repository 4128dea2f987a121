// Package samples reads latencies in the forms that programs write: a number a line, and HdrHistogram's log.
package samples

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// longest is a stored histogram's largest latency.
const longest = time.Minute

// Scale says what numbers are: a unit, of halves of round trips or of whole ones.
type Scale struct {
	Unit time.Duration
	Half bool
}

// factor makes ns of whole round trips of the numbers.
func (s Scale) factor() int64 {
	if s.Half {
		return 2 * int64(s.Unit)
	}
	return int64(s.Unit)
}

// Values reads a number a line, and calls record with the round trip in ns. Numbers of ns are whole.
func Values(r io.Reader, s Scale, record func(ns int64)) error {
	number, factor := 0, float64(s.factor())
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		number++
		n, err := strconv.ParseFloat(strings.TrimSpace(lines.Text()), 64)
		// Each comparison with NaN is false.
		ns := math.Round(n * factor)
		if err != nil || !(ns >= 1 && ns <= float64(longest)) || s.Unit == time.Nanosecond && n != math.Trunc(n) {
			return fmt.Errorf("line %d: %.40q is not a number of nanoseconds from 1 to %d, in units of %s", number, lines.Text(), int64(longest)/(s.factor()/int64(s.Unit)), s.Unit)
		}
		record(int64(ns))
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w", number+1, err)
	}
	if number == 0 {
		return errors.New("it has no samples")
	}
	return nil
}

// LogComment begins the comment of an export's histograms, which names unit and type.
const LogComment = "#[Tailgate: "

// RoundTrips begins that of whole round trips; how they are shown and a bracket follow.
const RoundTrips = LogComment + "an interval is a round, in ns of whole round trips (RTT), shown as "

// readLogComment returns how latencies are shown of whose round trips a log is.
func readLogComment(line string) (v1alpha1.LatencyType, error) {
	switch shown, _ := strings.CutPrefix(line, RoundTrips); shown {
	case string(v1alpha1.LatencyRTT) + "]":
		return v1alpha1.LatencyRTT, nil
	case string(v1alpha1.LatencyHalfRTT) + "]":
		return v1alpha1.LatencyHalfRTT, nil
	}
	return "", fmt.Errorf("%.120q is not of round trips: captured times cannot be imported", line)
}

// mostIntervals is the largest number of intervals of a histogram log: a day of seconds.
const mostIntervals = 86_400

var (
	startTime = regexp.MustCompile(`^#\[StartTime: ([0-9]{1,10})(?:\.[0-9]*)? \(seconds since epoch\)`)
	otherUnit = regexp.MustCompile(`(?i)\b(milli-?seconds?|micro-?seconds?|[mµu]secs?|[mµu]s)\b`)
	// interval is a line with start, length, maximum and histogram, and maybe a tag.
	interval = regexp.MustCompile(`^(?:Tag=([^,]*),)?[0-9.]+,[0-9.]+,[0-9.]+,(\S+)$`)
)

// Log is the content of an HdrHistogram log.
type Log struct {
	// All has the samples of all intervals, unless an export wrote the log: then LatencyType is how they are shown, and each interval is one
	// of its Rounds.
	All         *result.Recorder
	Rounds      []result.Histogram
	LatencyType v1alpha1.LatencyType
	// At is its StartTime, or zero.
	At time.Time
}

// HistogramLog reads an HdrHistogram log of version 2. That of an export has ns of whole round trips, whatever the scale.
func HistogramLog(r io.Reader, s Scale) (Log, error) {
	l := intervals{scale: s, log: Log{All: result.NewRecorder()}, seen: map[string]int{}, tags: map[string]bool{}}
	lines, number := bufio.NewScanner(r), 0
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if number++; lines.Text() == "" {
			continue
		}
		if err := l.add(number, lines.Text()); err != nil {
			return Log{}, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return Log{}, fmt.Errorf("line %d: %w", number+1, err)
	}
	if len(l.tags) > 0 {
		return Log{}, fmt.Errorf("it has the series %s: split it by their tags, and import one series a file", text.List(slices.Sorted(maps.Keys(l.tags)), 8, ", "))
	}
	if len(l.seen) == 0 {
		return Log{}, errors.New("it has no intervals")
	}
	return l.log, nil
}

// intervals are a histogram log, as far as it was read.
type intervals struct {
	scale Scale
	log   Log
	// began: the heading of the intervals was read.
	began bool
	// seen has the lines of intervals with their numbers.
	seen map[string]int
	tags map[string]bool
}

func (l *intervals) add(number int, line string) error {
	switch {
	case strings.HasPrefix(line, LogComment):
		if l.log.LatencyType != "" || len(l.seen) > 0 {
			return errors.New("it has the logs of several exports: import one a file")
		}
		var err error
		l.log.LatencyType, err = readLogComment(line)
		l.scale = Scale{Unit: time.Nanosecond}
		return err
	case line[0] == '#':
		start := startTime.FindStringSubmatch(line)
		switch {
		case start != nil && !l.log.At.IsZero(), start != nil && len(l.seen) > 0:
			return errors.New("it has a second StartTime, of another run: import one run a file")
		case start != nil:
			seconds, _ := strconv.ParseInt(start[1], 10, 64) // at most ten digits
			l.log.At = time.Unix(seconds, 0).UTC()
		case l.scale.Unit == time.Nanosecond && otherUnit.MatchString(line):
			return fmt.Errorf("%.80q names another unit than nanoseconds: convert the values", line)
		}
		return nil
	case line[0] == '"':
		if l.began || len(l.seen) > 0 {
			return errors.New("it has a second heading, of another run: import one run a file")
		}
		l.began = true
		return nil
	}
	found := interval.FindStringSubmatch(line)
	switch {
	case found == nil:
		return fmt.Errorf("%.80q is not an interval: its start, length and maximum, and a histogram", line)
	case strings.HasPrefix(line, "Tag="):
		l.tags[found[1]] = true
		return nil
	case l.seen[line] > 0:
		return fmt.Errorf("it is the same interval as in line %d", l.seen[line])
	case len(l.seen) == mostIntervals:
		return fmt.Errorf("it has more than %d intervals", mostIntervals)
	}
	l.seen[line] = number
	if err := result.RecordEncoded(l.log.All, found[2], l.scale.factor()); err != nil || l.log.LatencyType == "" {
		return err
	}
	h, err := l.log.All.Histogram()
	l.log.Rounds, l.log.All = append(l.log.Rounds, h), result.NewRecorder()
	return err
}
