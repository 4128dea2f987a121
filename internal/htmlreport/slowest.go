package htmlreport

import (
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

type slowest struct {
	Shown, Stored int // samples in the table, of those kept; Examined counts all
	Examined      int64
	Halved, Blind bool // half round trips are shown; an endpoint slept while waiting
	Rounds        []slowRound
}

type slowRound struct {
	Round   int32
	Samples []slowSample
}

// slowSample is a slow sample, in µs, but At in s from the start of the round.
type slowSample struct {
	At, RTT        string
	For            string
	Where          string
	Client, Server string
}

// place is where the interruption of a slow sample may be: its name and class on the page.
type place struct {
	where       tool.Where
	Name, Class string
}

// places are in the order of their shapes in the script.
var places = []place{
	{tool.WhereClient, "client", "client"}, {tool.WhereServer, "server", "server"}, {tool.WhereBoth, "both ends", "both"},
	{tool.WhereNeither, "neither", "neither"}, {tool.WhereUndetermined, "unknown", "unknown"},
}

// A page shows about slowSamplesOfAPage, at least fewestSlowSamples of a round, to stay below 1 MB.
const (
	slowSamplesOfAPage = 400
	fewestSlowSamples  = 2
)

func slowestShown(all []export.Benchmark) int {
	rounds := 0
	for _, b := range all {
		for _, s := range report.AllSeries(b.Object, b.Runs) {
			for _, r := range s.Rounds {
				if r.Attribution != nil && len(r.Attribution.Slowest) > 0 {
					rounds++
				}
			}
		}
	}
	return max(fewestSlowSamples, slowSamplesOfAPage/max(rounds, 1))
}

func (s *slowest) add(round int32, a tool.Attribution, most int, shown func(int64) int64) [][3]int64 {
	row := slowRound{Round: round}
	var drawn [][3]int64
	for _, o := range a.Slowest[:min(most, len(a.Slowest))] {
		at := slices.IndexFunc(places, func(p place) bool { return p.where == o.Where })
		if at < 0 {
			at = len(places) - 1 // A place that this version does not know is shown as unknown.
		}
		sample := slowSample{
			At: fmt.Sprintf("%.6f", float64(o.AtNs)/1e9), RTT: micros(o.RTTNs), For: thousands(o.Samples), Where: places[at].Name,
			Client: micros(o.ClientGapNs), Server: absent.Text,
		}
		if o.ServerGapNs != nil {
			sample.Server = micros(*o.ServerGapNs)
		}
		row.Samples = append(row.Samples, sample)
		drawn = append(drawn, [3]int64{o.AtNs / 1e6, shown(o.RTTNs), int64(at)})
	}
	s.Rounds = append(s.Rounds, row)
	s.Shown += len(row.Samples)
	s.Stored += len(a.Slowest)
	s.Examined += a.Examined
	s.Blind = s.Blind || !a.ClientSeesGaps || !a.ServerSeesGaps
	return drawn
}
