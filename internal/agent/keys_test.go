package agent

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/golden"
)

// readers are the packages that judge or show what agents wrote, by a literal name.
var readers = []string{"proof", "doctor", "judge", "report", "compare", "summary", "rounds", "metrics", "htmlreport", "sessions", "preflight"}

// literals returns the strings in the Go files of a package, but its tests.
func literals(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if s, err := strconv.Unquote(l.Value); err == nil {
					all = append(all, s)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// notFacts are names that htmlreport gives to fields of the evidence that are no facts.
var notFacts = []string{"tool.voluntary-switches", "tool.involuntary-switches"}

// Every fact and counter that another package reads by its name is one that agents write, every key is written, and every key that agents
// write has a meaning in keys.tsv, by which differences, reports and exports read it. testdata/keys.txt lists who writes and reads each.
func TestKeysAreWrittenAndRead(t *testing.T) {
	keys := slices.Concat(result.Keys, result.DeltaKeys)
	roots := map[string]bool{}
	for _, k := range keys {
		root, _, _ := strings.Cut(k.Name, ".")
		roots[root] = true
	}
	isKey := regexp.MustCompile(`^[a-z]+(\.[a-zA-Z0-9_-]+)+$`)
	name := func(s string) bool {
		root, _, _ := strings.Cut(s, ".")
		return isKey.MatchString(s) && roots[root] && !slices.Contains(notFacts, s)
	}
	// Whole files are written by a table, other keys where the agent or result.Conditions sets them.
	written := map[string]string{}
	for key := range maps.Keys(result.Files) {
		written[key] = "file"
	}
	for key := range maps.Keys(result.Counters) {
		written[key] = "file"
	}
	for _, dir := range []string{"../agent", "../result"} {
		for _, s := range literals(t, dir) {
			for _, key := range []string{s, strings.TrimSuffix(s, ".")} {
				isName := slices.ContainsFunc(keys, func(k result.Key) bool { return k.Name == key })
				if _, known := written[key]; !known && (isName || name(key) || strings.HasSuffix(s, ".") && roots[key]) {
					written[key] = filepath.Base(dir)
				}
			}
		}
	}
	for _, parts := range pathCounters {
		for _, part := range parts {
			written[part] = cmp.Or(written[part], "agent")
		}
	}
	for _, key := range []string{"cpu.isolated", "cpu.nohz-full"} { // host.cpuList
		written[key+"-cpus"] = written[key]
	}
	by := map[string][]string{}
	for _, reader := range readers {
		for _, s := range literals(t, "../"+reader) {
			if !name(s) || slices.Contains(by[s], reader) {
				continue
			}
			by[s] = append(by[s], reader)
			_, fact := result.FindKey(s)
			_, event := result.FindDeltaKey(s)
			prefix := s[:strings.LastIndex(s, ".")]
			if _, ok := written[s]; !fact && !event || !ok && written[prefix] == "" {
				t.Errorf("internal/%s reads %q, which no agent writes", reader, s)
			}
		}
	}
	var list bytes.Buffer
	for _, k := range keys {
		base := strings.TrimSuffix(strings.TrimSuffix(k.Name, "*"), ".")
		writer := written[base]
		for _, key := range slices.Sorted(maps.Keys(written)) { // of a group, one that is written
			if writer == "" && strings.HasPrefix(key, base+".") {
				writer = written[key]
			}
		}
		if writer == "" {
			t.Errorf("nothing writes %s of keys.tsv", k.Name)
		}
		all := []string{"conditions"}
		if _, fact := result.FindKey(k.Name); !fact {
			all = []string{"events"}
		}
		for _, key := range slices.Sorted(maps.Keys(by)) {
			if key == k.Name || base != k.Name && strings.HasPrefix(key, base+".") {
				all = append(all, by[key]...)
			}
		}
		slices.Sort(all)
		fmt.Fprintf(&list, "%s\twritten: %s\tread: %s\n", k.Name, writer, strings.Join(slices.Compact(all), " "))
	}
	golden.Check(t, "keys.txt", list.String())
}
