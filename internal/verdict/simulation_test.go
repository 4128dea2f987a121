package verdict

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/test/golden"
)

// The simulation draws rounds with known true values, judges them with Judge, and counts the errors. It is seeded: the table
// in testdata is the result of this code, and the documentation shows it.

// The tolerance of the simulated gate, and the limits of the errors in percent.
const (
	tolerance      = 1.10
	mostFalsePass  = 5.5
	mostFalseFail  = 0.5
	centerNs       = 20_000
	falsePassDraws = 10_000 // The standard error of 4.8 % is 0.21 %: 5.5 % is three of them above the expected value.
	otherDraws     = 2_000
	levelDraws     = 5_000
)

// shape draws the deviation of a round, with a standard deviation of one.
type shape struct {
	name string
	draw func(*rand.Rand) float64
}

var shapes = []shape{
	{"normal", (*rand.Rand).NormFloat64},
	// Rounds that are sometimes much slower and never much faster.
	{"skewed (exponential)", func(r *rand.Rand) float64 { return r.ExpFloat64() - 1 }},
	// Student's t with three degrees of freedom, whose variance is 3.
	{"heavy-tailed (t3)", func(r *rand.Rand) float64 {
		chi := 0.0
		for range 3 {
			z := r.NormFloat64()
			chi += z * z
		}
		return r.NormFloat64() / math.Sqrt(chi/3) / math.Sqrt(3)
	}},
	// Two modes, like a machine that boots into one of two states: 30 % of the rounds are slow.
	{"bimodal", func(r *rand.Rand) float64 {
		const p, within = 0.3, 0.2
		mode := 0.0
		if r.Float64() < p {
			mode = 1
		}
		return ((mode-p)/math.Sqrt(p*(1-p)) + within*r.NormFloat64()) / math.Sqrt(1+within*within)
	}},
}

// arm draws the rounds of one side.
type arm func(random *rand.Rand, center float64, n int) []int64

// independent draws rounds that are independent of each other.
func independent(s shape, deviation float64) arm {
	return func(random *rand.Rand, center float64, n int) []int64 {
		out := make([]int64, n)
		for i := range out {
			// A latency is never negative, even with a heavy tail.
			out[i] = int64(math.Round(center * max(1+deviation*s.draw(random), 0.01)))
		}
		return out
	}
}

// sharing draws groups of rounds that share a session (a boot, a pod, a connection) with a deviation of its own.
func sharing(rounds int, session, deviation float64) arm {
	return func(random *rand.Rand, center float64, n int) []int64 {
		out := make([]int64, n)
		var shift float64
		for i := range out {
			if i%rounds == 0 {
				shift = session * random.NormFloat64()
			}
			out[i] = int64(math.Round(center * (1 + shift + deviation*random.NormFloat64())))
		}
		return out
	}
}

// design is the number of rounds on each side, and the number of additional rounds for a second judgement.
type design struct{ baseline, candidate, extend int }

func (d design) String() string {
	if d.extend > 0 {
		return fmt.Sprintf("%d+%d, then %d", d.baseline, d.candidate, d.candidate+d.extend)
	}
	return fmt.Sprintf("%d+%d", d.baseline, d.candidate)
}

// outcomes of many simulated gates.
type outcomes struct{ pass, fail, all int }

func percent(n, of int) float64 { return 100 * float64(n) / float64(of) }

// simulate judges cells draws times. The true ratio of candidates to baselines is truth.
func simulate(t *testing.T, seed uint64, draws, cells int, d design, baseline, candidate arm, truth float64) outcomes {
	t.Helper()
	gate := against(v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: "10%"})
	gate.ExtendRounds = int32(d.extend)
	random := newRandom(seed)
	in := Input{Gate: gate, Candidate: make([]Cell, cells), Baseline: make([]Cell, cells)}
	all := make([]Cell, cells)
	for i := range cells {
		name := fmt.Sprint(i)
		in.Baseline[i] = cell(v1alpha1.MetricP99, make([]int64, d.baseline)...).named("", name)
		all[i] = cell(v1alpha1.MetricP99, make([]int64, d.candidate+d.extend)...).named("", name)
		in.Candidate[i] = all[i]
	}
	o := outcomes{all: draws}
	for range draws {
		for i := range cells {
			in.Baseline[i].set(baseline(random, centerNs, d.baseline))
			all[i].set(candidate(random, centerNs*truth, d.candidate+d.extend))
			in.Candidate[i].Rounds = all[i].Rounds[:d.candidate]
		}
		j, err := Judge(in)
		if err != nil {
			t.Fatal(err)
		}
		if j.MoreRoundsMayDecide && d.extend > 0 {
			for i := range cells {
				in.Candidate[i].Rounds = all[i].Rounds
			}
			if j, err = Judge(in); err != nil {
				t.Fatal(err)
			}
		}
		switch j.Outcome {
		case pass:
			o.pass++
		case fail:
			o.fail++
		}
	}
	return o
}

