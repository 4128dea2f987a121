package verdict

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/test/golden"
)

// The simulation draws rounds with known true values, judges them with Judge, and counts the errors. It is seeded: the table
// in testdata is the result of this code, and the documentation shows it.

// The tolerance of the simulated rules, and the limits of the errors of all looks together, in percent: 1 in 20, and half a point for the chance
// of the simulation.
const (
	tolerance      = 1.10
	mostAtLimit    = 5.5
	mostFalseFail  = 0.1
	centerNs       = 20_000
	atLimitDraws   = 4_000
	otherDraws     = 2_000
	levelDraws     = 4_000
	mixtureDraws   = 4_000
	familyDraws    = 300
	stallDraws     = 600
	modeDeviation  = 0.01
	slowMode       = 7.8 / 4.6 // The two modes of boots that were observed on a real machine, in microseconds.
	simulatedSeeds = 1_000
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

// remembering draws rounds that correlate with the round before.
func remembering(correlation, deviation float64) arm {
	return func(random *rand.Rand, center float64, n int) []int64 {
		out := make([]int64, n)
		x := random.NormFloat64()
		for i := range out {
			out[i] = int64(math.Round(center * (1 + deviation*x)))
			x = correlation*x + math.Sqrt(1-correlation*correlation)*random.NormFloat64()
		}
		return out
	}
}

// stepping draws rounds of which the first differ from the rest by a factor.
func stepping(first int, factor, deviation float64) arm {
	return func(random *rand.Rand, center float64, n int) []int64 {
		out := independent(shapes[0], deviation)(random, center, n)
		for i := range out[:min(first, n)] {
			out[i] = int64(math.Round(factor * float64(out[i])))
		}
		return out
	}
}

// mixed draws rounds of which a share is slower by a factor.
func mixed(deviation, share, factor float64) arm {
	return func(random *rand.Rand, center float64, n int) []int64 {
		out := make([]int64, n)
		for i := range out {
			value := center * (1 + deviation*random.NormFloat64())
			if random.Float64() < share {
				value *= factor
			}
			out[i] = int64(math.Round(value))
		}
		return out
	}
}

// inRuns draws rounds of which a share is slower by a factor, in runs of a number of rounds: a neighbour that comes and goes.
func inRuns(length int, share, factor float64) arm {
	return func(random *rand.Rand, center float64, n int) []int64 {
		out := make([]int64, n)
		slow := random.Float64() < share
		for i := range out {
			if random.Float64()*float64(length) < 1 {
				slow = random.Float64() < share
			}
			value := center * (1 + 0.02*random.NormFloat64())
			if slow {
				value *= factor
			}
			out[i] = int64(math.Round(value))
		}
		return out
	}
}

// stalled draws rounds whose value is the p99.9 of 100,000 messages at 23,000 a second, which stalls delay: on average number in a round, of
// 2 ms on average. All messages that are due in a stall wait for its end, so that the samples beyond the percentile depend on each other.
func stalled(number float64) arm {
	const period, mean, beyond = 1e9 / 23_000.0, 2e6, 100
	return func(random *rand.Rand, center float64, n int) []int64 {
		out := make([]int64, n)
		for i := range out {
			waits := make([]float64, beyond) // Messages outside of stalls do not wait.
			for at := random.ExpFloat64(); at < number; at += random.ExpFloat64() {
				for wait := mean * random.ExpFloat64(); wait > 0; wait -= period {
					waits = append(waits, wait)
				}
			}
			slices.Sort(waits)
			base := centerNs * (1 + modeDeviation*random.NormFloat64())
			out[i] = int64(math.Round(center / centerNs * (base + waits[len(waits)-beyond])))
		}
		return out
	}
}

// design is the number of rounds on each side at the first look, and of candidate rounds at the second; 0 if there is none. If grows is true,
// the baseline is a variant of the same benchmark and has as many rounds as the candidate.
type design struct {
	baseline, candidate, last int
	grows                     bool
}

func (d design) String() string {
	switch {
	case d.last == 0:
		return fmt.Sprintf("%d+%d", d.baseline, d.candidate)
	case d.grows:
		return fmt.Sprintf("%d+%d, then %d+%d", d.baseline, d.candidate, d.last, d.last)
	}
	return fmt.Sprintf("%d+%d, then %d+%d", d.baseline, d.candidate, d.baseline, d.last)
}

// The designs of a benchmark with default rounds: against its own variant, and against a stored result of 12 or 36 rounds.
var (
	twoVariants = design{6, 6, 20, true}
	against12   = design{12, 6, 20, false}
	against36   = design{36, 6, 20, false}
)

// outcomes of many simulated benchmarks.
type outcomes struct{ pass, fail, all, rounds int }

func percent(n, of int) float64 { return 100 * float64(n) / float64(of) }

func (o outcomes) passes() float64 { return percent(o.pass, o.all) }
func (o outcomes) fails() float64  { return percent(o.fail, o.all) }

// String returns Pass/Fail in percent, and the mean number of candidate rounds.
func (o outcomes) String() string {
	return fmt.Sprintf("%.0f / %.1f (%.1f)", o.passes(), o.fails(), float64(o.rounds)/float64(o.all))
}

// looks judges a benchmark as the controller does: at the first look, and at the second if more rounds may decide.
func looks(t *testing.T, d design, in Input, rounds func(cells []Cell, from []Cell, n int)) (Judgement, int) {
	t.Helper()
	in.Rounds, in.MaxRounds = d.candidate, d.last
	baseline, candidate := in.Baseline, in.Candidate
	in.Baseline, in.Candidate = slices.Clone(baseline), slices.Clone(candidate)
	rounds(in.Baseline, baseline, d.baseline)
	rounds(in.Candidate, candidate, d.candidate)
	if d.grows {
		in.Criteria.Baseline = &v1alpha1.Baseline{Type: v1alpha1.BaselineVariant, Variant: &v1alpha1.ObjectName{Name: "base"}}
	}
	judge := func() Judgement {
		given := in
		if d.grows {
			given.Candidate, given.Baseline = slices.Concat(in.Candidate, in.Baseline), nil
		}
		j, err := Judge(given)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	j := judge()
	if !j.MoreRoundsMayDecide {
		return j, d.candidate
	}
	rounds(in.Candidate, candidate, d.last)
	if d.grows {
		rounds(in.Baseline, baseline, d.last)
	}
	return judge(), d.last
}

// simulate judges cells draws times. The true ratio of candidates to baselines is truth.
func simulate(t *testing.T, seed uint64, draws, cells int, d design, baseline, candidate arm, truth float64) outcomes {
	t.Helper()
	random := newRandom(seed)
	in := Input{Criteria: against(v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "10%"}})}
	for i := range cells {
		name := fmt.Sprint(i)
		in.Baseline = append(in.Baseline, cell(v1alpha1.MetricP99, make([]int64, max(d.baseline, d.last))...).named("base", name))
		in.Candidate = append(in.Candidate, cell(v1alpha1.MetricP99, make([]int64, max(d.candidate, d.last))...).named("base", name))
		if d.grows {
			in.Candidate[i].Variant = "candidate"
		}
	}
	o := outcomes{all: draws}
	for range draws {
		for i := range cells {
			in.Baseline[i].set(baseline(random, centerNs, len(in.Baseline[i].Rounds)))
			in.Candidate[i].set(candidate(random, centerNs*truth, len(in.Candidate[i].Rounds)))
		}
		j, n := looks(t, d, in, func(cells, from []Cell, n int) {
			for i := range cells {
				cells[i].Rounds = from[i].Rounds[:n]
			}
		})
		o.add(j, n)
	}
	return o
}

