package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/imported"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

func newPublished() *cobra.Command {
	var form string
	cmd := &cobra.Command{
		Use:   "published",
		Short: "List the published results that compare, get and report read as published/NAME",
		Long: "List the published results that are part of this command, with their sources, hardware and caveats. get, compare, report\n" +
			"and export read them as published/NAME, and compare reads published/NAME/VARIANT, too.",
		Example: "  " + name + " published\n  " + name + " get published/ember-onload -o ladder",
		Args:    takes("no arguments", 0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			entries, err := imported.Entries()
			if err != nil {
				return err
			}
			if form == "json" {
				return report.WriteJSON(cmd.OutOrStdout(), entries)
			}
			var out bytes.Buffer
			for _, e := range entries {
				fmt.Fprintf(&out, "%s/%s (%s)\n  %s\n", imported.Published, e.Name, e.Tool, e.Source)
				t := text.NewColumns(&out, 0)
				for _, n := range imported.Notes(e.Notes) {
					fmt.Fprintf(t, "  %s\t%s\n", n.Name, n.Value)
				}
				if err := t.Flush(); err != nil {
					return err
				}
			}
			return emit(cmd.OutOrStdout(), out.Bytes(), nil)
		},
	}
	outputFlag(cmd, &form, "table", "json")
	return cmd
}

type source struct {
	tool, latencyType, protocol string
	size, rate                  int32
}

func (s *source) addFlags(f *pflag.FlagSet) {
	f.StringVar(&s.tool, "tool", "", "tool that measured; may be one that Tailgate does not have")
	f.StringVar(&s.latencyType, "latency-type", "", "what the latencies count: RTT, or HalfRTT for half a round trip")
	f.StringVar(&s.protocol, "protocol", "", "TCP, UDP or Multicast")
	f.Int32Var(&s.size, "size", -1, "message size in bytes")
	f.Int32Var(&s.rate, "rate", 0, "messages a second of an open loop; 0 for ping-pong")
}

type importer struct {
	source
	dir, name string
	overwrite bool
	notes     []string
}

