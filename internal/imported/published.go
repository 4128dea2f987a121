package imported

import (
	"bytes"
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Published precedes the slash in a published result's name, and is its namespace.
const Published = "published"

// ErrNotPublished is returned for a name that no published result has.
var ErrNotPublished = errors.New("no such published result")

//go:embed published
var files embed.FS

// Entry describes a published result.
type Entry struct {
	Result `json:",inline"`
	// RatePerSecond is that of ladders.
	RatePerSecond int32  `json:"ratePerSecond"`
	File          string `json:"file"`
}

func Entries() ([]Entry, error) {
	var all []Entry
	content, err := files.ReadFile("published/index.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(content, &all)
	}
	return all, err
}

// Named returns a published result. The error wraps ErrNotPublished.
func Named(name string) (export.Benchmark, error) {
	all, err := Entries()
	if err != nil {
		return export.Benchmark{}, err
	}
	i := slices.IndexFunc(all, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return export.Benchmark{}, fmt.Errorf("%w: %s/%.80s; `kubectl tailgate published` lists them", ErrNotPublished, Published, name)
	}
	e := &all[i]
	e.Namespace = Published
	content, err := files.ReadFile(path.Join("published", e.File))
	if err == nil {
		err = e.read(content)
	}
	if err != nil {
		return export.Benchmark{}, fmt.Errorf("%s: %w", e.File, err)
	}
	for _, v := range e.Variants {
		for _, round := range v.Rounds {
			for c := range round {
				round[c].StartedAt = e.At
			}
		}
	}
	return e.Benchmark()
}

func Notes(of map[string]string) []v1alpha1.Note {
	var all []v1alpha1.Note
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, v1alpha1.Note{Name: name, Value: of[name]})
	}
	return all
}

func (e *Entry) read(content []byte) error {
	if path.Ext(e.File) == ".txt" {
		f, err := Sfnt(content)
		e.LatencyType, e.Variants = f.LatencyType, []Variant{{Name: plan.DefaultVariant, Rounds: f.Rounds}}
		return err
	}
	add := e.addLadder
	rows, err := csv.NewReader(bytes.NewReader(content)).ReadAll()
	if len(rows) > 0 && slices.Contains(rows[0], "mtu") {
		add = e.addNetwork
	}
	for _, row := range rows[min(1, len(rows)):] {
		if err == nil {
			err = add(row)
		}
	}
	return err
}

// The message sizes of the table of networks, in bytes.
const (
	pingSize   = 1
	streamSize = 1 << 20
)

// addNetwork adds a row of variant, protocol, MTU, mean latency in µs, and bandwidth in Mb/s.
func (e *Entry) addNetwork(row []string) error {
	n, err := numbers(row[2:])
	if err != nil {
		return err
	}
	v := e.variant(row[0], 1)
	v.MTU = int32(n[0])
	protocol, size, bits := v1alpha1.Protocol(row[1]), int32(streamSize), float64(n[2])*1e6
	if protocol == v1alpha1.ProtocolUDP {
		size = tool.MaxDatagram
	}
	v.Rounds[0] = append(v.Rounds[0],
		result.Cell{Cell: tool.Cell{Traffic: v1alpha1.Traffic{Protocol: protocol, MessageSize: pingSize}}, Own: &tool.Own{MeanNs: float64(n[1]) * 1_000, StepNs: 1_000}},
		result.Cell{Cell: tool.Cell{Traffic: v1alpha1.Traffic{Protocol: protocol, MessageSize: size, Stream: true}}, Bandwidth: &tool.Bandwidth{BitsPerSecond: bits, SentBitsPerSecond: bits}})
	return nil
}

// addLadder adds variant, percentile, round, latency in whole µs, events; p0 is the least.
func (e *Entry) addLadder(row []string) error {
	n, err := numbers(row[2:])
	if err != nil {
		return err
	}
	round := &e.variant(row[0], int(n[0])).Rounds[n[0]-1]
	if len(*round) == 0 {
		*round = Round{{Cell: tool.Cell{Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, RatePerSecond: e.RatePerSecond}}, Own: &tool.Own{StepNs: 1_000}}}
	}
	own, ns := (*round)[0].Own, n[1]*1_000
	if row[1] == "max" {
		own.MaxNs, own.Count = ns, n[2]
		return nil
	}
	if row[1] == "p0" {
		own.MinNs = ns
	}
	own.Ladder = append(own.Ladder, tool.OwnPercentile{
		Name: v1alpha1.Percentile(row[1]), Ns: ns, Range: tool.Range{LowNs: ns - own.StepNs/2, HighNs: ns + own.StepNs/2}, Events: n[2],
	})
	return nil
}

func (r *Result) variant(name string, rounds int) *Variant {
	i := slices.IndexFunc(r.Variants, func(v Variant) bool { return v.Name == name })
	if i < 0 {
		i = len(r.Variants)
		r.Variants = append(r.Variants, Variant{Name: name})
	}
	v := &r.Variants[i]
	for len(v.Rounds) < rounds {
		v.Rounds = append(v.Rounds, nil)
	}
	return v
}

func numbers(texts []string) ([]int64, error) {
	var all []int64
	for _, text := range texts {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a positive integer", text)
		}
		all = append(all, n)
	}
	return all, nil
}