func (o *outcomes) add(j Judgement, rounds int) {
	o.rounds += rounds
	switch j.Outcome {
	case pass:
		o.pass++
	case fail:
		o.fail++
	}
}

// set sets the values of a cell's rounds.
func (c Cell) set(values []int64) {
	for i, v := range values {
		c.Rounds[i].Values[v1alpha1.MetricP99] = stats.Exact(v)
	}
}

// table writes a golden table that a page shows.
func table(t *testing.T, name, test, heading string, rows []string) {
	t.Helper()
	text := fmt.Sprintf("<!-- Written by go test ./internal/verdict -run %s -update. -->\n%s\n%s\n", test, heading,
		strings.Repeat("|---", strings.Count(heading, "|")-1)+"|")
	golden.Check(t, name, text+strings.Join(rows, "\n")+"\n")
}

// each runs a function for every row at the same time and returns its lines.
func each[T any](t *testing.T, rows []T, line func(t *testing.T, seed uint64, row T) string) []string {
	t.Helper()
	lines := make([]string, len(rows))
	t.Run("rows", func(t *testing.T) {
		for i, row := range rows {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				lines[i] = line(t, uint64(i*simulatedSeeds), row)
			})
		}
	})
	return lines
}

// TestErrorRates checks what a verdict promises for rounds that are independent of each other, whatever their distribution: a
// candidate whose true value is at the tolerance passes, and fails, with a probability of at most 1 in 20 over all looks.
func TestErrorRates(t *testing.T) {
	type simulated struct {
		of        shape
		d         design
		deviation float64
	}
	var rows []simulated
	for _, d := range []design{twoVariants, against12, against36} {
		for _, s := range shapes {
			rows = append(rows, simulated{s, d, 0.05})
		}
	}
	for _, deviation := range []float64{0.01, 0.02, 0.10, 0.20, 0.30, 0.50} {
		rows = append(rows, simulated{shapes[0], twoVariants, deviation})
	}
	rows = append(rows, simulated{shapes[0], design{5, 5, 0, false}, 0.05}, simulated{shapes[0], design{10, 10, 0, false}, 0.05}, simulated{shapes[0], design{20, 20, 0, false}, 0.05})
	lines := each(t, rows, func(t *testing.T, seed uint64, r simulated) string {
		draw := independent(r.of, r.deviation)
		at := simulate(t, seed, atLimitDraws, 1, r.d, draw, draw, tolerance)
		same := simulate(t, seed+1, otherDraws, 1, r.d, draw, draw, 1)
		slower := simulate(t, seed+2, otherDraws, 1, r.d, draw, draw, 1.2)
		if at.passes() > mostAtLimit || at.fails() > mostAtLimit {
			t.Errorf("at the tolerance: %s", at)
		}
		if most := mostFalseFail; r.deviation <= 0.10 && same.fails() > most {
			t.Errorf("no change: %s", same)
		}
		if quiet := r.deviation <= 0.02; quiet && (same.passes() < 99.9 || same.rounds > 6*same.all) {
			t.Errorf("a quiet benchmark that has not changed: %s", same)
		}
		return fmt.Sprintf("| %s | %s | %g %% | %.1f / %.1f | %s | %s |", r.of.name, r.d, 100*r.deviation, at.passes(), at.fails(), same, slower)
	})
	table(t, "error-rates.md", "TestErrorRates",
		"| rounds are | baseline + candidate rounds | SD of a round | truly +10 %: Pass / Fail | no change: Pass / Fail (rounds) | truly +20 %: Pass / Fail (rounds) |", lines)
}

