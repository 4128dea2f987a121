package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tailgate-dev/tailgate/internal/evaluate"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/htmlreport"
	"github.com/tailgate-dev/tailgate/internal/imported"
	"github.com/tailgate-dev/tailgate/internal/result"
)

func newExport(c *cluster) *cobra.Command {
	e := &exporter{cluster: c}
	cmd := &cobra.Command{
		Use:   "export NAME|lmatrix/NAME|PATH... -o DIR | export NAME|PATH --configmap NAME",
		Short: "Keep the results of LatencyBenchmarks in a directory",
		Long: "Copy the results of LatencyBenchmarks to a directory, each benchmark to a subdirectory with its name. An export contains\n" +
			"the LatencyBenchmark, its stored results, histograms as .hgrm and .hlog for HdrHistogram's tools, evidence as JSON, and\n" +
			"results as JSON and CSV. For a LatencyMatrix (lmatrix/NAME), the command exports the benchmark of each pair.\n\n" +
			"get, compare, gate, report and export read an export by its PATH, which begins with ./ or /, and verify all its digests.\n\n" +
			"An export is either complete or absent, and overwrites nothing; --overwrite replaces an export of the same name.\n\n" +
			"With --configmap, the command prints the export of one LatencyBenchmark as a ConfigMap. Create the ConfigMap in the\n" +
			"namespace of another benchmark, in this or another cluster. On standard error, the command prints the criteria.baseline\n" +
			"to use there.",
		Example: "  " + name + " export before after -n perf -o results\n" +
			"  " + name + " compare ./results/before ./results/after\n" +
			"  " + name + " export before -n perf --configmap before | kubectl create --context other -n perf -f -",
		Args: takes("the names of LatencyBenchmarks", 1, 1000),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				if strings.HasPrefix(arg, imported.Published+"/") {
					return fmt.Errorf("%s is part of this command and needs no export: name it in place of one; "+
						"nothing proves it, so that it cannot be a criteria.baseline", arg)
				}
			}
			if e.configMap != "" {
				return e.print(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return e.run(cmd.Context(), args, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&e.dir, "output", "o", "", "directory that contains a subdirectory for each export")
	cmd.Flags().BoolVar(&e.overwrite, "overwrite", false, "replace exports of the same names")
	cmd.Flags().StringVar(&e.configMap, "configmap", "", "print the export as a ConfigMap of this name, for criteria.baseline.export")
	cmd.MarkFlagsMutuallyExclusive("configmap", "output")
	cmd.MarkFlagsMutuallyExclusive("configmap", "overwrite")
	return cmd
}

type exporter struct {
	*cluster
	dir       string
	overwrite bool
	configMap string
}

// print prints the export of one benchmark as a ConfigMap, and to stderr how to name it.
func (e *exporter) print(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) != 1 {
		return errors.New("--configmap: a ConfigMap contains one export; name one LatencyBenchmark")
	}
	if problems := validation.IsDNS1123Subdomain(e.configMap); len(problems) > 0 {
		return fmt.Errorf("--configmap: %q: %s", e.configMap, problems[0])
	}
	m, err := e.loadWhole(ctx, args[0])
	if err != nil {
		return err
	}
	if err := onePair("--configmap", m); err != nil {
		return err
	}
	cm, sum, err := export.ConfigMap(m, e.configMap)
	if err != nil {
		return fmt.Errorf("--configmap: %w", err)
	}
	if trouble := evaluate.Exported(ctx, m.Object, cm, sum).Trouble; trouble != nil {
		return fmt.Errorf("--configmap: no benchmark can be compared with %s: %s", args[0], trouble.Message)
	}
	text, err := result.EncodeJSON(cm)
	if err := emit(stdout, text, err); err != nil {
		return err
	}
	return say(stderr, "baseline: {type: Export, export: {configMapName: %s, sha256: %s}}\n", e.configMap, sum)
}

func (e *exporter) run(ctx context.Context, args []string, stdout io.Writer) error {
	if e.dir == "" {
		return errors.New("--output: name the directory to write to")
	}
	var all []export.Benchmark // Everything is read before anything is written.
	var names []string
	for _, arg := range args {
		m, err := e.loadWhole(ctx, arg)
		if err != nil {
			return err
		}
		if slices.Contains(names, m.Object.Name) {
			return fmt.Errorf("two of them are named %s: export them into different directories", m.Object.Name)
		}
		names, all = append(names, m.Object.Name), append(all, m)
		switch err := export.MayWrite(filepath.Join(e.dir, m.Object.Name), e.overwrite); {
		case errors.Is(err, export.ErrExists) && !e.overwrite:
			return fmt.Errorf("--output: %w; remove it, or replace it with --overwrite", err)
		case err != nil:
			return fmt.Errorf("--output: %w", err)
		}
	}
	for _, m := range all {
		dir := filepath.Join(e.dir, m.Object.Name)
		written, err := export.Write(dir, m, e.overwrite)
		if err != nil {
			return err
		}
		kind := benchmarks
		if m.Matrix != nil {
			kind = matrices
		}
		err = say(stdout, "%s %s/%s: %d files, %d bytes in %s, manifest.json has SHA-256 %s\n",
			kind.name, m.Object.Namespace, m.Object.Name, written.Files, written.Bytes, asPath(dir), written.ManifestSHA256)
		if err != nil {
			return err
		}
	}
	return nil
}

const mostReported = 8 // benchmarks for which a report has room

func newReport(c *cluster) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "report NAME|lmatrix/NAME|PATH... -o FILE",
		Short: "Write the results of LatencyBenchmarks as one HTML file",
		Long: "Write the results of LatencyBenchmarks as one HTML file that needs neither a network nor a cluster. The file contains the\n" +
			"verdict, plots, tables, comparisons, the course over time and the causes of slow samples. Matrices (lmatrix/NAME), the\n" +
			"checks of the placement, the evidence and the manifest are part of the file, too. The command verifies the digests of the\n" +
			"stored histograms. If you name several benchmarks, the report compares the others with the first.\n\n" +
			"NAME is an object in the cluster, PATH an export, which begins with ./ or /.",
		Example: "  " + name + " report x2522 -o x2522.html\n  " + name + " report before after -n perf -o upgrade.html",
		Args:    takes("the names of LatencyBenchmarks", 1, mostReported),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output == "" {
				return fmt.Errorf("--output: name the file to write, such as -o report.html, or - for standard output")
			}
			var all []export.Benchmark
			for _, arg := range args {
				b, err := c.load(cmd.Context(), arg)
				if err != nil {
					return err
				}
				all = append(all, b)
			}
			return writeReport(cmd.OutOrStdout(), output, all)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write; - for standard output")
	return cmd
}

func writeReport(stdout io.Writer, file string, all []export.Benchmark) error {
	var html bytes.Buffer
	err := htmlreport.Write(&html, all)
	if err != nil {
		return err
	}
	if file == "-" {
		_, err = stdout.Write(html.Bytes())
	} else {
		err = os.WriteFile(file, html.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
