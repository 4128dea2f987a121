// Command suite runs suites of tests one after the other:
//
//	go run ./test/cmd/suite [FLAGS] SUITE...
//
// A test that failed is run once more, alone, after all suites. If it passes then, the run is green, and its last lines name the test
// with the logs of both runs; if it fails again, the run has failed. A suite that did not compile, crashed, ran out of time, failed
// outside of a test or ran no test has failed at once, because it does not say which tests would have passed, and so has a run with
// more failed tests than a busy machine explains. The last line is "N passed, N failed, N skipped", over all suites.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxRepeated is the number of failed tests that are run again. More than that are no accident.
const maxRepeated = 5

// options are the flags.
type options struct {
	packages, focus, labels string
	procs                   int
	// dir has the logs and reports.
	dir string
	ci  bool
	out io.Writer
}

func main() {
	o := options{dir: filepath.Join("bin", "test"), ci: os.Getenv("CI") == "true", out: os.Stdout}
	flag.StringVar(&o.packages, "packages", "", "packages to test instead of those of the suite")
	flag.StringVar(&o.focus, "focus", "", "regular expression of the names of the tests to run")
	flag.StringVar(&o.labels, "labels", "", "label filter of the specs on local clusters")
	flag.IntVar(&o.procs, "procs", 0, "number of local clusters; 0: as many as CPUs, at most 4")
	flag.Parse()
	var chosen []suite
	for _, name := range flag.Args() {
		s, err := named(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, "suite:", err)
			os.Exit(2)
		}
		chosen = append(chosen, s)
	}
	if len(chosen) == 0 {
		fmt.Fprintln(os.Stderr, "suite: name suites:", names())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ok := o.run(ctx, chosen)
	stop()
	if err := handOver("."); err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
	}
	if !ok {
		os.Exit(1)
	}
}

// handOver gives what root wrote to bin, such as logs, to the owner of the checkout, who then can run suites, too.
func handOver(checkout string) error {
	var owner unix.Stat_t
	if err := unix.Stat(checkout, &owner); err != nil || os.Geteuid() != 0 {
		return err
	}
	err := filepath.WalkDir(filepath.Join(checkout, "bin"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(owner.Uid), int(owner.Gid))
	})
	if err != nil {
		return fmt.Errorf("giving bin to the owner of the checkout: %w", err)
	}
	return nil
}

// run runs the suites, then the tests that failed, and prints the summary.
func (o options) run(ctx context.Context, chosen []suite) bool {
	var done []*ran
	for _, s := range chosen {
		r := o.first(ctx, s)
		done = append(done, r)
		if len(r.Broken) > 0 {
			break
		}
	}
	failures, broken := 0, false
	for _, r := range done {
		failures += len(r.failures())
		broken = broken || len(r.Broken) > 0
	}
	if broken || failures > maxRepeated {
		fmt.Fprintf(o.out, "\nNo test is repeated: %d failed, at most %d are repeated, and only if nothing else failed.\n", failures, maxRepeated)
		return o.summarize(done, chosen[len(done):])
	}
	for _, r := range done {
		for i, t := range r.failures() {
			o.again(ctx, r, t, i+1)
		}
	}
	return o.summarize(done, chosen[len(done):])
}

// ran is a suite that was run.
type ran struct {
	suite
	report
	log      string
	repeated []repeat
}

// repeat is a test that failed and was run once more.
type repeat struct {
	test   string
	log    string
	passed bool
}

// first runs all tests of a suite.
func (o options) first(ctx context.Context, s suite) *ran {
	r := &ran{suite: s, log: filepath.Join(o.dir, s.name+".log")}
	r.report = o.execute(ctx, s, s.name, nil)
	return r
}

// again runs a failed test once more, alone. What it reports replaces the first report of the same tests.
func (o options) again(ctx context.Context, r *ran, test string, number int) {
	name := fmt.Sprintf("%s-repeated-%d", r.name, number)
	second := o.execute(ctx, r.suite, name, r.Tests[test])
	t := second.Tests[test]
	passed := t != nil && t.passed > 0 && len(second.Broken) == 0 && len(second.failures()) == 0
	if passed {
		for name, t := range second.Tests {
			r.Tests[name] = t
		}
	}
	r.repeated = append(r.repeated, repeat{test, filepath.Join(o.dir, name+".log"), passed})
}

