// Package imported makes exports of what no agent measured: published tables, and output of tools
// on other machines. A result keeps only what its source has: percentiles stay percentiles.
//
// Its documents name the source (result.Document.Imported). Nothing proves such a result, so that
// it can be printed and compared, and no gate can be based on it.
package imported

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/samples"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/sfnt"
	"github.com/tailgate-dev/tailgate/internal/tool/sfntpingpong"
)

// Result is a result that no agent measured.
type Result struct {
	Namespace string `json:"-"`
	Name      string `json:"name"`
	// Source says in a few words where the result is from, At when it was measured or published, or
	// zero. Tool may be another than the API's.
	Source string    `json:"source"`
	At     time.Time `json:"at"`
	// Notes describe its hardware and its limits.
	Notes map[string]string `json:"notes"`
	Tool  v1alpha1.Tool     `json:"tool"`
	// LatencyType is how latencies are shown; cells have whole round trips.
	LatencyType v1alpha1.LatencyType `json:"latencyType"`
	// InToOut: latencies are the server's, from IN to OUT.
	InToOut  bool      `json:"inToOut"`
	Variants []Variant `json:"-"`
}

// Variant has a variant's rounds in order, and maybe the name plan.DefaultVariant.
type Variant struct {
	Name string
	// MTU is that of the network, in bytes; 0 if it is not known.
	MTU    int32
	Rounds []Round
}

// Round has a round's cells: the protocol, message size and rate of their traffic.
type Round []result.Cell

// Repeats reports whether one round's rows are all in the other, in any order and of any date.
func (r Round) Repeats(other Round) bool {
	if len(r) > len(other) {
		r, other = other, r
	}
	return !slices.ContainsFunc(r, func(c result.Cell) bool {
		return !slices.ContainsFunc(other, func(o result.Cell) bool {
			return c.Traffic == o.Traffic && c.Histogram.Encoded == o.Histogram.Encoded && reflect.DeepEqual(c.Own, o.Own)
		})
	})
}

// Benchmark returns the result as a complete benchmark with stored runs.
func (r Result) Benchmark() (export.Benchmark, error) {
	b := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, UID: export.Imported}, Spec: r.spec()}
	completed := r.At
	if completed.IsZero() {
		completed = time.Now()
	}
	b.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonComplete, Message: r.Source,
		LastTransitionTime: metav1.NewTime(completed.UTC().Truncate(time.Second)),
	}}
	all := export.Benchmark{Object: b}
	for _, run := range plan.Runs(b) {
		v := r.Variants[slices.IndexFunc(r.Variants, func(v Variant) bool { return v.Name == run.Variant.Name })]
		if int(run.Round) > len(v.Rounds) {
			continue
		}
		stored, err := r.run(run, v)
		if err != nil {
			return export.Benchmark{}, fmt.Errorf("%s: %w", run.Name, err)
		}
		all.Runs = append(all.Runs, stored)
		b.Status.Stored = append(b.Status.Stored, stored.Named(run.Name))
	}
	return all, nil
}

func (r Result) spec() v1alpha1.LatencyBenchmarkSpec {
	end := func() *v1alpha1.EndpointPlacement {
		return &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "unknown"}}
	}
	s := v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
		Tool: r.Tool, LatencyType: r.LatencyType, Notes: Notes(r.Notes), Network: v1alpha1.Network{Type: v1alpha1.NetworkHost},
		Placement: v1alpha1.Placement{CPUs: 1, Memory: resource.MustParse("512Mi"), Client: end(), Server: end()},
	}}
	if r.InToOut {
		s.Capture = v1alpha1.CaptureServer
	}
	var traffic []v1alpha1.Traffic
	for _, v := range r.Variants {
		s.Rounds = max(s.Rounds, int32(len(v.Rounds)))
		if v.Name != plan.DefaultVariant {
			s.Variants = append(s.Variants, v1alpha1.Variant{Name: v.Name})
		}
		for _, c := range slices.Concat(v.Rounds...) {
			traffic = append(traffic, c.Traffic)
		}
	}
	s.Workload = plan.Workload(traffic...)
	return s
}

func (r Result) run(run plan.Run, v Variant) (result.Stored, error) {
	var ends [2]result.Framed
	for i, role := range []string{v1alpha1.RoleClient, v1alpha1.RoleServer} {
		d := result.Document{
			Version: result.Version, Run: run.Name, Variant: run.Variant.Name, Attempt: 1, Role: role, Imported: r.Source,
			Evidence: result.Evidence{MTU: v.MTU},
		}
		for _, c := range v.Rounds[run.Round-1] {
			of := slices.IndexFunc(run.Cells, func(p tool.Cell) bool { return p.Traffic == c.Traffic })
			if of < 0 {
				return result.Stored{}, fmt.Errorf("no benchmark measures %s together with its other cells", c.CellName())
			}
			c.Cell, c.Tool, c.FinishedAt = run.Cells[of], string(r.Tool), c.StartedAt
			switch {
			case r.InToOut && role == v1alpha1.RoleServer:
				d.Captured = append(d.Captured, result.Captured{Cell: c.Name, Histogram: c.Histogram, Own: c.Own})
			case !r.InToOut && role == v1alpha1.RoleClient:
				d.Cells = append(d.Cells, c)
			}
		}
		var log bytes.Buffer
		err := result.WriteFrame(&log, d)
		if err == nil {
			ends[i], err = result.ReadFrame(&log)
		}
		if err != nil {
			return result.Stored{}, err
		}
	}
	return result.NewStored(ends[0], ends[1], result.Seen{}, result.Seen{})
}