// set sets the values of a cell's rounds.
func (c Cell) set(values []int64) {
	for i, v := range values {
		c.Rounds[i].Values[v1alpha1.MetricP99] = stats.Exact(v)
	}
}

// TestErrorRates checks what the gate promises: for rounds that are independent of each other, whatever their distribution,
// a candidate that is truly slower by exactly the tolerance passes in at most 5.5 % of all cases, and one that is not slower
// fails in less than 0.5 %.
func TestErrorRates(t *testing.T) {
	type simulated struct {
		shape
		design
		deviation float64
		line      string
	}
	var rows []simulated
	for _, s := range shapes {
		for _, n := range []int{5, 10, 20} {
			rows = append(rows, simulated{s, design{n, n, 0}, 0.05, ""})
		}
	}
	for _, deviation := range []float64{0.01, 0.03, 0.10} {
		rows = append(rows, simulated{shapes[0], design{10, 10, 0}, deviation, ""})
	}
	rows = append(rows, simulated{shapes[0], design{10, 6, 6}, 0.05, ""})

	t.Run("rows", func(t *testing.T) {
		for i := range rows {
			r, seed := &rows[i], uint64(10*i)
			t.Run(fmt.Sprintf("%s, %s, %g", r.name, r.design, r.deviation), func(t *testing.T) {
				t.Parallel()
				draw := independent(r.shape, r.deviation)
				atTolerance := simulate(t, seed, falsePassDraws, 1, r.design, draw, draw, tolerance)
				same := simulate(t, seed+1, otherDraws, 1, r.design, draw, draw, 1)
				slower := simulate(t, seed+2, otherDraws, 1, r.design, draw, draw, 1.2)
				falsePass, falseFail := percent(atTolerance.pass, atTolerance.all), percent(same.fail, same.all)
				if falsePass > mostFalsePass {
					t.Errorf("%.2f %% of those at the tolerance pass, more than %g", falsePass, mostFalsePass)
				}
				if falseFail >= mostFalseFail {
					t.Errorf("%.2f %% of those without a change fail, not less than %g", falseFail, mostFalseFail)
				}
				// A rate that is far too low would be an error in the simulation: at the tolerance the distribution is known.
				if expected := 100 * passesAtTolerance(r.design); r.extend == 0 && math.Abs(falsePass-expected) > 0.75 {
					t.Errorf("%.2f %% of those at the tolerance pass, %.2f %% are to be expected", falsePass, expected)
				}
				r.line = fmt.Sprintf("| %s | %s | %g %% | %.1f %% | %.1f %% | %.1f %% | %.1f %% |\n", r.name, r.design, 100*r.deviation,
					falsePass, falseFail, percent(same.pass, same.all), percent(slower.fail, slower.all))
			})
		}
	})
	var table strings.Builder
	table.WriteString("<!-- Written by go test ./internal/verdict -run TestErrorRates -update. -->\n" +
		"| rounds are | baseline + candidate rounds | SD of a round | false Pass: truly +10 % | false Fail: no change | Pass: no change | Fail: truly +20 % |\n" +
		"|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		table.WriteString(r.line)
	}
	golden.Check(t, "error-rates.md", table.String())
}

// passesAtTolerance returns the probability of U <= k by enumeration: see stats.MannWhitney.
func passesAtTolerance(d design) float64 {
	k := stats.MannWhitney(d.baseline, d.candidate, stats.OneLook)
	// ways counts the orders in which u of all pairs are in the wrong order, by recursion on the side of the largest value.
	memo := map[[3]int]float64{}
	var ways func(m, n, u int) float64
	ways = func(m, n, u int) float64 {
		switch {
		case u < 0:
			return 0
		case m == 0 || n == 0:
			if u == 0 {
				return 1
			}
			return 0
		}
		key := [3]int{m, n, u}
		if w, ok := memo[key]; ok {
			return w
		}
		w := ways(m-1, n, u-n) + ways(m, n-1, u)
		memo[key] = w
		return w
	}
	sum, all := 0.0, 0.0
	for u := range d.baseline*d.candidate + 1 {
		w := ways(d.baseline, d.candidate, u)
		all += w
		if u <= k {
			sum += w
		}
	}
	return sum / all
}

