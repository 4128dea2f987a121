package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/compare"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
)

// seeds is the directory with published tables.
const seeds = "../imported/published/"

// Several sweeps are in one table for each metric, with ratios to the first; the figures are those of the publication.
func TestComparePublished(t *testing.T) {
	names := []string{"compare", "published/sfnt-e5-2620v4-ull", "published/sfnt-e5-2620v4-full-feature", "published/sfnt-e5-2620v4-vm", "published/sfnt-gold-6246-vm"}
	code, stdout, stderr := run(names...)
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, it said %q", code, stderr)
	}
	for _, want := range []string{
		"3 results against published/sfnt-e5-2620v4-ull\n", "\np50\n",
		"  tcp-1      1.72µs    2.07µs   1.205    1.83µs   1.066    1.50µs   0.874\n", // 1719, 2071, 1833 and 1503 ns
		"published/sfnt-e5-2620v4-vm: Imported: not measured by Tailgate, so that nothing proves it and no gate can be based on it: ",
		"published/sfnt-e5-2620v4-vm: caveat-ctpio: inferred, not measured: this table is with CTPIO",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	code, stdout, stderr = run(append(names, "-o", "json")...)
	var got []compare.Comparison
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || len(got) != 3 {
		t.Fatalf("exit code %d, %q, %v: %d comparisons", code, stderr, err, len(got))
	}
	for _, c := range got {
		if len(c.Figures) != 17*3 {
			t.Errorf("%s: %d figures, want mean, p50 and p99 of 17 sizes", c.Candidate, len(c.Figures))
		}
		for _, f := range c.Figures {
			if f.Shown != compare.ShownRatio || f.Lower != nil || f.Upper != nil {
				t.Errorf("%s, %s of %s: a single sweep shows %q with [%v, %v]", c.Candidate, f.Metric, f.Cell, f.Shown, f.Lower, f.Upper)
			}
		}
	}
	if code, stdout, stderr := run(append(names, "-o", "csv")...); code != 0 || !strings.Contains(stdout, "1.20") {
		t.Errorf("exit code %d, it said %q and printed\n%s", code, stderr, stdout)
	}
}