func newImport() *cobra.Command {
	i := &importer{}
	cmd := &cobra.Command{
		Use:   "import FILE... --name NAME -o DIR",
		Short: "Turn the output of a tool on a machine without Kubernetes into an export",
		Long: "Turn the output of a tool on a machine without Kubernetes into an export, each FILE into a round:\n\n" +
			"  sfnt-pingpong's table     the whole output of one run, with its lines that begin with #\n" +
			"  HdrHistogram log (.hlog)  of one run, nanoseconds with three significant digits and at most one tag, or of an export\n" +
			"  list of samples           one decimal number of nanoseconds a line, such as sfnt-pingpong's raw files (--raw)\n\n" +
			"For all but the first, name what was measured: --tool (of any name), --latency-type (but for an export's log), --protocol,\n" +
			"--size and, in an open loop, --rate. The same content twice is refused, and so are files of several\n" +
			"machines or settings. The intervals of a log are one round: as rounds, they would lack all that differs from run to run.\n" +
			"get, compare and report read the result by its path. No agent observed the measurement, so that nothing proves it, and\n" +
			"no gate can be based on it. verdict judges such files by rules.",
		Example: "  " + name + " import bare-1.txt bare-2.txt --name bare-metal -o results --note hardware='Xeon 6246, X2522'\n" +
			"  " + name + " compare ./results/bare-metal sweep/vf-onload\n" +
			"  " + name + " import run.hlog --name host --tool pinger --latency-type RTT --protocol TCP --size 64 --rate 10000 -o results",
		Args: takes("the files to import", 1, mostRounds),
		RunE: func(cmd *cobra.Command, args []string) error { return i.run(cmd.Context(), args, cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	f.StringVarP(&i.dir, "output", "o", "", "directory that contains a subdirectory for each export")
	f.StringVar(&i.name, "name", "", "name of the export")
	i.addFlags(f)
	f.BoolVar(&i.overwrite, "overwrite", false, "replace an export of the same name")
	f.StringArrayVar(&i.notes, "note", nil, "NAME=TEXT about the hardware, the settings or the limits; may be repeated")
	return cmd
}

// mostRounds bounds a benchmark's rounds, mostRead a file in bytes: 100 million samples.
const (
	mostRounds = 100
	mostRead   = 1 << 30
)

func (i *importer) run(ctx context.Context, args []string, stdout io.Writer) error {
	if i.dir == "" || len(validation.IsDNS1123Subdomain(i.name)) > 0 {
		return fmt.Errorf("--output and --name: name the directory to write to, and the export (letters, digits, - and .), not %q", i.name)
	}
	r, twice, err := i.result(i.name, args)
	switch {
	case err != nil:
		return err
	case len(twice) > 0:
		return fmt.Errorf("%s: it has the content of a round before: the same content twice is one round", twice[0])
	}
	for _, n := range i.notes {
		key, value, _ := strings.Cut(n, "=")
		if _, twice := r.Notes[key]; twice {
			return fmt.Errorf("--note: %q is there twice, or the file has it; give each note a name of its own", key)
		}
		r.Notes[key] = value
	}
	b, err := r.Benchmark()
	if err != nil {
		return err
	}
	if err := admitted(ctx, b.Object); err != nil {
		return err
	}
	dir := filepath.Join(i.dir, i.name)
	written, err := export.Write(dir, b, i.overwrite)
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	return say(stdout, "%d rounds of %s in %s, manifest.json has SHA-256 %s\n", len(b.Runs), b.Object.Spec.Tool, asPath(dir), written.ManifestSHA256)
}

// result reads files as rounds, once each; twice are files whose content a round had before.
func (s *source) result(name string, files []string) (r imported.Result, twice []string, err error) {
	v := imported.Variant{Name: plan.DefaultVariant}
	r = imported.Result{
		Namespace: "imported", Name: name, Tool: v1alpha1.Tool(s.tool), LatencyType: v1alpha1.LatencyType(s.latencyType),
		Source: "imported from " + strings.Join(files, ", "),
	}
	var setup []string
	for _, file := range files {
		f, err := s.read(&r, file)
		differs := func(line string) bool { return !slices.Contains(setup, line) || !slices.Contains(f.Setup, line) }
		lines := slices.Concat(f.Setup, setup)
		switch {
		case err != nil:
			return r, nil, fmt.Errorf("%s: %w", file, err)
		case r.Notes == nil:
			r.Notes, setup = map[string]string{}, f.Setup
			maps.Copy(r.Notes, f.Notes)
		case slices.ContainsFunc(lines, differs):
			return r, nil, fmt.Errorf("%s: %.200q is not in both it and %s: rounds have one tool, machine and setting; import them apart",
				file, lines[slices.IndexFunc(lines, differs)], files[0])
		}
		for _, round := range f.Rounds {
			if slices.ContainsFunc(v.Rounds, round.Repeats) {
				twice = append(twice, file)
			} else {
				v.Rounds = append(v.Rounds, round)
			}
		}
		if len(v.Rounds) > mostRounds {
			return r, nil, fmt.Errorf("%s: there are %d rounds, and a benchmark has at most %d", file, len(v.Rounds), mostRounds)
		}
		if r.At.Before(f.At) {
			r.At = f.At
		}
	}
	r.Variants = []imported.Variant{v}
	return r, twice, nil
}

// admitted returns why an export of the benchmark could not be read, by the kind's definition.
func admitted(ctx context.Context, b *v1alpha1.LatencyBenchmark) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("LatencyBenchmark"))
	return export.Admit(ctx, u)
}

// read reads a file as rounds of the result, whose tool and latency type it completes.
func (s *source) read(r *imported.Result, file string) (imported.File, error) {
	info, err := os.Stat(file) // before it is opened, which waits for a writer of a named pipe
	switch {
	case err != nil && file == stdinName:
		return imported.File{}, errors.New("standard input is no file of a round: write its content to one")
	case err != nil:
		return imported.File{}, err
	case info.IsDir():
		return imported.File{}, errors.New("it is a directory: name its files")
	case !info.Mode().IsRegular():
		return imported.File{}, errors.New("it is no regular file: write its content to one")
	case info.Size() > mostRead:
		return imported.File{}, fmt.Errorf("it has more than %d bytes: import a part of it", mostRead)
	}
	f, err := os.Open(file)
	if err != nil {
		return imported.File{}, err
	}
	defer f.Close()
	begin := make([]byte, 64<<10)
	n, err := io.ReadFull(f, begin)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return imported.File{}, err
	}
	begin = bytes.TrimPrefix(begin[:n], []byte("\ufeff"))
	whole := io.MultiReader(bytes.NewReader(begin), io.LimitReader(f, mostRead))
	line, _, _ := bytes.Cut(begin, []byte("\n"))
	number := strings.Trim(string(bytes.TrimSpace(line)), "0123456789") == ""
	switch {
	case bytes.Contains(begin, []byte("%ile")):
		return s.readSfnt(r, whole)
	case bytes.Contains(begin, []byte("TotalCount")):
		return imported.File{}, errors.New("a percentile distribution does not have the samples: import the histogram log (.hlog) of the same measurement")
	case !number && !bytes.Contains(begin, []byte("HIST")) && !bytes.Contains(begin, []byte("Histogram log")):
		return imported.File{}, fmt.Errorf("line 1: %.80q: it is neither a table of sfnt-pingpong, nor an HdrHistogram log, nor a list of nanoseconds, and nothing else can be imported", line)
	}
	c, err := s.cell(r)
	if err != nil {
		return imported.File{}, err
	}
	var read imported.File
	var histograms []result.Histogram
	if number {
		histograms = make([]result.Histogram, 1)
		if err := s.needsType(); err != nil {
			return imported.File{}, err
		}
		histograms[0], err = imported.Nanoseconds(whole, r.LatencyType)
	} else {
		histograms, read, err = imported.HistogramLog(whole, r.LatencyType)
		if err == nil && read.LatencyType == "" {
			err = s.needsType()
		}
		r.LatencyType = cmp.Or(r.LatencyType, read.LatencyType)
	}
	for _, c.Histogram = range histograms {
		c.StartedAt = read.At
		read.Rounds = append(read.Rounds, imported.Round{c})
	}
	return read, err
}