// TestManyComparisons simulates gates of many cells: more cells mean more chances of a wrong Fail, unless the probability is
// divided among them.
func TestManyComparisons(t *testing.T) {
	draw := independent(shapes[0], 0.03)
	var table strings.Builder
	table.WriteString("<!-- Written by go test ./internal/verdict -run TestManyComparisons -update. -->\n| cells, each truly +10 % | any Fail | all Pass |\n|---|---|---|\n")
	for _, cells := range []int{1, 5, 20} {
		o := simulate(t, uint64(cells), 3_000, cells, design{10, 10, 0}, draw, draw, tolerance)
		if anyFail := percent(o.fail, o.all); anyFail > mostFalsePass {
			t.Errorf("%d cells: %.2f %% of the gates fail", cells, anyFail)
		}
		fmt.Fprintf(&table, "| %d | %.1f %% | %.1f %% |\n", cells, percent(o.fail, o.all), percent(o.pass, o.all))
	}
	golden.Check(t, "error-rates-cells.md", table.String())
}

// TestWhatBreaksIt shows cases in which the error rates do not hold: rounds that share a deviation per session, and sides
// with unequal noise. It documents a warning, and fails if the warning is no longer true.
func TestWhatBreaksIt(t *testing.T) {
	cases := []struct {
		name                string
		baseline, candidate arm
		least, most         float64
	}{
		{"10 sessions of 1 round a side, SD of a session 5 %", sharing(1, 0.05, 0.02), sharing(1, 0.05, 0.02), 3, mostFalsePass},
		{"5 sessions of 2 rounds a side, SD of a session 5 %", sharing(2, 0.05, 0.02), sharing(2, 0.05, 0.02), 7, 16},
		{"1 session of 10 rounds a side, SD of a session 2 %", sharing(10, 0.02, 0.02), sharing(10, 0.02, 0.02), 20, 40},
		{"1 session of 10 rounds a side, SD of a session 5 %", sharing(10, 0.05, 0.02), sharing(10, 0.05, 0.02), 30, 50},
		{"independent, SD 1 % in the baseline and 10 % in the candidate", independent(shapes[0], 0.01), independent(shapes[0], 0.10), 5, 10},
	}
	var table strings.Builder
	table.WriteString("<!-- Written by go test ./internal/verdict -run TestWhatBreaksIt -update. -->\n| 10+10 rounds are | false Pass: truly +10 % |\n|---|---|\n")
	for i, c := range cases {
		o := simulate(t, uint64(i), otherDraws, 1, design{10, 10, 0}, c.baseline, c.candidate, tolerance)
		rate := percent(o.pass, o.all)
		if rate < c.least || rate > c.most {
			t.Errorf("%s: %.2f %%, not %g to %g", c.name, rate, c.least, c.most)
		}
		fmt.Fprintf(&table, "| %s | %.1f %% |\n", c.name, rate)
	}
	golden.Check(t, "error-rates-broken.md", table.String())
}

// TestErrorRatesOfLevels checks what absolute limits promise: if the true median of the rounds is the limit, at most 5.5 %
// pass.
func TestErrorRatesOfLevels(t *testing.T) {
	medians := map[string]float64{"normal": 0, "skewed (exponential)": math.Ln2 - 1, "heavy-tailed (t3)": 0}
	for _, s := range shapes {
		median, known := medians[s.name]
		if !known {
			continue // The median of the bimodal shape depends on the width of its slow mode.
		}
		for _, n := range []int{5, 10, 20} {
			random := newRandom(uint64(n))
			limit := metav1.Duration{Duration: time.Duration(centerNs * (1 + 0.05*median))}
			gate := against(v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxLatency: limit})
			passed, failed := 0, 0
			for range levelDraws {
				j, err := Judge(Input{Gate: gate, Candidate: []Cell{cell(v1alpha1.MetricP99, independent(s, 0.05)(random, centerNs, n)...)}})
				if err != nil {
					t.Fatal(err)
				}
				switch j.Outcome {
				case pass:
					passed++
				case fail:
					failed++
				}
			}
			for what, count := range map[string]int{"pass": passed, "fail": failed} {
				if rate := percent(count, levelDraws); rate > mostFalsePass || rate < 0.5 {
					t.Errorf("%s, %d rounds at the limit: %.2f %% %s", s.name, n, rate, what)
				}
			}
		}
	}
}