// TestMixtures checks what the rule on slow rounds promises: a wire that is slow in a part of the rounds does not pass because its median round
// is not. The two modes are those of the same machine in two boots.
func TestMixtures(t *testing.T) {
	type mixture struct {
		name                string
		baseline, candidate arm
		// least and most are the limits of the share that passes in each design, in percent.
		least, most [3]float64
	}
	modes := func(share float64) arm { return mixed(modeDeviation, share, slowMode) }
	outliers := func(share, factor float64) arm { return mixed(0.02, share, factor) }
	all := [3]float64{100, 100, 100}
	rows := []mixture{
		{"unchanged, one mode", modes(0), modes(0), [3]float64{99.9, 99.9, 99.9}, all},
		{"unchanged, 30 % slow", modes(0.3), modes(0.3), [3]float64{70, 74, 79}, all},
		{"0 to 10 % slow", modes(0), modes(0.1), [3]float64{}, [3]float64{85, 85, 85}},
		{"0 to 20 % slow", modes(0), modes(0.2), [3]float64{}, [3]float64{45, 45, 45}},
		{"0 to 30 % slow", modes(0), modes(0.3), [3]float64{}, [3]float64{16, 16, 16}},
		{"0 to 40 % slow", modes(0), modes(0.4), [3]float64{}, [3]float64{7, 7, 7}},
		{"30 to 60 % slow", modes(0.3), modes(0.6), [3]float64{}, [3]float64{20, 20, 20}},
		{"0 to 30 %, 100 times slower", modes(0), mixed(modeDeviation, 0.3, 100), [3]float64{}, [3]float64{16, 16, 16}},
		{"5 % of both, 10 times slower", outliers(0.05, 10), outliers(0.05, 10), [3]float64{93, 93, 93}, all},
		{"10 % of both, 10 times slower", outliers(0.1, 10), outliers(0.1, 10), [3]float64{85, 85, 85}, all},
	}
	lines := each(t, rows, func(t *testing.T, seed uint64, m mixture) string {
		line := "| " + m.name
		for i, d := range []design{twoVariants, against12, against36} {
			o := simulate(t, seed, mixtureDraws, 1, d, m.baseline, m.candidate, 1)
			if o.passes() < m.least[i] || o.passes() > m.most[i] {
				t.Errorf("%s: %s", d, o)
			}
			line += " | " + o.String()
		}
		return line + " |"
	})
	table(t, "error-rates-mixtures.md", "TestMixtures",
		fmt.Sprintf("| rounds | %s | %s | %s |", twoVariants, against12, against36), lines)
}

