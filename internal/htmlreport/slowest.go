package htmlreport

import (
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// slowest is the table of a variant's slowest samples one by one, and what was left out of it.
type slowest struct {
	// Shown are in the table, of Stored ones, which are the slowest of Examined samples.
	Shown, Stored int
	Examined      string
	// Halved is whether the strip shows half of each round trip; Blind whether an end slept while it waited.
	Halved, Blind bool
	Rounds        []slowRound

	examined int64
}

// slowRound are the slowest samples of a round, the slowest first.
type slowRound struct {
	Round   int32
	Samples []slowSample
}

// slowSample is one of them. Times are in microseconds, but for At, which is in seconds from the round's start.
type slowSample struct {
	At, RTT        string
	For            string
	Where          string
	Client, Server string
}

// places are with whose interruption a slow sample coincides, in the order in which the script has their shapes.
var places = []tool.Where{tool.WhereClient, tool.WhereServer, tool.WhereBoth, tool.WhereNeither, tool.WhereUndetermined}

// placeNames are what the page says, in the order of places.
var placeNames = []string{"client", "server", "both ends", "neither", "unknown"}

// A page has about so many slow samples, but of each round at least the fewest: a report of twenty cells in ten rounds has to
// stay below a megabyte, of which their courses take nine tenths.
const (
	slowSamplesOfAPage = 400
	fewestSlowSamples  = 2
)

// slowestShown is how many slow samples of each round a page of these benchmarks has at most.
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

// add puts the slowest samples of a round into the table, and returns them as the script draws them.
func (s *slowest) add(round int32, a tool.Attribution, most int, shown func(int64) int64) [][3]int64 {
	row := slowRound{Round: round}
	var drawn [][3]int64
	for _, o := range a.Slowest[:min(most, len(a.Slowest))] {
		// A place that this version does not know is not one that it can tell.
		place := slices.Index(places, o.Where)
		if place < 0 {
			place = slices.Index(places, tool.WhereUndetermined)
		}
		sample := slowSample{
			At: fmt.Sprintf("%.6f", float64(o.AtNs)/1e9), RTT: micros(o.RTTNs), For: thousands(o.Samples), Where: placeNames[place],
			Client: micros(o.ClientGapNs), Server: absent.Text,
		}
		if o.ServerGapNs != nil {
			sample.Server = micros(*o.ServerGapNs)
		}
		row.Samples = append(row.Samples, sample)
		drawn = append(drawn, [3]int64{o.AtNs / 1e6, shown(o.RTTNs), int64(place)})
	}
	s.Rounds = append(s.Rounds, row)
	s.Shown += len(row.Samples)
	s.Stored += len(a.Slowest)
	s.examined += a.Examined
	s.Examined = thousands(s.examined)
	s.Blind = s.Blind || !a.ClientSeesGaps || !a.ServerSeesGaps
	return drawn
}
