package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/tailgate-dev/tailgate/test/cmd/suite/testdata/"

// TestRun runs real tests of go test and of Ginkgo that pass, fail once, fail twice, crash, hang, are skipped or do not compile.
func TestRun(t *testing.T) {
	t.Chdir("../../..") // as make does
	goTests := func(flags string, packages ...string) suite {
		s := suite{name: "go", args: append(strings.Fields(flags), "-count=1")}
		for _, p := range packages {
			s.packages = append(s.packages, "./test/cmd/suite/testdata/"+p)
		}
		return s
	}
	specs := func(labels string, args ...string) suite {
		return suite{name: "specs", ginkgo: true, packages: []string{"./test/cmd/suite/testdata/spec"}, labels: labels, args: args, procs: 2}
	}
	var compiling sync.Mutex
	for name, c := range map[string]struct {
		suites []suite
		ci     bool
		ok     bool
		// last are the last lines; DIR is the folder of the logs.
		last string
		// repeats are the logs of repeated tests that exist in the end.
		repeats []string
	}{
		"all pass": {[]suite{specs("!flaky && !twice && !panics && !skips && !ordered")}, true, true, "1 passed, 0 failed, 0 skipped", nil},
		"passes the second time, after all suites": {[]suite{goTests("", "flaky"), specs("flaky || panics || ordered")}, true, true, `
Repeated: failed at first, and passed alone:
  go: ` + module + `flaky TestSecond: DIR/go.log, DIR/go-repeated-1.log
  specs: A (spec) panics the first time: DIR/specs.log, DIR/specs-repeated-1.log
  specs: A (spec) passes the second time [1.5x]: DIR/specs.log, DIR/specs-repeated-2.log
  specs: In order second: DIR/specs.log, DIR/specs-repeated-3.log

8 passed, 0 failed, 0 skipped`, []string{"go-repeated-1", "specs-repeated-1", "specs-repeated-2", "specs-repeated-3"}},
		"fails twice": {[]suite{goTests("", "twice"), specs("twice")}, false, false, `
Failed:
  go: ` + module + `twice TestFails: DIR/go.log, and again: DIR/go-repeated-1.log
  specs: A (spec) fails each time: DIR/specs.log, and again: DIR/specs-repeated-1.log

1 passed, 2 failed, 0 skipped`, []string{"go-repeated-1", "specs-repeated-1"}},
		"panics": {[]suite{goTests("", "panics", "flaky"), specs("flaky")}, false, false, `
Failed:
  go: ` + module + `panics crashed: panic: in a test [recovered, repanicked]: DIR/go.log
  go: ` + module + `flaky TestSecond: DIR/go.log
  go: ` + module + `panics TestPanics: DIR/go.log
  specs: not run

2 passed, 3 failed, 0 skipped`, nil},
		"does not compile": {[]suite{goTests("", "build")}, false, false, `
Failed:
  go: ` + module + `build [` + module + `build.test] does not compile: DIR/go.log

0 passed, 1 failed, 0 skipped`, nil},
		"hangs": {[]suite{goTests("-timeout=2s", "timeout")}, false, false, `
Failed:
  go: ` + module + `timeout TestHangs did not end: DIR/go.log
  go: ` + module + `timeout crashed: panic: test timed out after 2s: DIR/go.log

0 passed, 2 failed, 0 skipped`, nil},
		"fails outside of a test": {[]suite{goTests("", "outside")}, false, false, `
Failed:
  go: ` + module + `outside failed outside of a test: DIR/go.log

1 passed, 1 failed, 0 skipped`, nil},
		"too many fail": {[]suite{goTests("", "many")}, false, false, `
Failed:
  go: ` + module + `many Test1: DIR/go.log
  go: ` + module + `many Test2: DIR/go.log
  go: ` + module + `many Test3: DIR/go.log
  go: ` + module + `many Test4: DIR/go.log
  go: ` + module + `many Test5: DIR/go.log
  go: ` + module + `many Test6: DIR/go.log

0 passed, 6 failed, 0 skipped`, nil},
		"skipped, by a developer": {[]suite{goTests("", "skips"), specs("skips")}, false, true, `
Skipped:
  go: ` + module + `skips TestElsewhere: sub: it runs in a process of its own
  go: ` + module + `skips TestSkips: this machine lacks it
  specs: A (spec) is skipped: this machine lacks it

1 passed, 0 failed, 3 skipped`, nil},
		"skipped, in CI": {[]suite{goTests("", "skips")}, true, false, `
Failed:
  go: ` + module + `skips TestSkips: this machine lacks it (CI must not leave it out)

1 passed, 1 failed, 2 skipped`, nil},
		"no test": {[]suite{goTests("-run=^$", "flaky")}, false, false, `
Failed:
  go: it ran no test: DIR/go.log

0 passed, 1 failed, 0 skipped`, nil},
		"no spec": {[]suite{specs("none")}, false, false, `
Failed:
  specs: it ran no test: DIR/specs.log

0 passed, 1 failed, 0 skipped`, nil},
		"the suite of specs has no time": {[]suite{specs("flaky", "--timeout=1ms")}, false, false, `
Failed:
  specs: Suite did not run because the timeout elapsed: DIR/specs.log
`, nil},
		"the suite of specs does not begin": {[]suite{{name: "specs", ginkgo: true, packages: []string{"./test/cmd/suite/testdata/suitefails"}}}, false, false, `
Failed:
  specs: BeforeSuite  failed: before all specs: DIR/specs.log
`, nil},
		"no report": {[]suite{{name: "specs", ginkgo: true, packages: []string{"./no/such/folder"}}}, false, false, "0 passed, 1 failed, 0 skipped", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if slices.ContainsFunc(c.suites, func(s suite) bool { return s.ginkgo }) {
				compiling.Lock() // Ginkgo compiles into the folder of the specs.
				defer compiling.Unlock()
			}
			var out bytes.Buffer
			dir := t.TempDir()
			marks := t.TempDir()
			for i := range c.suites {
				c.suites[i].env = []string{"SUITE_MARKS=" + marks}
			}
			ok := options{dir: dir, ci: c.ci, out: &out}.run(t.Context(), c.suites)
			said := strings.ReplaceAll(out.String(), dir, "DIR")
			if ok != c.ok {
				t.Errorf("passed: %v", ok)
			}
			want := strings.TrimPrefix(c.last, "\n")
			if !strings.HasSuffix(strings.TrimSpace(said), strings.TrimSpace(want)) && (strings.HasSuffix(c.last, "skipped") || !strings.Contains(said, want)) {
				t.Errorf("got\n%s\nwant the last lines\n%s", tail(said, 20), want)
			}
			if !regexp.MustCompile(`\n\d+ passed, \d+ failed, \d+ skipped\n$`).MatchString(said) {
				t.Errorf("the last line is not the sum: %q", tail(said, 1))
			}
			logs, err := filepath.Glob(filepath.Join(dir, "*-repeated-*.log"))
			if err != nil || len(logs) != len(c.repeats) {
				t.Errorf("logs of repeated tests: %q, %v; want %q", logs, err, c.repeats)
			}
			for _, log := range c.repeats {
				if content, err := os.ReadFile(filepath.Join(dir, log+".log")); err != nil || len(content) < 100 {
					t.Errorf("%s has %q, %v", log, content, err)
				}
			}
		})
	}
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
