package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// ofEngine says what the files of these tests are.
var ofEngine = []string{"--tool", "my-engine", "--latency-type", "RTT", "--protocol", "TCP", "--size", "264"}

// lists writes lists of samples, each of a round, with a seed, around a median in ns; rounds differ by a share.
func lists(t *testing.T, seed uint64, rounds, samples int, median, differ float64) (files []string) {
	t.Helper()
	random, dir := rand.New(rand.NewPCG(seed, 65)), t.TempDir()
	for r := range rounds {
		var content strings.Builder
		level := median * math.Exp(differ*random.NormFloat64())
		for range samples {
			fmt.Fprintf(&content, "%d\n", int64(level*math.Exp(0.05*random.NormFloat64())))
		}
		files = append(files, filepath.Join(dir, fmt.Sprintf("%02d.txt", r)))
		if err := os.WriteFile(files[r], []byte(content.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func ofFiles(t *testing.T, baseline, candidate []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	all := []string{"verdict"}
	for i, side := range [][]string{baseline, candidate} {
		if len(side) > 0 {
			all = append(append(all, []string{"--baseline", "--candidate"}[i]), side...)
		}
	}
	return run(append(all, args...)...)
}

func TestVerdict(t *testing.T) {
	before, same, slow := lists(t, 1, 8, 2000, 5000, 0.004), lists(t, 2, 8, 2000, 5000, 0.004), lists(t, 3, 8, 2000, 5500, 0.004)
	content, err := os.ReadFile(same[0])
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.txt")
	if err := os.WriteFile(copied, content, 0o600); err != nil {
		t.Fatal(err)
	}
	recorder := result.NewRecorder()
	for line := range strings.Lines(string(content)) {
		ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		recorder.Record(ns)
	}
	h, err := recorder.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "copy.hlog")
	if err := os.WriteFile(log, []byte("#[StartTime: 1726000000.0 (seconds since epoch)]\n0.0,1.0,1.0,"+h.Encoded+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const rule = "--rule=p90 maxIncrease 5%"
	const unproved = ": nothing was proved of these files, which do not have lost messages: "
	cases := map[string]struct {
		baseline, candidate []string
		args                []string
		code                int
		stdout, stderr      string
	}{
		"as good":        {before, same, []string{rule}, exitPass, "Pass" + unproved + "p90 of default/tcp-264: ", ""},
		"slower":         {before, slow, []string{rule}, exitFail, "Fail" + unproved, ""},
		"a directory":    {[]string{filepath.Dir(before[0])}, same, []string{rule}, exitPass, "over 8+8 rounds", ""},
		"no baseline":    {nil, same, []string{"--rule", "p90 max 6us"}, exitPass, "Pass" + unproved, ""},
		"several rules":  {before, same, []string{rule, "--rule", "p50 max 4us"}, exitFail, "\n  p50 max 4µs: Fail, BeyondLimit\n", ""},
		"too few":        {before[:5], slow, []string{rule}, exitInconclusive, "\n  p90 maxIncrease 5%: Inconclusive, TooFewRounds\n", ""},
		"one file":       {nil, same[:1], []string{"--rule", "p90 max 6us"}, exitInconclusive, "files are judged from 6 rounds on a side, and the candidate has 1", ""},
		"a copy":         {before, append(slices.Clone(same[:5]), copied), []string{rule}, exitInconclusive, "the candidate has 5", copied + ": it has the content of a file before"},
		"lost":           {nil, same, []string{"--rule", "lost max 0"}, exitInconclusive, "not every round has lost", ""},
		"streams":        {nil, same, []string{"--rule", "p99.999 max 9us"}, exitInconclusive, "TooFewSamples", ""},
		"as a log":       {append(slices.Clone(before), log), same, []string{rule}, exitError, "", "round 1 of the candidate has the content of a round of the baseline"},
		"both sides":     {before, append(slices.Clone(same), before[3]), []string{rule}, exitError, "", "round 9 of the candidate has the content of a round of the baseline"},
		"µs, not ns":     {before, lists(t, 4, 8, 2000, 5, 0.004), []string{rule}, exitError, "", "no two nodes are so near: the unit of its numbers is not ns"},
		"other units":    {lists(t, 8, 8, 2000, 500_000, 0.004), lists(t, 4, 8, 2000, 1000, 0.004), []string{rule}, exitError, "", "mean is less than a hundredth of the baseline's: give both sides in nanoseconds"},
		"another tool":   {[]string{seeds + "sfnt-e5-2620v4-ull.txt"}, nil, []string{rule, "--candidate", same[0]}, exitError, "", "--latency-type: it reports HalfRTT, not RTT"},
		"no rule":        {before, same, nil, exitError, "", "--rule: give at least one"},
		"half a rule":    {before, same, []string{"--rule", "p90 5%"}, exitError, "", "such as 'p99 maxIncrease 5%'"},
		"a wrong rule":   {before, same, []string{"--rule", "p90 min 5us"}, exitError, "", `"min" is neither max nor maxIncrease`},
		"no unit":        {nil, same, []string{"--rule", "p90 max 5"}, exitError, "", "write 5us"},
		"no metric":      {nil, same, []string{"--rule", "p98 max 5us"}, exitError, "", `Unsupported value: "p98"`},
		"no candidate":   {before, nil, []string{rule}, exitError, "", "--candidate: name the files"},
		"no comparison":  {before, same, []string{"--rule", "p90 max 6us"}, exitError, "", "--baseline: no rule has maxIncrease"},
		"not a baseline": {nil, same, []string{rule}, exitError, "", "--baseline: name the files"},
		"a wrong form":   {before, same, []string{rule, "-o", "xml"}, exitError, "", "known are table, json"},
		"standard input": {nil, []string{"-"}, []string{"--rule", "p90 max 6us"}, exitError, "", "-: standard input is no file of a round"},
		"a protocol":     {nil, same, []string{"--rule", "p90 max 6us", "--protocol", "tcp"}, exitError, "", name + `: spec.workload.protocols[0]: Unsupported value: "tcp"`},
		"a missing file": {before, []string{"nowhere.txt"}, []string{rule}, exitError, "", "nowhere.txt: "},
	}
	for of, c := range cases {
		t.Run(of, func(t *testing.T) {
			args := slices.Concat(ofEngine, c.args)
			code, stdout, stderr := ofFiles(t, c.baseline, c.candidate, args...)
			if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) || c.stderr == "" && stderr != "" {
				t.Errorf("exit code %d, it printed\n%s\nand said %q", code, stdout, stderr)
			}
		})
	}
	if code, _, stderr := run(append([]string{"verdict", same[0], "--candidate", same[1], rule}, ofEngine...)...); code != exitError || !strings.Contains(stderr, "its side is unknown") {
		t.Errorf("a file of no side: exit code %d, %q", code, stderr)
	}
	report := filepath.Join(t.TempDir(), "report.html")
	code, stdout, _ := ofFiles(t, before, slow, append([]string{rule, "-o", "json", "--report", report}, ofEngine...)...)
	v := v1alpha1.Verdict{}
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || code != exitFail || v.Outcome != v1alpha1.VerdictFail || len(v.Rules) != 1 || !strings.Contains(v.Message, "nothing was proved") {
		t.Errorf("exit code %d, %v: %+v", code, err, v)
	}
	html, err := os.ReadFile(report)
	if err != nil || !strings.Contains(string(html), "nothing was proved of these files") {
		t.Errorf("the report: %v, %d bytes", err, len(html))
	}
}

// The job of the samples, which that of Argo Rollouts repeats, judges two directories.
func TestVerdictOfTheSamples(t *testing.T) {
	type job struct {
		Spec batchv1.JobSpec `json:"spec"`
	}
	var own job
	var rollouts struct {
		Spec struct {
			Metrics []struct{ Provider struct{ Job job } }
		}
	}
	for file, into := range map[string]any{"verdict-job.yaml": &own, "argo-rollouts-verdict.yaml": &rollouts} {
		content, err := os.ReadFile(filepath.Join("../../config/samples/gates", file))
		if err == nil {
			err = yaml.Unmarshal(content, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(rollouts.Spec.Metrics) != 1 || !reflect.DeepEqual(own, rollouts.Spec.Metrics[0].Provider.Job) {
		t.Errorf("the jobs differ:\n%+v\n%+v", own, rollouts)
	}
	before, after := filepath.Dir(lists(t, 6, 6, 12_000, 5000, 0.002)[0]), filepath.Dir(lists(t, 7, 6, 12_000, 5000, 0.002)[0])
	var args []string
	container := own.Spec.Template.Spec.Containers[0]
	for _, arg := range append(container.Command[1:], container.Args...) {
		args = append(args, strings.NewReplacer("/rounds/before", before, "/rounds/after", after).Replace(arg))
	}
	if code, stdout, stderr := run(args...); code != exitPass {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

// A file that is damaged ends the command with its name and the line.
func TestVerdictFollowsNoLinks(t *testing.T) {
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("s3cret"), 0o600), os.Symlink(secret, filepath.Join(dir, "1.txt"))); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run("verdict", "--candidate", dir, "--rule", "p99 max 20us", "--latency-type", "RTT", "--protocol", "TCP", "--size", "64", "--tool", "x")
	if code != 3 || stdout != "" || strings.Contains(stderr, "s3cret") || !strings.Contains(stderr, "1.txt: not a regular file") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

func TestVerdictRefusesFiles(t *testing.T) {
	good := lists(t, 5, 6, 100, 5000, 0.01)
	for content, want := range map[string]string{
		"":                       "it has no samples",
		"5000\nNaN\n":            `line 2: "NaN" is not a number`,
		"5000\n-1\n":             `line 2: "-1" is not a number of nanoseconds from 1 to`,
		"5000\n5.1\n":            `line 2: "5.1"`,
		"5000\n\n5000\n":         `line 2: ""`,
		"5000us\n":               "line 1: ",
		"5000\n61000000000\n":    "line 2: ",
		"{\"p99\": 5000}\n":      "line 1: ",
		strings.Repeat("5", 1e5): "line 1: ",
	} {
		file := filepath.Join(t.TempDir(), "bad.txt")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := ofFiles(t, good, append(slices.Clone(good[:1]), file), append([]string{"--rule", "p90 maxIncrease 5%"}, ofEngine...)...)
		if code != exitError || stdout != "" || !strings.HasPrefix(stderr, name+": "+file+": ") || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%.20q: exit code %d, %q and %q", content, code, stdout, stderr)
		}
	}
}

// Of 200 pairs of equal sides at most 1 in 40 fail, and of 200 pairs exactly at the limit at most 1 in 40 pass or fail, as stated.
func TestVerdictErrors(t *testing.T) {
	const pairs = 200
	for ratio, most := range map[float64][2]int{1: {pairs, pairs / 40}, 1.02: {pairs / 40, pairs / 40}} {
		var passed, failed int
		for n := range uint64(pairs) {
			seed := 1000*n + uint64(1000*ratio)
			code, _, stderr := ofFiles(t, lists(t, seed, 6, 200, 50_000, 0.02), lists(t, seed+1, 6, 200, 50_000*ratio, 0.02), append([]string{"--rule", "p50 maxIncrease 2%"}, ofEngine...)...)
			switch code {
			case exitPass:
				passed++
			case exitFail:
				failed++
			case exitError:
				t.Fatal(stderr)
			}
		}
		t.Logf("ratio %v: %d of %d passed, %d failed", ratio, passed, pairs, failed)
		if passed > most[0] || failed > most[1] {
			t.Errorf("ratio %v: %d of %d passed, at most %d may; %d failed, at most %d may", ratio, passed, pairs, most[0], failed, most[1])
		}
	}
}
