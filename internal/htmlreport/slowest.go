package htmlreport

import (
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// slowest is the table of a variant's slowest samples, with the number of samples that it omits.
type slowest struct {
	// The table shows Shown of Stored samples, which are the slowest of Examined samples.
	Shown, Stored int
	Examined      int64
	// Halved is true if the strip shows half of each round trip, Blind if an endpoint slept while it waited.
	Halved, Blind bool
	Rounds        []slowRound
}

// slowRound holds the slowest samples of a round, the slowest first.
type slowRound struct {
	Round   int32
	Samples []slowSample
}

// slowSample is a slow sample. Times are in microseconds, except At, which is in seconds from the start of the round.
type slowSample struct {
	At, RTT        string
	For            string
	Where          string
	Client, Server string
}

// place is where the interruption may be with which a slow sample coincides: its name and its class on the page.
type place struct {
	where       tool.Where
	Name, Class string
}

// places are in the order of their shapes in the script.
var places = []place{
	{tool.WhereClient, "client", "client"}, {tool.WhereServer, "server", "server"}, {tool.WhereBoth, "both ends", "both"},
	{tool.WhereNeither, "neither", "neither"}, {tool.WhereUndetermined, "unknown", "unknown"},
}

// A page shows about slowSamplesOfAPage slow samples, but at least fewestSlowSamples of each round: a report of twenty cells
// in ten rounds must stay below one megabyte, and the courses take nine tenths of it.
const (
	slowSamplesOfAPage = 400
	fewestSlowSamples  = 2
)

// slowestShown returns the largest number of slow samples of each round that a page of these benchmarks shows.
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

// add adds the slowest samples of a round to the table, and returns them in the form that the script draws.
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