// longest is a stored histogram's largest latency, in ns; mostSizes bounds a table's rows.
const (
	longest   = 60_000_000_000
	mostSizes = 32
)

// File is a file's content: rounds, how their latencies are shown, and when measured, or zero.
type File struct {
	Rounds      []Round
	LatencyType v1alpha1.LatencyType
	At          time.Time
	Tool        v1alpha1.Tool
	Notes       map[string]string
	// Setup are lines about the tool, the client's machine and settings that all rounds share.
	Setup []string
}

// Sfnt reads sfnt-pingpong's table as a round. Its rows become round trips.
func Sfnt(output []byte) (File, error) {
	if strings.Contains(string(output), "n_gaps") {
		return File{}, errors.New("it is a table of sfnt-stream, and only those of sfnt-pingpong can be imported")
	}
	header, rows, fullRTT, err := sfntpingpong.ParseWhole(output)
	if err != nil {
		return File{}, err
	}
	if len(rows) == 0 || len(rows) > mostSizes {
		return File{}, fmt.Errorf("it has %d rows of numbers, and 1 to %d can be imported", len(rows), mostSizes)
	}
	protocol, notes, err := commandLine(header.Value("cmdline"), rows)
	if err != nil {
		return File{}, fmt.Errorf("cmdline: %w", err)
	}
	if set := environment(header); set != "" {
		notes["environment"] = set
	}
	f := File{Tool: sfntpingpong.Name, Rounds: make([]Round, 1), LatencyType: v1alpha1.LatencyHalfRTT, At: plausible(dateOf(header.Value("date"))), Notes: notes}
	for _, e := range header {
		if line := e.Key + ": " + e.Value; shared.MatchString(line) || setting.MatchString(line) {
			f.Setup = append(f.Setup, host.ReplaceAllString(line, "$1")) // Each container may have a name of its own.
		}
	}
	for name, value := range notes {
		f.Setup = append(f.Setup, name+": "+value)
	}
	if fullRTT {
		f.LatencyType = v1alpha1.LatencyRTT
	}
	for _, r := range rows {
		own, err := r.Own(fullRTT)
		if err != nil {
			return File{}, err
		}
		if slices.ContainsFunc(f.Rounds[0], func(c result.Cell) bool { return int64(c.MessageSize) == r.Size }) {
			return File{}, fmt.Errorf("size %d: it has two rows; import one sweep a file", r.Size)
		}
		f.Rounds[0] = append(f.Rounds[0], result.Cell{
			Cell:        tool.Cell{Traffic: v1alpha1.Traffic{Protocol: protocol, MessageSize: int32(r.Size)}},
			ToolVersion: header.Version(), StartedAt: f.At, Warnings: header.Warnings(sfntpingpong.Name),
			Own: own,
		})
	}
	return f, nil
}

// The options of sfnt-pingpong 1.5.0 to 1.6.0: which have no value, which change neither messages
// nor latencies by themselves, and which select multicast. All others are noted.
var (
	flags     = strings.Fields("connect spin rtt mcastloop forkboth nodelay more v6only ipv4 ipv6 quiet verbose q v")
	ordinary  = strings.Fields("port sizes rtt raw percentile minmsg maxmsg minms maxms miniter maxiter warmupiter warmupms ttl bind timeout affinity v6only ipv4 quiet verbose q v")
	multicast = strings.Fields("mcast mcastintf mcastloop")
	others    = strings.Fields("connect spin muxer bindtodev forkboth n-pipe n-unix-d n-unix-s n-udp n-tcpc n-tcpl tcpc-serv n-pings n-pongs nodelay busy-poll sleep-gap spin-gap more ipv6")
)

var listOfSizes = regexp.MustCompile(`^\d+(,\d+)*$`)

