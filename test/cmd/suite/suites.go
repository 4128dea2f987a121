package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// suite is a set of tests of one tool.
type suite struct {
	name string
	// ginkgo is false for tests of go test.
	ginkgo   bool
	packages []string
	// args are additional flags of go test or ginkgo, env additional variables.
	args, env []string
	// labels is the label filter of Ginkgo, procs the number of its parallel processes; 0: as many as CPUs.
	labels string
	procs  int
	// clusters is the largest number of local clusters, one for each process. The user may choose the number, and labels.
	clusters int
	// verbose shows the output of tests that pass.
	verbose bool
	// prepare is called before the tests and returns additional variables.
	prepare func(context.Context, io.Writer) ([]string, error)
}

// suites are all suites. Go tests as many packages, and runs as many parallel tests of a package, as there are CPUs.
var suites = []suite{
	// A build tag excludes most of what is not for this suite.
	{name: "unit", packages: []string{"./..."}, args: []string{"-timeout=30m"}},
	{name: "integration", ginkgo: true, packages: []string{"./test/integration"}, args: []string{"--timeout=60m"}, env: []string{"GOGC=300"},
		labels: "!peers && !nightly", prepare: assets},
	{name: "devices", packages: []string{"./test/lab/devices"}, args: []string{"-count=1", "-timeout=20m", "-tags=e2e"}, verbose: true},
	{name: "localcluster", packages: []string{"./test/localcluster", "./test/localcluster/look", "./test/container"},
		args: []string{"-count=1", "-timeout=30m", "-tags=e2e"}, verbose: true},
	{name: "e2e", ginkgo: true, packages: []string{"./test/e2e"}, args: []string{"--timeout=2h", "--tags=e2e"}, verbose: true,
		labels: "!tutorial", clusters: 4, prepare: fresh},

	// These are not part of make test.
	{name: "lab", ginkgo: true, packages: []string{"./test/e2e"}, args: []string{"--timeout=120m", "--tags=e2e"}, verbose: true,
		labels: "lab", procs: 1, env: []string{"E2E_LAB=1"}},
	{name: "interruptions", packages: []string{"./test/localcluster"}, args: []string{"-count=1", "-timeout=2h", "-tags=e2e", "-run=^TestInterruptedTargets$"},
		env: []string{"INTERRUPTIONS=5"}, verbose: true},
	{name: "selftest", packages: []string{"./test/lab/selftest"}, args: []string{"-count=1", "-timeout=10m", "-tags=e2e"}, verbose: true},
	{name: "peers", ginkgo: true, packages: []string{"./test/integration"}, args: []string{"--timeout=90m"}, verbose: true,
		labels: "peers", procs: 1, prepare: assets},
	{name: "nightly", packages: []string{"./internal/htmlreport", "./internal/evaluate", "./test/prometheus"},
		args: []string{"-count=1", "-timeout=60m", "-tags=nightly"}},
	{name: "memory", ginkgo: true, packages: []string{"./test/integration"}, args: []string{"--timeout=60m"}, verbose: true,
		labels: "nightly", procs: 1, prepare: assets},
}

// elsewhere matches the reasons of skipped tests that run in another way, as it says, also in CI.
var elsewhere = regexp.MustCompile(strings.Join([]string{
	"in a process of its own",                                         // by another test
	"see make lab", "use the folder of lab", "see make interruptions", // each night
	"LAB_KILLS is not",                      // before a release, because it takes an hour
	"the bench image has it",                // the specs of e2e run the tools of the image
	"needs [0-9]+ CPUs at the client's end", // CI has two; the table's other tools run
	"this is no checkout of git",            // an archive has no attributes to check; every clone has
	"there is no second file system",        // a machine with one has no folders that cannot be linked
	"no controller hugetlb of version 2",    // it is with the others, or there is none that another program could use
	"SFNETTEST_BIN is not set",              // the sfnt tools are not free to download; recorded output is in testdata
}, "|"))

func runsElsewhere(why string) bool { return elsewhere.MatchString(why) }

func names() string {
	var all []string
	for _, s := range suites {
		all = append(all, s.name)
	}
	return strings.Join(all, ", ")
}

func named(name string) (suite, error) {
	for _, s := range suites {
		if s.name == name {
			return s, nil
		}
	}
	return suite{}, fmt.Errorf("there is no suite %q, there are %s", name, names())
}

// command returns the command that runs the suite, or one test of it, and writes a report.
func (s suite) command(o options, file string, only *test) ([]string, error) {
	packages := s.packages
	if o.packages != "" {
		packages = strings.Fields(o.packages)
	}
	if s.ginkgo {
		procs, focus, labels := cmp.Or(s.procs, runtime.GOMAXPROCS(0)), o.focus, s.labels
		if s.clusters > 0 {
			procs, labels = cmp.Or(o.procs, min(procs, s.clusters)), cmp.Or(o.labels, s.labels)
		}
		if only != nil {
			procs, focus = 1, only.Run
		}
		args := []string{"go", "tool", "ginkgo", "--no-color", "--procs=" + strconv.Itoa(procs), "--output-dir=" + filepath.Dir(file), "--json-report=" + filepath.Base(file)}
		if s.verbose {
			args = append(args, "-v")
		}
		if focus != "" {
			args = append(args, "--focus="+focus)
		}
		if labels != "" {
			args = append(args, "--label-filter="+labels)
		}
		return append(append(args, s.args...), packages...), nil
	}
	format := "testname"
	if s.verbose {
		format = "standard-verbose"
	}
	args := []string{"go", "tool", "-modfile=hack/tools/go.mod", "gotestsum", "--format=" + format, "--jsonfile=" + file, "--"}
	args = append(args, s.args...)
	if only != nil {
		return append(args, "-count=1", "-run="+only.Run, only.Package), nil
	}
	if o.focus != "" {
		args = append(args, "-run="+o.focus)
	}
	if !strings.Contains(strings.Join(packages, " "), "...") {
		return append(args, packages...), nil
	}
	list := exec.Command("go", append([]string{"list"}, packages...)...)
	list.Stderr = os.Stderr
	found, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages: %w", err)
	}
	for name := range strings.FieldsSeq(string(found)) {
		if !strings.HasSuffix(name, "/test/integration") { // It needs an API server.
			args = append(args, name)
		}
	}
	return args, nil
}

// assets builds the API server that the suite needs.
func assets(ctx context.Context, log io.Writer) ([]string, error) {
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		return nil, nil
	}
	var dir bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "run", "./test/cmd/localcluster", "assets")
	cmd.Stdout, cmd.Stderr = &dir, log
	err := cmd.Run()
	return []string{"KUBEBUILDER_ASSETS=" + strings.TrimSpace(dir.String())}, err
}

// fresh takes down the clusters that an earlier run has left, unless the suite runs on the user's cluster.
func fresh(ctx context.Context, log io.Writer) ([]string, error) {
	if os.Getenv("E2E_VALUES") != "" {
		return nil, nil
	}
	return nil, execute(ctx, log, os.Environ(), "go", "run", "./test/cmd/localcluster", "down")
}