// TestStalls checks that the errors stay within their limits although the samples beyond a percentile come from few stalls: a verdict compares
// rounds, which are independent, and not samples. Few stalls make the interval wide, so that nothing is decided.
func TestStalls(t *testing.T) {
	lines := each(t, []float64{3, 6, 20, 60}, func(t *testing.T, seed uint64, number float64) string {
		line := fmt.Sprintf("| %g", number)
		for _, d := range []design{twoVariants, against36} {
			draw := stalled(number)
			at := simulate(t, seed, stallDraws, 1, d, draw, draw, tolerance)
			same := simulate(t, seed+1, stallDraws, 1, d, draw, draw, 1)
			twice := simulate(t, seed+2, stallDraws, 1, d, draw, draw, 2)
			if at.passes() > mostAtLimit || at.fails() > mostAtLimit {
				t.Errorf("%g stalls, %s, at the tolerance: %s", number, d, at)
			}
			if same.fails() > mostAtLimit {
				t.Errorf("%g stalls, %s, no change: %s", number, d, same)
			}
			line += fmt.Sprintf(" | %.1f / %.1f | %s | %s", at.passes(), at.fails(), same, twice)
		}
		return line + " |"
	})
	table(t, "error-rates-stalls.md", "TestStalls", fmt.Sprintf("| stalls a round | %s: truly +10 %%: Pass / Fail | no change: Pass / Fail (rounds) | "+
		"twice as slow | %s: truly +10 %%: Pass / Fail | no change | twice as slow |", twoVariants, against36), lines)
}

// TestManyComparisons simulates benchmarks of many cells: more cells mean more chances of a wrong Fail, unless all are decided
// together; and a change of all of them must not need more rounds than a change of one.
func TestManyComparisons(t *testing.T) {
	draw := independent(shapes[0], 0.03)
	type family struct {
		cells int
		d     design
	}
	single := func(baseline, candidate int) design { return design{baseline, candidate, 0, false} }
	rows := []family{{1, single(6, 6)}, {13, single(5, 5)}, {34, single(6, 6)}, {34, single(12, 6)}, {200, single(12, 6)}, {200, single(10, 10)}, {34, twoVariants}}
	lines := each(t, rows, func(t *testing.T, seed uint64, f family) string {
		at := simulate(t, seed, familyDraws, f.cells, f.d, draw, draw, tolerance)
		slower := simulate(t, seed+1, familyDraws, f.cells, f.d, draw, draw, 1.2)
		if at.fails() > mostAtLimit {
			t.Errorf("%d cells at the tolerance: %s", f.cells, at)
		}
		if slower.fails() < 90 {
			t.Errorf("all of %d cells are slower: %s", f.cells, slower)
		}
		return fmt.Sprintf("| %d | %s | %.1f / %.1f | %s |", f.cells, f.d, at.passes(), at.fails(), slower)
	})
	table(t, "error-rates-cells.md", "TestManyComparisons",
		"| cells | baseline + candidate rounds | all truly +10 %: Pass / Fail | all truly +20 %: Pass / Fail (rounds) |", lines)
}

