// Package samples reads latencies as programs write them: a number a line, and HdrHistogram's log.
package samples

import (
	"bufio"
	"cmp"
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
	"github.com/tailgate-dev/tailgate/internal/tool"
)

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

// nearest is the shortest mean round trip in ns, which crosses a bus between NIC and memory four times.
const nearest = 500

// CheckMean refuses a mean round trip in ns that no two nodes have: the unit is another one.
func CheckMean(mean float64, unit string) error {
	if mean >= nearest {
		return nil
	}
	return fmt.Errorf("its mean round trip is %.3g ns, and no two nodes are so near: the unit of its numbers is not %s, or they are no round trips; give such times as a histogram log", mean, unit)
}

// Values reads a decimal number a line, and calls record with the round trip in ns. Only numbers of
// longer units than ns may have decimals or an exponent, as programs print 0.000012 s.
func Values(r io.Reader, s Scale, record func(ns int64)) error {
	read, digits, factor := 0, "0123456789.", float64(s.factor())
	if s.Unit != time.Nanosecond {
		digits += "eE+-"
	}
	err := tool.EachLine(r, func(number int, line []byte) error {
		decimal := strings.TrimSpace(string(line))
		n, err := strconv.ParseFloat(decimal, 64)
		ns := math.Round(n * factor)
		if err != nil || strings.Trim(decimal, digits) != "" || ns < 1 || ns > float64(longest) || s.Unit == time.Nanosecond && n != math.Trunc(n) {
			return fmt.Errorf("%.40q is not a number of nanoseconds from 1 to %d, in units of %s", line, int64(longest)/(s.factor()/int64(s.Unit)), s.Unit)
		}
		record(int64(ns))
		read = number
		return nil
	})
	if err == nil && read == 0 {
		return errors.New("it has no samples")
	}
	return err
}

// LogComment begins the comment of an export's histograms, which names unit and type.
const LogComment = "#[Tailgate: "

// RoundTrips begins that of whole round trips; how they are shown and a bracket follow.
const RoundTrips = LogComment + "an interval is a round, in ns of whole round trips (RTT), shown as "

// Lacking begins a comment of what a log of an export does not have.
const Lacking = LogComment + "not in this log are "

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

const mostIntervals = 86_400

var (
	startTime = regexp.MustCompile(`^#\[StartTime: ([0-9]{1,10})(?:\.[0-9]*)? \(seconds since epoch\)`)
	// interval is a line with start, length, maximum and histogram, and maybe a tag.
	interval = regexp.MustCompile(`^(?:Tag=([^,]*),)?([0-9.]+),([0-9.]+),[0-9.]+,(\S+)$`)

	// Words of units are between non-letters, after splitWords. Several ns, such as 100 ns, differ.
	splitWords = regexp.MustCompile(`(\p{Ll})(\p{Lu})`)
	inNs       = regexp.MustCompile(`(?i)(?:^|[^0-9] |[^\pL0-9 ])n(?:ano)?[ _-]?s(?:ecs?|econds?)?(?:\PL|$)`)
	otherUnit  = regexp.MustCompile(`(?i)(?:^|[^\pL'’])(?:(?:milli|micro|pico|[mpuµ])?s(?:ecs?|econds?)?|milli|micro|pico|µ|mcs|мкс|мс|㎲|㎳|minutes?|hours?|ticks?|cycles?|jiffies|(?:rd)?tscp?|n(?:ano)?s)(?:\PL|$)`)
	ofUnit     = regexp.MustCompile(`(?i)(?:^|\PL)units?(?:\PL|$)`)
)

// namesOtherUnit reports whether a comment or a heading may say that values are not nanoseconds.
func namesOtherUnit(line string) bool {
	words := splitWords.ReplaceAllString(strings.Replace(line, "(seconds since epoch)", "", 1), "$1 $2")
	rest := inNs.ReplaceAllString(words, " ")
	return otherUnit.MatchString(rest) || rest == words && ofUnit.MatchString(words)
}

