package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/compare"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/imported"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/standing"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

const (
	leastFiles = 6    // rounds of a side, to judge files
	leastRatio = 0.01 // that is no mistake in the unit of a side
)

type filesVerdict struct {
	source
	given               []givenFile
	baseline, candidate []string
	rules               []string
	form, report        string
}

// givenFile is a file that a flag gave to a side, and the number of arguments before it.
type givenFile struct {
	side *[]string
	file string
	args int
}

func newVerdict() *cobra.Command {
	v := &filesVerdict{}
	cmd := &cobra.Command{
		Use:   "verdict --baseline FILE... --candidate FILE... --rule RULE...",
		Short: "Apply rules to a tool's output from any machines, without a cluster",
		Long: "Judge the output of a tool by rules, with the method of benchmarks. Each FILE is a round, in a format that import reads; a\n" +
			"directory stands for its files. The exit code is 0 (Pass), 1 (Fail), 2 (Inconclusive) or 3 (error). No agent observed the\n" +
			"measurement, so no placement is proved, as the first line says. Files do not contain lost messages.\n\n" +
			"A RULE is a metric, max or maxIncrease, and a limit, as in spec.criteria.rules. With fewer than six rounds on a side, the\n" +
			"verdict is Inconclusive. Equal files are one round, and cannot be on both sides. Interleave the rounds of both sides: otherwise,\n" +
			"drift over time looks like a difference between the sides.",
		Example: "  " + name + " verdict --baseline before/*.txt --candidate after/*.txt --rule 'p99 maxIncrease 5%'\n" +
			"  " + name + " verdict --candidate run-*.hlog --rule 'p99.9 max 20us' --tool my-engine --latency-type RTT --protocol TCP --size 264",
		Annotations: map[string]string{exitsByVerdict: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := v.assign(args); err != nil {
				return err
			}
			return v.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	side := func(of *[]string) func(string) error {
		return func(file string) error {
			v.given = append(v.given, givenFile{of, file, f.NArg()})
			return nil
		}
	}
	f.Func("baseline", "FILE... to compare with; not needed if no rule has maxIncrease", side(&v.baseline))
	f.Func("candidate", "FILE... to judge", side(&v.candidate))
	f.StringArrayVar(&v.rules, "rule", nil, "rule, such as 'p99 maxIncrease 5%' or 'p50 max 10us'; may be repeated")
	v.addFlags(f)
	outputFlag(cmd, &v.form, "table", "json")
	f.StringVar(&v.report, "report", "", "file to write an HTML report to")
	return cmd
}

// assign gives each argument to the side of the flag before it: a shell makes several of a pattern.
func (v *filesVerdict) assign(args []string) error {
	next := len(args)
	for _, g := range slices.Backward(v.given) {
		*g.side = slices.Concat([]string{g.file}, args[g.args:next], *g.side)
		next = g.args
	}
	switch {
	case next > 0:
		return fmt.Errorf("%s: it follows neither --baseline nor --candidate, so that its side is unknown", args[0])
	case len(v.candidate) == 0:
		return errors.New("--candidate: name the files to judge, each of a round")
	case len(v.rules) == 0:
		return errors.New("--rule: give at least one, such as 'p99 maxIncrease 5%'")
	}
	return nil
}

func (v *filesVerdict) run(ctx context.Context, stdout, stderr io.Writer) error {
	criteria, err := v.criteria()
	if err != nil {
		return err
	}
	candidate, after, err := v.side(ctx, "candidate", v.candidate, stderr)
	if err != nil {
		return err
	}
	all, before := []export.Benchmark{candidate}, (*judge.Results)(nil)
	if criteria.Baseline != nil {
		baseline, results, err := v.side(ctx, "baseline", v.baseline, stderr)
		if err != nil {
			return err
		}
		for i, round := range candidate.Runs {
			if slices.ContainsFunc(baseline.Runs, func(other result.Stored) bool { return imported.Round(round.Client.Cells).Repeats(other.Client.Cells) }) {
				return fmt.Errorf("round %d of the candidate has the content of a round of the baseline: the same content twice is one round", i+1)
			}
		}
		if err := mayCompare(results, after, stderr); err != nil {
			return err
		}
		all, before = []export.Benchmark{baseline, candidate}, &results
	}
	b := candidate.Object
	b.Spec.Criteria = criteria
	if err := admitted(ctx, b); err != nil {
		return fmt.Errorf("--rule: %w", err)
	}
	judged, err := judge.Evaluate(*criteria, after, before)
	if err != nil {
		return fmt.Errorf("--rule: %w", err)
	}
	b.Status.Verdict = judged.Status()
	b.SetCondition(standing.Passed(b.Status.Verdict))
	if v.report != "" {
		if err := writeReport(stdout, v.report, all); err != nil {
			return err
		}
	}
	s := standing.OfBenchmark(b)
	text := []byte(s.String() + "\n")
	if v.form == "json" {
		text, err = result.EncodeJSON(b.Status.Verdict)
	}
	if err := emit(stdout, text, err); err != nil || exitCode(s.Outcome) == exitPass {
		return err
	}
	return ended{code: exitCode(s.Outcome)}
}

func (v *filesVerdict) criteria() (*v1alpha1.Criteria, error) {
	c := &v1alpha1.Criteria{}
	for _, rule := range v.rules {
		words := strings.Fields(rule)
		if len(words) != 3 {
			return nil, fmt.Errorf("--rule: %q is not a metric, max or maxIncrease, and a limit, such as 'p99 maxIncrease 5%%'", rule)
		}
		r := v1alpha1.Rule{Metric: v1alpha1.Metric(words[0])}
		switch limit := (v1alpha1.Limit{Text: words[2]}); words[1] {
		case "max":
			r.Max = limit
		case "maxIncrease":
			r.MaxIncrease = limit
		default:
			return nil, fmt.Errorf("--rule: %q: %q is neither max nor maxIncrease", rule, words[1])
		}
		c.Rules = append(c.Rules, r)
	}
	switch compares := slices.ContainsFunc(c.Rules, func(r v1alpha1.Rule) bool { return r.Compares() }); {
	case compares && len(v.baseline) == 0:
		return nil, errors.New("--baseline: name the files to compare with, each of a round")
	case len(v.baseline) > 0 && !compares:
		return nil, errors.New("--baseline: no rule has maxIncrease, so that nothing is compared; remove the flag, or add such a rule")
	case compares:
		c.Baseline = &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "baseline"}}}
	}
	return c, nil
}