// TestWhatBreaksIt shows cases in which the error rates do not hold: rounds that share a deviation per session, and sides
// with unequal noise. It documents a warning, and fails if the warning is no longer true.
func TestWhatBreaksIt(t *testing.T) {
	type broken struct {
		name                string
		baseline, candidate arm
		least, most         float64
		d                   design
	}
	ten := design{10, 10, 0, false}
	both := func(name string, a arm, least, most float64) broken { return broken{name, a, a, least, most, ten} }
	rows := []broken{
		both("10 sessions of 1 round a side, SD of a session 5 %", sharing(1, 0.05, 0.02), 1, mostAtLimit),
		both("5 sessions of 2 rounds a side, SD of a session 5 %", sharing(2, 0.05, 0.02), 1, mostAtLimit),
		both("1 session of 10 rounds a side, SD of a session 2 %", sharing(10, 0.02, 0.02), 15, 35),
		both("1 session of 10 rounds a side, SD of a session 5 %", sharing(10, 0.05, 0.02), 30, 50),
		both("each round correlates with the one before by 0.3, SD 5 %", remembering(0.3, 0.05), 2, mostAtLimit),
		both("each round correlates with the one before by 0.6, SD 5 %", remembering(0.6, 0.05), 4, 11),
		both("each round correlates with the one before by 0.8, SD 5 %", remembering(0.8, 0.05), 8, 18),
		{"independent, SD 1 % in the baseline and 10 % in the candidate", independent(shapes[0], 0.01), independent(shapes[0], 0.10), 1, 8, ten},
		{"36+20: SD 1 % in a stored baseline and 10 % in the candidate", independent(shapes[0], 0.01), independent(shapes[0], 0.10), 0, 15, design{36, 20, 0, false}},
		{"20+20: 30 % of the candidate's rounds are 70 % slower, in runs of 6", independent(shapes[0], 0.02), inRuns(6, 0.3, 1.7), 0, 60, design{20, 20, 0, false}},
		{"6+6, then 20+20: the same", independent(shapes[0], 0.02), inRuns(6, 0.3, 1.7), 0, 60, twoVariants},
	}
	lines := each(t, rows, func(t *testing.T, seed uint64, b broken) string {
		at := simulate(t, seed, otherDraws, 1, b.d, b.baseline, b.candidate, tolerance)
		if at.passes() < b.least || at.passes() > b.most {
			t.Errorf("%s, not %g to %g %% Pass", at, b.least, b.most)
		}
		same := simulate(t, seed+1, otherDraws, 1, b.d, b.baseline, b.candidate, 1)
		return fmt.Sprintf("| %s | %.1f / %.1f | %.0f / %.1f |", b.name, at.passes(), at.fails(), same.passes(), same.fails())
	})
	table(t, "error-rates-broken.md", "TestWhatBreaksIt", "| 10+10 rounds, if no other number is given, are | truly +10 %: Pass / Fail | no change: Pass / Fail |", lines)
}