// Log is the content of an HdrHistogram log.
type Log struct {
	// All has all intervals' samples; an export's log has Rounds, shown by their LatencyType.
	All         *result.Recorder
	Rounds      []result.Histogram
	LatencyType v1alpha1.LatencyType
	// At is its StartTime, or zero; Tag is that of all intervals, or empty.
	At  time.Time
	Tag string
}

// HistogramLog reads an HdrHistogram log, version 2. An export's has ns of whole round trips.
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
	tags := slices.Sorted(maps.Keys(l.tags))
	switch {
	case len(tags) == 0:
		return Log{}, errors.New("it has no intervals")
	case len(tags) > 1:
		return Log{}, fmt.Errorf("it has the series %s: split it by their tags, and import one series a file", text.List(tags, 8, ", "))
	}
	l.log.Tag = strings.TrimSuffix(tags[0], untagged)
	return l.log, nil
}

type intervals struct {
	scale Scale
	log   Log
	// started: a StartTime was read. heading is that of the intervals.
	started bool
	heading string
	// seen has the intervals with the numbers of their lines. end is that of the last.
	seen map[string]int
	end  time.Duration
	tags map[string]bool
}

// untagged stands for no tag: a tag has no comma.
const untagged = "lines, without a tag"

func (l *intervals) add(number int, line string) error {
	switch {
	case strings.HasPrefix(line, Lacking):
		return fmt.Errorf("%.120q: of an export, get, compare and report read the directory; captures: -o table counts what was lost", line)
	case strings.HasPrefix(line, LogComment):
		if l.log.LatencyType != "" || len(l.seen) > 0 {
			return errors.New("it has the logs of several exports: import one a file")
		}
		var err error
		l.log.LatencyType, err = readLogComment(line)
		l.scale = Scale{Unit: time.Nanosecond}
		return err
	case line[0] == '#', line[0] == '"':
		return l.addComment(line)
	}
	found := interval.FindStringSubmatch(line)
	if found == nil {
		return fmt.Errorf("%.80q is not an interval: its start, length and maximum, and a histogram", line)
	}
	if l.tags[cmp.Or(found[1], untagged)] = true; len(l.tags) > 1 {
		return nil // It is refused with all its tags.
	}
	start, err := time.ParseDuration(found[2] + "s")
	end, err2 := time.ParseDuration(found[3] + "s")
	if !strings.Contains(l.heading, "EndTimestamp") { // HdrHistogram_c writes it.
		end += start
	}
	key := fmt.Sprint(start, end, found[4])
	switch {
	case err != nil || err2 != nil || end < start:
		return fmt.Errorf("%s and %s are not the start and the length of an interval, in seconds", found[2], found[3])
	case l.seen[key] > 0:
		return fmt.Errorf("it is the same interval as in line %d", l.seen[key])
	case l.log.LatencyType == "" && start < l.end-time.Millisecond: // Writers round to it.
		return fmt.Errorf("it begins at %s, and the interval before ends at %s: import one run a file, with each message in one interval", start, l.end)
	case len(l.seen) == mostIntervals:
		return fmt.Errorf("it has more than %d intervals", mostIntervals)
	}
	l.seen[key], l.end = number, end
	if err := result.RecordEncoded(l.log.All, found[4], l.scale.factor()); err != nil || l.log.LatencyType == "" {
		return err
	}
	h, err := l.log.All.Histogram()
	l.log.Rounds, l.log.All = append(l.log.Rounds, h), result.NewRecorder()
	return err
}

func (l *intervals) addComment(line string) error {
	start, heading := startTime.FindStringSubmatch(line), line[0] == '"'
	switch {
	case start != nil && (l.started || len(l.seen) > 0):
		return errors.New("it has a second StartTime, of another run: import one run a file")
	case heading && (l.heading != "" || len(l.seen) > 0):
		return errors.New("it has a second heading, of another run: import one run a file")
	case l.scale.Unit == time.Nanosecond && namesOtherUnit(line):
		return fmt.Errorf("%.80q may name another unit than nanoseconds: convert the values; if it is not about their unit, remove this line", line)
	case heading:
		l.heading = line
	case start != nil:
		seconds, _ := strconv.ParseInt(start[1], 10, 64) // at most ten digits
		l.started, l.log.At = true, time.Unix(seconds, 0).UTC()
	}
	return nil
}