func (s *source) needsType() error {
	if t := v1alpha1.LatencyType(s.latencyType); t != v1alpha1.LatencyRTT && t != v1alpha1.LatencyHalfRTT {
		return fmt.Errorf("--latency-type: %q is neither RTT nor HalfRTT (half a round trip); the file does not tell", s.latencyType)
	}
	return nil
}

const largestTable = 1 << 20

func (s *source) readSfnt(r *imported.Result, in io.Reader) (imported.File, error) {
	content, err := io.ReadAll(io.LimitReader(in, largestTable))
	if err != nil {
		return imported.File{}, err
	}
	f, err := imported.Sfnt(content)
	switch {
	case err != nil:
	case r.LatencyType != "" && r.LatencyType != f.LatencyType:
		err = fmt.Errorf("--latency-type: it reports %s, not %s; remove the flag, and import files of one type together", f.LatencyType, r.LatencyType)
	case r.Tool != "" && r.Tool != f.Tool:
		err = fmt.Errorf("--tool: it is of %s, not of %s; remove the flag", f.Tool, r.Tool)
	case s.protocol != "" || s.size >= 0 || s.rate != 0:
		err = errors.New("--protocol, --size and --rate: a table says what was measured; remove these flags")
	}
	r.LatencyType, r.Tool = f.LatencyType, f.Tool
	return f, err
}

func (s *source) cell(r *imported.Result) (result.Cell, error) {
	c := tool.Cell{Traffic: v1alpha1.Traffic{Protocol: v1alpha1.Protocol(s.protocol), MessageSize: s.size, RatePerSecond: s.rate}}
	var err error
	switch {
	case s.tool == "":
		err = errors.New("--tool: name the tool that measured; the file does not tell")
	case s.size < 0 || s.rate < 0:
		err = errors.New("--size and --rate: give the message size in bytes, and for an open loop the messages a second")
	case r.Tool != v1alpha1.Tool(s.tool):
		err = fmt.Errorf("--tool: a file before is of %s; import them apart", r.Tool)
	}
	return result.Cell{Cell: c}, err
}
