package imported

import (
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Published is the name before the slash with which users name a published result, and its namespace.
const Published = "published"

// ErrNotPublished is returned for a name that no published result has.
var ErrNotPublished = errors.New("no such published result")

//go:embed published
var files embed.FS

// Entry describes a published result.
type Entry struct {
	Name        string               `json:"name"`
	Source      string               `json:"source"`
	At          time.Time            `json:"at"`
	Tool        v1alpha1.Tool        `json:"tool"`
	LatencyType v1alpha1.LatencyType `json:"latencyType"`
	// RatePerSecond, StepNanoseconds and InToOut describe distributions.
	RatePerSecond   int32 `json:"ratePerSecond"`
	StepNanoseconds int64 `json:"stepNanoseconds"`
	InToOut         bool  `json:"inToOut"`
	// Notes describe the hardware and the limits.
	Notes map[string]string `json:"notes"`
	// Variants holds a file for each round of each variant. A file of several variants has no variant.
	Variants map[string][]string `json:"variants"`
}

// Entries returns the published results.
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
	e := all[i]
	r := Result{Namespace: Published, Name: e.Name, Source: e.Source, At: e.At, Tool: e.Tool, LatencyType: e.LatencyType, InToOut: e.InToOut}
	r.Notes = Notes(e.Notes)
	for _, variant := range slices.Sorted(maps.Keys(e.Variants)) {
		v := Variant{Name: variant}
		for _, file := range e.Variants[variant] {
			content, err := files.ReadFile(path.Join("published", file))
			if err == nil {
				err = e.add(&r, &v, content)
			}
			if err != nil {
				return export.Benchmark{}, fmt.Errorf("%s: %w", file, err)
			}
		}
		if len(v.Rounds) > 0 {
			r.Variants = append(r.Variants, v)
		}
	}
	return r.Benchmark()
}

// Notes returns notes in the order of their names.
func Notes(of map[string]string) []v1alpha1.Note {
	var all []v1alpha1.Note
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, v1alpha1.Note{Name: name, Value: of[name]})
	}
	return all
}

// add reads a file of a variant.
func (e Entry) add(r *Result, v *Variant, content []byte) error {
	switch e.Tool {
	case v1alpha1.ToolSfntPingpong:
		round, kind, err := Sfnt(content)
		r.LatencyType, v.Rounds = kind, append(v.Rounds, round)
		return err
	case v1alpha1.ToolNetperf:
		return r.addNetworks(content)
	}
	own, err := Percentiles(content, 1_000, e.StepNanoseconds, e.LatencyType)
	v.Rounds = append(v.Rounds, Round{{Cell: tool.Cell{Protocol: v1alpha1.ProtocolTCP, RatePerSecond: e.RatePerSecond}, Own: own}})
	return err
}

// The message sizes of the table of networks, in bytes.
const (
	pingSize   = 1
	streamSize = 1 << 20
)

// addNetworks reads a table of variant, MTU, protocol, mean latency in µs, and bandwidth in Mb/s.
func (r *Result) addNetworks(content []byte) error {
	rows, err := csv.NewReader(strings.NewReader(string(content))).ReadAll()
	if err != nil {
		return err
	}
	for _, row := range rows[1:] {
		var n [3]int
		for i, text := range []string{row[1], row[3], row[4]} {
			if n[i], err = strconv.Atoi(text); err != nil {
				return err
			}
		}
		protocol := v1alpha1.Protocol(row[2])
		i := slices.IndexFunc(r.Variants, func(v Variant) bool { return v.Name == row[0] })
		if i < 0 {
			i = len(r.Variants)
			r.Variants = append(r.Variants, Variant{Name: row[0], MTU: int32(n[0]), Rounds: []Round{nil}})
		}
		size, bits := int32(streamSize), float64(n[2])*1e6
		if protocol == v1alpha1.ProtocolUDP {
			size = tool.MaxDatagram
		}
		round := &r.Variants[i].Rounds[0]
		*round = append(*round,
			result.Cell{Cell: tool.Cell{Protocol: protocol, MessageSize: pingSize}, Own: &tool.Own{MeanNs: float64(n[1]) * 1_000, StepNs: 1_000}},
			result.Cell{Cell: tool.Cell{Protocol: protocol, MessageSize: size, Stream: true}, Bandwidth: &tool.Bandwidth{BitsPerSecond: bits, SentBitsPerSecond: bits}})
	}
	return nil
}