func (v *filesVerdict) side(ctx context.Context, name string, paths []string, stderr io.Writer) (export.Benchmark, judge.Results, error) {
	var files []string
	for _, path := range paths {
		entries, err := os.ReadDir(path)
		for _, e := range entries {
			if !e.Type().IsRegular() { // A link in a folder of another may lead anywhere.
				return export.Benchmark{}, judge.Results{}, fmt.Errorf("%s: not a regular file; name the files themselves", filepath.Join(path, e.Name()))
			}
			files = append(files, filepath.Join(path, e.Name()))
		}
		if err != nil || len(entries) == 0 {
			files = append(files, path)
		}
	}
	r, twice, err := v.result(name, files)
	if err != nil {
		return export.Benchmark{}, judge.Results{}, err
	}
	for _, file := range twice {
		fmt.Fprintf(stderr, "%s: it has the content of a file before, and both are one round\n", file)
	}
	b, err := r.Benchmark()
	if err == nil {
		err = admitted(ctx, b.Object)
	}
	if err != nil {
		return export.Benchmark{}, judge.Results{}, err
	}
	collected, err := rounds.Of(b.Object.Spec, b.Runs...)
	results := judge.Results{Collection: collected, OfFiles: true}
	if n := len(b.Runs); n < leastFiles {
		results.Trouble = &verdict.Blocker{
			Reason: v1alpha1.ReasonTooFewRounds, Message: fmt.Sprintf("files are judged from %d rounds on a side, and the %s has %d", leastFiles, name, n),
		}
	}
	return b, results, err
}

// mayCompare refuses sides that cannot be compared, and names the notes that differ.
func mayCompare(baseline, candidate judge.Results, stderr io.Writer) error {
	c, err := compare.Compare(compare.Side{Name: "the baseline", Results: baseline}, compare.Side{Name: "the candidate", Results: candidate})
	if err != nil {
		return err
	}
	for _, d := range c.Differences {
		fmt.Fprintf(stderr, "%s differs: %q in the baseline, %q in the candidate\n", d.Key, d.Baseline, d.Candidate)
	}
	for _, f := range c.Figures {
		if f.Ratio != nil && *f.Ratio < leastRatio {
			return fmt.Errorf("%s: %s is less than a hundredth of the baseline's: give both sides in nanoseconds", f.Cell, f.Metric)
		}
	}
	return nil
}