// commandLine returns the protocol of a command line of sfnt-pingpong, and its options as a note.
func commandLine(line string, rows []sfntpingpong.Row) (v1alpha1.Protocol, map[string]string, error) {
	words := strings.Fields(line)
	var group bool
	var noted []string
	for words = words[min(1, len(words)):]; len(words) > 0 && strings.HasPrefix(words[0], "-"); {
		option := strings.TrimLeft(words[0], "-")
		words = words[1:]
		if option == "" {
			break
		}
		name, value, given := strings.Cut(option, "=")
		if !given && !slices.Contains(flags, name) && len(words) > 0 {
			value, words = words[0], words[1:]
		}
		switch {
		case slices.Contains(multicast, name):
			group = true
		case name == "n-pings" || name == "n-pongs":
			if value != "1" && value != "1;1" {
				return "", nil, fmt.Errorf("--%s is %.20s: a latency of several messages is that of no other tool and size", name, value)
			}
		case name == "sizes" && listOfSizes.MatchString(value):
			for _, r := range rows {
				if !slices.Contains(strings.Split(value, ","), strconv.FormatInt(r.Size, 10)) {
					return "", nil, fmt.Errorf("--sizes does not name size %d, of which there is a row", r.Size)
				}
			}
			if names := slices.Compact(slices.Sorted(slices.Values(strings.Split(value, ",")))); len(names) > len(rows) {
				return "", nil, fmt.Errorf("--sizes names %d sizes, and there are %d rows: the output was cut", len(names), len(rows))
			}
		case slices.Contains(ordinary, name):
		case slices.Contains(others, name):
			noted = append(noted, strings.TrimSuffix("--"+name+"="+value, "="))
		default:
			return "", nil, fmt.Errorf("--%.40s is none of the options that are known", name)
		}
	}
	var protocol v1alpha1.Protocol
	switch word := strings.Join(words[:min(1, len(words))], ""); {
	case word == "udp" && group:
		protocol = v1alpha1.ProtocolMulticast
	case (word == "tcp" || word == "udp") && !group:
		protocol = v1alpha1.Protocol(strings.ToUpper(word))
	default:
		return "", nil, fmt.Errorf("it names neither tcp nor udp, but %.40q: import the whole output of one of these", word)
	}
	notes := map[string]string{}
	if slices.Sort(noted); len(noted) > 0 {
		notes["options"] = text.Shorten(strings.Join(noted, " "), mostNote)
	}
	return protocol, notes, nil
}

// mostNote is the longest value of a note, in characters.
const mostNote = 256

// A header's lines about build and machine, and the variables that change how sockets work.
var (
	shared  = regexp.MustCompile(`^(version|src|uname|cpu|lspci): |^\S+: (driver|version): `)
	host    = regexp.MustCompile(`^(uname: \S+) \S+`)
	setting = regexp.MustCompile(`^((server )?LD_PRELOAD|EF_|VMA_|onload_version)`)
)

func environment(h sfnt.Header) string {
	var all []string
	for _, e := range h {
		if setting.MatchString(e.Key) {
			all = append(all, e.Key+"="+e.Value)
		}
	}
	slices.Sort(all)
	return text.Shorten(strings.Join(all, " "), mostNote)
}

// dateOf reads what date prints in English; a zone without a number is taken for UTC.
func dateOf(date string) time.Time {
	date = strings.Join(strings.Fields(date), " ")
	for _, layout := range []string{"Mon Jan 2 15:04:05 MST 2006", "Mon 2 Jan 15:04:05 MST 2006", "Mon Jan 2 03:04:05 PM MST 2006", "Mon 2 Jan 03:04:05 PM MST 2006"} {
		if at, err := time.Parse(layout, date); err == nil {
			return at.UTC()
		}
	}
	return time.Time{}
}

// plausible returns a date, or zero for one of a clock that was not set, or of the future.
func plausible(at time.Time) time.Time {
	if at.Year() < 2000 || at.After(time.Now().Add(time.Hour*24)) {
		return time.Time{}
	}
	return at
}

// Nanoseconds reads whole ns of a latency type, one a line, as sfnt-pingpong's raw files.
func Nanoseconds(r io.Reader, kind v1alpha1.LatencyType) (result.Histogram, error) {
	recorder := result.NewRecorder()
	if err := samples.Values(r, samples.Scale{Unit: time.Nanosecond, Half: kind == v1alpha1.LatencyHalfRTT}, recorder.Record); err != nil {
		return result.Histogram{}, err
	}
	h, err := recorder.Histogram()
	return h, cmp.Or(err, samples.CheckMean(float64(h.SumNs)/float64(h.Count), "ns"))
}

// HistogramLog reads an HdrHistogram log of ns as one round, or an export's as its rounds. kind is
// the type of the latencies; an export's log names its own, and kind may be empty.
func HistogramLog(r io.Reader, kind v1alpha1.LatencyType) ([]result.Histogram, File, error) {
	log, err := samples.HistogramLog(r, samples.Scale{Unit: time.Nanosecond, Half: kind == v1alpha1.LatencyHalfRTT})
	f := File{LatencyType: log.LatencyType, At: plausible(log.At)}
	if log.Tag != "" {
		f.Notes, f.Setup = map[string]string{"tag": text.Shorten(log.Tag, mostNote)}, []string{"tag: " + log.Tag}
	}
	if err == nil && log.LatencyType == "" {
		log.Rounds = make([]result.Histogram, 1)
		log.Rounds[0], err = log.All.Histogram()
	}
	if i := slices.IndexFunc(log.Rounds, func(h result.Histogram) bool { return h.Count == 0 }); err == nil && i >= 0 {
		err = fmt.Errorf("round %d: it has no samples", i+1)
	}
	return log.Rounds, f, err
}