// TestMemory checks what the estimated correlation of successive rounds is worth over both looks: how often a candidate at the tolerance
// passes, and that unchanged quiet rounds still pass.
func TestMemory(t *testing.T) {
	type remembered struct {
		name string
		draw arm
		// most is the largest share that passes at the tolerance in each design, and least the smallest that passes unchanged, in percent.
		most, least [2]float64
	}
	correlated := func(r float64, most, least [2]float64) remembered {
		return remembered{fmt.Sprintf("each round correlates with the one before by %g, SD 5 %%", r), remembering(r, 0.05), most, least}
	}
	rows := []remembered{
		correlated(0, [2]float64{4, 4}, [2]float64{99, 98}),
		correlated(0.3, [2]float64{8, 7}, [2]float64{95, 91}),
		correlated(0.6, [2]float64{15, 13}, [2]float64{84, 80}),
		correlated(0.8, [2]float64{24, 23}, [2]float64{79, 74}),
		{"the first 6 rounds of both sides are 5 % faster, SD 1 %", stepping(6, 0.95, 0.01), [2]float64{4, mostAtLimit}, [2]float64{99, 99}},
		{"the first 6 rounds of both sides are 5 % slower, SD 1 %", stepping(6, 1.05, 0.01), [2]float64{4, 4}, [2]float64{99, 99}},
	}
	lines := each(t, rows, func(t *testing.T, seed uint64, r remembered) string {
		line := "| " + r.name
		for i, d := range []design{twoVariants, against12} {
			at := simulate(t, seed, otherDraws, 1, d, r.draw, r.draw, tolerance)
			same := simulate(t, seed+1, otherDraws, 1, d, r.draw, r.draw, 1)
			if at.passes() > r.most[i] || same.passes() < r.least[i] {
				t.Errorf("%s, at the tolerance %s, no change %s", d, at, same)
			}
			line += fmt.Sprintf(" | %.1f / %.1f | %s", at.passes(), at.fails(), same)
		}
		return line + " |"
	})
	table(t, "error-rates-memory.md", "TestMemory", fmt.Sprintf("| rounds | %s: truly +10 %%: Pass / Fail | no change: Pass / Fail (rounds) | "+
		"%s: truly +10 %%: Pass / Fail | no change |", twoVariants, against12), lines)
}

// TestErrorRatesOfLevels checks what absolute limits promise: if the true median of the rounds is the limit, they pass, and fail, with a
// probability of at most 1 in 20; and a share of rounds far beyond the limit is found.
func TestErrorRatesOfLevels(t *testing.T) {
	judged := func(seed uint64, draw arm, limit float64) outcomes {
		random := newRandom(seed)
		in := Input{Criteria: against(v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: time.Duration(limit).String()}})}
		o := outcomes{all: levelDraws}
		for range levelDraws {
			in.Candidate = []Cell{cell(v1alpha1.MetricP99, draw(random, centerNs, 20)...)}
			j, n := looks(t, design{0, 6, 20, false}, in, func(cells, from []Cell, n int) {
				for i := range cells {
					cells[i].Rounds = from[i].Rounds[:n]
				}
			})
			o.add(j, n)
		}
		return o
	}
	medians := map[string]float64{"normal": 0, "skewed (exponential)": math.Ln2 - 1, "heavy-tailed (t3)": 0}
	for i, s := range shapes {
		median, known := medians[s.name]
		if !known {
			continue // The median of the bimodal shape depends on the width of its slow mode.
		}
		at := judged(uint64(i), independent(s, 0.05), centerNs*(1+0.05*median))
		if at.passes() > mostAtLimit || at.fails() > mostAtLimit {
			t.Errorf("%s, at the limit: %s", s.name, at)
		}
	}
	type share struct {
		beyond      float64
		least, most float64
	}
	rows := []share{{0, 100, 100}, {0.02, 97, 100}, {0.05, 90, 100}, {0.1, 60, 85}, {0.2, 20, 45}, {0.3, 5, 20}, {0.4, 0, 7}, {0.5, 0, 4}}
	lines := each(t, rows, func(t *testing.T, seed uint64, r share) string {
		o := judged(seed, mixed(modeDeviation, r.beyond, 100), 1.1*centerNs)
		if o.passes() < r.least || o.passes() > r.most {
			t.Errorf("%s", o)
		}
		return fmt.Sprintf("| %g %% | %s |", 100*r.beyond, o)
	})
	table(t, "error-rates-levels.md", "TestErrorRatesOfLevels", "| rounds 100 times beyond the limit | 6, then 20 rounds: Pass / Fail (rounds) |", lines)
}