// execute runs a suite, or one test of it.
func (o options) execute(ctx context.Context, s suite, name string, only *test) report {
	file, err := filepath.Abs(filepath.Join(o.dir, name+".json"))
	if err == nil {
		err = os.MkdirAll(o.dir, 0o755)
	}
	if err == nil {
		err = os.RemoveAll(file) // A report of an earlier run would hide that this one wrote none.
	}
	if err != nil {
		return broken("%v", err)
	}
	log, err := os.Create(filepath.Join(o.dir, name+".log"))
	if err != nil {
		return broken("%v", err)
	}
	defer log.Close()
	out := io.MultiWriter(o.out, log)
	fmt.Fprintf(out, "\n=== suite %s\n", name)
	env := os.Environ()
	if s.prepare != nil {
		more, err := s.prepare(ctx, out)
		if err != nil {
			return broken("preparing the suite: %v", err)
		}
		env = append(env, more...)
	}
	args, err := s.command(o, file, only)
	if err != nil {
		return broken("%v", err)
	}
	failed := execute(ctx, out, append(env, s.env...), args...)
	read := readGo
	if s.ginkgo {
		read = readGinkgo
	}
	r, err := read(file)
	switch {
	case ctx.Err() != nil:
		r.breaks("interrupted")
	case err != nil:
		r.breaks("%v (%v)", err, failed)
	case failed != nil && len(r.Broken) == 0 && len(r.failures()) == 0:
		r.breaks("%v, and no test failed", failed)
	case len(r.Broken) == 0 && r.count().total() == 0:
		r.breaks("it ran no test")
	}
	r.slowest(out)
	return r
}

// execute runs a command, and lets it clean up when this process receives a signal to end.
func execute(ctx context.Context, out io.Writer, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, out, out
	// A terminal sends Ctrl-C to all processes, and Ginkgo does not clean up after a second one.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Minute
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args[:min(len(args), 4)], " "), err)
	}
	return nil
}

// summarize prints what was skipped, what failed and what was repeated, and then the numbers.
func (o options) summarize(done []*ran, left []suite) (ok bool) {
	var all counts
	var skipped, failed, repeated []string
	for _, r := range done {
		all.add(r.count())
		for _, why := range r.Broken {
			all.failed++
			failed = append(failed, fmt.Sprintf("%s: %s: %s", r.name, why, r.log))
		}
		again := map[string]repeat{}
		for _, a := range r.repeated {
			again[a.test] = a
			if a.passed {
				repeated = append(repeated, fmt.Sprintf("%s: %s: %s, %s", r.name, a.test, r.log, a.log))
			}
		}
		for _, t := range r.failures() {
			line := fmt.Sprintf("%s: %s: %s", r.name, t, r.log)
			if a, twice := again[t]; twice {
				line += ", and again: " + a.log
			}
			failed = append(failed, line)
		}
		for _, s := range r.skips() {
			line := fmt.Sprintf("%s: %s: %s", r.name, s.test, s.why)
			if o.ci && !runsElsewhere(s.why) {
				all.failed++
				failed = append(failed, line+" (CI must not leave it out)")
			}
			skipped = append(skipped, line)
		}
	}
	for _, s := range left {
		failed = append(failed, s.name+": not run")
	}
	for _, part := range []struct {
		title string
		lines []string
	}{{"Skipped:", skipped}, {"Failed:", failed}, {"Repeated: failed at first, and passed alone:", repeated}} {
		if len(part.lines) > 0 {
			fmt.Fprintf(o.out, "\n%s\n  %s\n", part.title, strings.Join(part.lines, "\n  "))
		}
	}
	fmt.Fprintf(o.out, "\n%d passed, %d failed, %d skipped\n", all.passed, all.failed, all.skipped)
	return len(failed) == 0
}