// The imported sweeps are rounds. With four on each side there is an interval.
func TestImport(t *testing.T) {
	dir := t.TempDir()
	slow, fast := seeds+"sfnt-e5-2620v4-full-feature.txt", seeds+"sfnt-e5-2620v4-ull.txt"
	for name, file := range map[string]string{"slow": slow, "fast": fast} {
		code, stdout, stderr := run("import", file, other(t, file, 1), other(t, file, 2), other(t, file, 3), "--name", name, "-o", dir, "--note", "hardware=Xeon E5, SFC9250")
		if code != 0 || !strings.Contains(stdout, "4 rounds of sfnt-pingpong in ") || stderr != "" {
			t.Fatalf("exit code %d, it printed %q and said %q", code, stdout, stderr)
		}
	}
	code, stdout, stderr := run("compare", filepath.Join(dir, "fast"), filepath.Join(dir, "slow"))
	for _, want := range []string{"tcp-1 of default, 4 rounds against 4", "p50     1.72µs    2.07µs     1.205  [1.20", "fast: Imported: "} {
		if !strings.Contains(stdout, want) || code != 0 {
			t.Fatalf("exit code %d, it said %q; no %q in\n%s", code, stderr, want, stdout)
		}
	}
	if code, stdout, _ := run("gate", filepath.Join(dir, "fast")); code != exitInconclusive {
		t.Errorf("gate exits with %d and prints %q", code, stdout)
	}
	samples := filepath.Join(dir, "samples.dat")
	if err := os.WriteFile(samples, []byte(strings.Repeat("1500\n1600\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	cell := []string{"--tool", "sfnt-pingpong", "--protocol", "TCP", "--size", "1", "-o", dir}
	raw := append([]string{"import", samples, "--name", "raw", "--latency-type", "HalfRTT"}, cell...)
	if code, _, stderr := run(raw...); code != 0 {
		t.Fatalf("exit code %d, %q", code, stderr)
	}
	// The log of an export names unit and type, and becomes the same export again.
	histograms := filepath.Join(dir, "raw", "histograms", "default", "tcp-1.")
	for _, args := range [][]string{
		{"import", histograms + "hlog", "--name", "again"},
		{"import", histograms + "hlog", "--name", "again-half", "--latency-type", "HalfRTT"},
		{"import", histograms + "hlog", "--name", "again-whole", "--latency-type", "RTT"},
	} {
		if code, _, stderr := run(append(args, cell...)...); code != 0 {
			t.Fatalf("exit code %d, %q", code, stderr)
		}
		code, stdout, stderr := run("compare", filepath.Join(dir, "raw"), filepath.Join(dir, args[3]), "-o", "csv")
		for _, metric := range []string{"mean", "p50", "p90", "p99"} {
			_, line, _ := strings.Cut(stdout, ",tcp-1,"+metric+",Nanoseconds,1,1,")
			line, _, _ = strings.Cut(line, "\n")
			fields := strings.Split(line, ",")
			if code != 0 || fields[0] != fields[1] || fields[0] == "" || args[3] == "again" && fields[0] != map[string]string{"mean": "1550", "p50": "1500", "p90": "1600", "p99": "1600"}[metric] {
				t.Errorf("%s, %s: exit code %d, %q, %q", args[3], metric, code, stderr, line)
			}
		}
	}
	if code, _, stderr := run(raw...); code != 1 || !strings.Contains(stderr, "exists") {
		t.Errorf("a second import: exit code %d, %q", code, stderr)
	}
}

// other returns a copy of a file with a table, as of another run: its rows have more iterations.
func other(t *testing.T, file string, n int) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^([\pZ\t]*[0-9].*[^0-9])([0-9]+)[\pZ\t]*$`)
	if !row.Match(content) {
		t.Fatal("no row")
	}
	path := filepath.Join(t.TempDir(), "other.txt")
	if err := os.WriteFile(path, row.ReplaceAll(content, []byte(fmt.Sprintf("${1}%d${2}", n))), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A result of a tool that Tailgate does not have can be read, and is not compared with one that it has.
func TestImportOfAnotherTool(t *testing.T) {
	if own, known := slices.Sorted(maps.Keys(all.Registry())), slices.Sorted(slices.Values(v1alpha1.Tools)); !slices.Equal(own, known) {
		t.Errorf("the tools are %v, and exports know %v", own, known)
	}
	dir := t.TempDir()
	samples := filepath.Join(dir, "samples.dat")
	if err := os.WriteFile(samples, []byte("1500\n1600\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"aeron", "pinger", "aeron_2"} {
		code, _, stderr := run("import", samples, "--name", strings.ReplaceAll(tool, "_", "-"), "-o", dir, "--tool", tool, "--latency-type", "RTT", "--protocol", "UDP", "--size", "64", "--rate", "1000")
		if code != 0 {
			t.Fatal(stderr)
		}
	}
	if code, stdout, stderr := run("get", filepath.Join(dir, "aeron")); code != 0 || !strings.Contains(stdout, "imported/aeron: aeron, RTT") {
		t.Errorf("exit code %d, it said %q and printed\n%s", code, stderr, stdout)
	}
	for _, with := range []string{"pinger", "aeron-2"} {
		if code, stdout, stderr := run("compare", filepath.Join(dir, "aeron"), filepath.Join(dir, with)); code != 1 || !strings.Contains(stderr, "measure both with the same tool") {
			t.Errorf("%s: exit code %d, it said %q and printed\n%s", with, code, stderr, stdout)
		}
	}
	if code, _, stderr := run("report", filepath.Join(dir, "aeron"), "-o", filepath.Join(dir, "report.html")); code != 0 {
		t.Errorf("report: exit code %d, %q", code, stderr)
	}
}

// encoded returns an HdrHistogram of a sample.
func encoded(t *testing.T, ns int64) string {
	r := result.NewRecorder()
	r.Record(ns)
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	return h.Encoded
}

func TestImportRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	samples, sweep := file("samples.dat", "1500\n"), seeds+"sfnt-e5-2620v4-ull.txt"
	text, err := os.ReadFile(sweep)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(name string, old, by string) string {
		if !strings.Contains(string(text), old) {
			t.Fatalf("no %q", old)
		}
		return file(name, strings.Replace(strings.TrimSuffix(string(text), "0\n"), old, by, 1)+"\n")
	}
	log := "#[Histogram log format version 1.3]\n0.0,0.0,1," + encoded(t, 1500) + "\n"
	cell := []string{"--name", "x", "--tool", "pinger", "--latency-type", "HalfRTT", "--protocol", "TCP", "--size", "1"}
	percentiles := file("x.hgrm", "Value Percentile TotalCount\n\n1.0 0.0 1\n2.0 1.0 9\n")
	huge := file("huge.dat", "1\n")
	if err := os.Truncate(huge, mostRead+1); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a named pipe":                  {[]string{pipe, "--name", "x"}, "it is no regular file"},
		"an empty file":                 {[]string{file("empty", ""), "--name", "x", "--tool", "pinger", "--latency-type", "RTT", "--protocol", "TCP", "--size", "1"}, "it has no samples"},
		"a table of another size":       {[]string{sweep, "--name", "x", "--size", "64"}, "--protocol, --size and --rate: a table says what was measured; remove these flags"},
		"the same content twice":        {[]string{sweep, other(t, sweep, 1), sweep, "--name", "x"}, "the same content twice is one round"},
		"the same with a later date":    {[]string{sweep, file("date.txt", strings.Replace(string(text), "BST 2019", "BST 2020", 1)), "--name", "x"}, "the same content twice is one round"},
		"the same without a date":       {[]string{sweep, file("no-date.txt", strings.Replace(string(text), "# date: ", "# dated: ", 1)), "--name", "x"}, "the same content twice is one round"},
		"a list and a log of it":        {append([]string{file("list.dat", "3333\n"), file("x.hlog", strings.Replace(log, encoded(t, 1500), encoded(t, 3333), 1))}, cell...), "the same content twice is one round"},
		"another kernel":                {[]string{sweep, changed("kernel.txt", "3.10.0-957", "4.18.0-305"), "--name", "x"}, "import them apart"},
		"another CPU":                   {[]string{sweep, changed("cpu.txt", "E5-2620 v4", "E5-2621"), "--name", "x"}, "import them apart"},
		"another driver":                {[]string{sweep, changed("driver.txt", "driver: sfc", "driver: mlx5_core"), "--name", "x"}, "driver: "},
		"another version":               {[]string{sweep, changed("version.txt", "# version: 1.5.0", "# version: 1.6.0"), "--name", "x"}, `"version: 1.6.0" is not in both`},
		"a log with a tag, one without": {append([]string{file("tag.hlog", strings.Replace(log, "\n0.0", "\nTag=A,0.0", 1)), samples}, cell...), `"tag: A" is not in both`},
		"a DoubleHistogram":             {append([]string{file("double.hlog", "0.0,1.0,1,DHISTwAAAA\n")}, cell...), "DoubleHistogram: record integers"},
		"intervals as rounds":           {[]string{sweep, "--name", "x", "--each-interval"}, "unknown flag: --each-interval"},
		"other options":                 {[]string{sweep, file("spin.txt", strings.Replace(string(text), "sfnt-pingpong ", "sfnt-pingpong --spin ", 1)), "--name", "x"}, "import them apart"},
		"no file":                       {[]string{}, "the files to import"},
		"a file that does not exist":    {[]string{"nowhere.txt", "--name", "x"}, "nowhere.txt"},
		"a directory":                   {[]string{dir, "--name", "x"}, "it is a directory"},
		"a file that is too large":      {[]string{huge, "--name", "x"}, "import a part of it"},
		"no name":                       {[]string{sweep}, "--output and --name"},
		"a name that leaves":            {[]string{sweep, "--name", "../x"}, "--output and --name"},
		"no tool":                       {[]string{samples, "--name", "x", "--latency-type", "RTT", "--protocol", "TCP", "--size", "1"}, "--tool: "},
		"a tool without a name":         {[]string{samples, "--name", "x", "--tool", "iperf 3", "--latency-type", "RTT", "--protocol", "TCP", "--size", "1"}, `spec.tool: "iperf 3" is no name of a tool`},
		"another file's tool":           {[]string{sweep, samples, "--name", "x", "--size", "1", "--tool", "sfnt-pingpong"}, "remove these flags"},
		"no latency type":               {[]string{samples, "--name", "x", "--tool", "pinger", "--protocol", "TCP", "--size", "1"}, "--latency-type: "},
		"no size":                       {[]string{samples, "--name", "x", "--tool", "pinger", "--protocol", "TCP", "--latency-type", "RTT"}, "--size and --rate"},
		"no protocol":                   {[]string{samples, "--name", "x", "--tool", "pinger", "--latency-type", "RTT", "--size", "1"}, "spec.workload.protocols"},
		"a rate that the tool has not":  {[]string{samples, "--name", "x", "--tool", "netperf", "--latency-type", "RTT", "--protocol", "TCP", "--size", "1", "--rate", "9"}, "spec.workload.ratesPerSecond"},
		"another latency type":          {[]string{sweep, "--name", "x", "--latency-type", "RTT"}, "--latency-type: it reports HalfRTT, not RTT"},
		"a table of another tool":       {[]string{sweep, "--name", "x", "--tool", "pinger"}, "--tool: it is of sfnt-pingpong"},
		"a percentile distribution":     {[]string{percentiles, "--name", "x"}, "import the histogram log (.hlog)"},
		"a note without a value":        {[]string{sweep, "--name", "x", "--note", "hardware"}, "kubectl tailgate: spec.notes[1].value"},
		"text":                          {[]string{file("text", "hello\n"), "--name", "x", "--tool", "pinger", "--latency-type", "RTT", "--protocol", "TCP", "--size", "1"}, "line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			code, stdout, stderr := run(append([]string{"import", "-o", out}, c.args...)...)
			if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d, it printed %q and said %q; want 1 and one line with %q", code, stdout, stderr, c.want)
			}
			if _, err := os.Stat(out); err == nil {
				t.Errorf("it wrote %s", out)
			}
		})
	}
}

// Any file is refused in one line, or becomes an export that can be read.
func FuzzImport(f *testing.F) {
	dir := f.TempDir()
	samples := filepath.Join(dir, "samples.dat")
	cell := []string{"--tool", "pinger", "--protocol", "TCP", "--latency-type", "HalfRTT", "--size", "1"}
	if err := os.WriteFile(samples, []byte("1500\n1600\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	if code, _, stderr := run(append([]string{"import", samples, "--name", "raw", "-o", dir}, cell...)...); code != 0 {
		f.Fatal(stderr)
	}
	corpus, err := filepath.Glob("../../test/field/tools/import-*")
	if err != nil || len(corpus) < 10 {
		f.Fatal(corpus, err)
	}
	for _, file := range append(corpus, samples, seeds+"sfnt-e5-2620v4-ull.txt", filepath.Join(dir, "raw", "histograms", "default", "tcp-1.hlog")) {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"import", file, "--name", "x", "-o", dir}
		if !bytes.Contains(content, []byte("%ile")) { // of a table, which says what it measured
			args = append(args, cell...)
		}
		code, stdout, stderr := run(args...)
		if code != 0 {
			if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, it printed %q and said %q; want 1 and one line", code, stdout, stderr)
			}
			return
		}
		if code, _, stderr := run("get", filepath.Join(dir, "x")); code != 0 {
			t.Errorf("get: exit code %d, %q", code, stderr)
		}
	})
}

func TestPublished(t *testing.T) {
	code, stdout, stderr := run("published")
	if code != 0 || strings.Count(stdout, "published/") != 8 || !strings.Contains(stdout, "caveat-ctpio") || !strings.Contains(stdout, "SPARC T7-1") {
		t.Errorf("exit code %d, it said %q and printed\n%s", code, stderr, stdout)
	}
	if code, _, stderr := run("export", "published/ember-onload", "-o", t.TempDir()); code != 1 || !strings.Contains(stderr, "needs no export") {
		t.Errorf("export: exit code %d, %q", code, stderr)
	}
}
