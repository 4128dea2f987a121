package verdict

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// publishedRound is one round of the published ladder: whole microseconds by percentile.
type publishedRound struct {
	events int64
	ns     map[string]int64
}

// readPublished reads the published ladders: three rounds without Onload and three with it.
func readPublished(t *testing.T) (off, on []publishedRound) {
	t.Helper()
	file, err := os.Open("testdata/published-ladder.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rounds := &off
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "Onload enabled"):
			rounds = &on
		case strings.HasPrefix(line, "Round "):
			*rounds = append(*rounds, publishedRound{ns: map[string]int64{}})
		}
		fields := strings.Split(line, " : ")
		micros, err := strconv.ParseFloat(fields[min(1, len(fields)-1)], 64)
		if len(fields) != 3 || err != nil {
			continue
		}
		r := &(*rounds)[len(*rounds)-1]
		r.ns[fields[0]] = int64(micros * 1000)
		if r.events, err = strconv.ParseInt(fields[2], 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return off, on
}

// publishedCell returns the rounds as a cell whose values are known to the step.
func publishedCell(rounds []publishedRound, step int64) Cell {
	c := Cell{Variant: "ember", Name: "tcp", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP}}
	names := map[string]v1alpha1.Metric{"50.0%": "p50", "90.0%": "p90", "99.0%": "p99", "99.9%": "p99.9", "99.99%": "p99.99", "99.999%": "p99.999"}
	for _, r := range rounds {
		round := Round{Samples: r.events, Values: map[v1alpha1.Metric]stats.Observation{}}
		for published, metric := range names {
			round.Values[metric] = stats.Rounded(r.ns[published], step)
		}
		c.Rounds = append(c.Rounds, round)
	}
	return c
}

func TestPublishedLadder(t *testing.T) {
	off, on := readPublished(t)
	if len(off) != 3 || len(on) != 3 || off[0].events != 2_154_560 {
		t.Fatalf("%d and %d rounds, the first with %d events", len(off), len(on), off[0].events)
	}
	observe := func(rounds []publishedRound, metric string, step int64) []stats.Observation {
		var out []stats.Observation
		for _, r := range rounds {
			out = append(out, stats.Rounded(r.ns[metric], step))
		}
		return out
	}
	k := stats.MannWhitney(3, 3, 20)
	ten := stats.Tolerance(10_000).Above()
	for _, c := range []struct {
		metric string
		// estimate, lower and upper are the expected results for the whole microseconds as printed.
		estimate, lower, upper float64
		// within and improved state what the bounds show at a tolerance of 10 %; the fields with stepped state the same with
		// half a microsecond of uncertainty on each side.
		within, improved               bool
		steppedWithin, steppedImproved bool
	}{
		{"50.0%", 0.71, 0.62, 0.71, true, true, true, true},
		{"90.0%", 0.70, 0.70, 0.78, true, true, true, true},
		{"99.0%", 0.64, 0.50, 0.75, true, true, true, true},
		{"99.9%", 0.67, 0.54, 0.79, true, true, true, true},
		{"99.99%", 0.91, 0.81, 1.06, true, false, true, false},
		{"99.999%", 0.94, 0.61, 1.06, true, false, true, false},
		{"99.9999%", 0.70, 0.28, 2.26, false, false, false, false},
		{"MAX, TOTAL", 1.01, 0.18, 6.78, false, false, false, false},
	} {
		t.Run(c.metric, func(t *testing.T) {
			for _, step := range []int64{0, 1000} {
				baseline, candidate := observe(off, c.metric, step), observe(on, c.metric, step)
				bounds := stats.Ratios(baseline, candidate, k, k)
				tally := stats.TallyAbove(baseline, candidate, ten)
				within, improved := c.within, c.improved
				if step > 0 {
					within, improved = c.steppedWithin, c.steppedImproved
				} else {
					for what, v := range map[string][2]float64{
						"estimate": {bounds.Estimate, c.estimate}, "lower": {bounds.Lower, c.lower}, "upper": {bounds.Upper, c.upper}} {
						if math.Abs(v[0]-v[1]) > 0.00501 {
							t.Errorf("%s: got %.4f, want %.2f", what, v[0], v[1])
						}
					}
				}
				if tally.Passes(k) != within || bounds.Upper < 1 != improved {
					t.Errorf("in steps of %d ns: within 10 %% %v, improved %v, bounds %.3f to %.3f", step, tally.Passes(k), bounds.Upper < 1, bounds.Lower, bounds.Upper)
				}
				if tally.All-tally.Surely <= k {
					t.Errorf("in steps of %d ns: nothing became slower, and it fails", step)
				}
			}
		})
	}
}

// TestPublishedVerdict judges the published rounds as a gate would: three rounds on each side decide nothing, because the smallest probability of
// 3+3 rounds is one in 20; four would. And 2.15 million events are too few for p99.999: 21 lie beyond it.
func TestPublishedVerdict(t *testing.T) {
	off, on := readPublished(t)
	metrics := []v1alpha1.Metric{"p50", "p90", "p99", "p99.9", "p99.99", "p99.999"}
	const undecided = "TooFewRounds TooFewRounds TooFewRounds TooFewRounds TooFewRounds TooFewSamples"
	for name, c := range map[string]struct {
		baseline, candidate []publishedRound
		step                int64
		tolerance           string
		want                string
	}{
		"Onload turned on":                       {off, on, 1000, "10%", undecided},
		"Onload turned off":                      {on, off, 1000, "10%", undecided},
		"Onload turned on, with a fourth round":  {append(off, off[0]), append(on, on[0]), 1000, "10%", "Pass Pass Pass Pass Pass TooFewSamples"},
		"Onload turned off, with a fourth round": {append(on, on[0]), append(off, off[0]), 1000, "10%", "TooFewRounds TooFewRounds TooFewRounds TooFewRounds StepTooCoarse TooFewSamples"},
	} {
		t.Run(name, func(t *testing.T) {
			var rules []v1alpha1.Rule
			for _, m := range metrics {
				rules = append(rules, v1alpha1.Rule{Metric: m, MaxIncrease: v1alpha1.Limit{Text: c.tolerance}})
			}
			j, err := Judge(Input{Criteria: against(rules...), Candidate: []Cell{publishedCell(c.candidate, c.step)}, Baseline: []Cell{publishedCell(c.baseline, c.step)}})
			if err != nil {
				t.Fatal(err)
			}
			if j.Outcome != inconclusive {
				t.Errorf("one rule is inconclusive, the verdict is %s", j.Outcome)
			}
			var got []string
			for _, r := range j.Rules {
				if r.Outcome == inconclusive {
					got = append(got, r.Comparisons[0].Reason)
				} else {
					got = append(got, fmt.Sprint(r.Outcome))
				}
				t.Log(r.Comparisons[0])
			}
			if line := strings.Join(got, " "); line != c.want {
				t.Errorf("got %s, want %s", line, c.want)
			}
		})
	}
}
