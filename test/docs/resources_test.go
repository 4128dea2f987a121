package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// resources holds the extended resources of devices that pages, samples and the documentation of fields name, with the NICs
// that they stand for. Readers of a page see one name for one thing.
var resources = map[string]string{
	"tailgate.test/sf_vf":   "VFs of the local cluster",
	"tailgate.test/sf_pf":   "PFs of the local cluster",
	"openshift.io/sf_x2_vf": "VFs of an X2, as sriov-network-operator names them with its default prefix",
	"openshift.io/sf_x4_vf": "VFs of an X4",
	"amd.com/sf_pf":         "whole ports, of device-plugin-pf.yaml",
	"amd.com/onload":        "Onload's devices, of AMD's device plugin",
}

// TestResourceNames: docs, samples and the documentation of fields use exactly the resources above.
func TestResourceNames(t *testing.T) {
	// In the name of an image or a path, more text follows.
	named := regexp.MustCompile(`[a-z0-9][a-z0-9.-]*\.[a-z]+/(?:sf_[A-Za-z0-9_]+|onload)\b([-/:])?`)
	used := map[string]bool{}
	check := func(path string) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(content), -1) {
			name := strings.TrimRight(m[0], "-/:")
			switch {
			case resources[name] != "":
				used[name] = true
			case m[1] == "":
				t.Errorf("%s names %s, which the docs and samples do not use as a resource", path, name)
			}
		}
	}
	check(filepath.Join(root, "README.md"))
	for _, folder := range []string{"docs", "config/samples", "config/crd", "api"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, ".png") {
				check(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range resources {
		if !used[name] {
			t.Errorf("nothing names %s", name)
		}
	}
}

// TestCommandsNameTheResource checks that no printed or documented command that deletes, changes or waits names a kind by a short name:
// another project may have the same, and kubectl then takes the group that comes first.
func TestCommandsNameTheResource(t *testing.T) {
	short := regexp.MustCompile(`kubectl (?:-n \S+ )?(?:delete|wait|annotate|patch|label) (?:-\S+ )*(?:(?:lb|lbench|lmatrix|lgate|lver)\b|latency(?:benchmark|matri|gate|verification)[a-z]*(?:[^.a-z]|$))`)
	for command, is := range map[string]bool{
		"kubectl delete lver up.a": true, "kubectl -n perf wait --for=condition=Succeeded latencybenchmark/x": true, "kubectl annotate latencyverification up.a": true,
		"kubectl patch lgate up --type=merge": true, "kubectl label latencymatrices mesh": true, "kubectl delete latencygate": true,
		"kubectl delete latencyverifications.tailgate.dev up.a": false, "kubectl -n perf wait --for=condition=Succeeded latencybenchmarks.tailgate.dev/x": false,
		"kubectl get lver": false, "kubectl delete pod latencybenchmark": false,
	} {
		if short.MatchString(command) != is {
			t.Errorf("%q is a command with a short name: %t", command, !is)
		}
	}
	read := 0
	for _, dir := range []string{"README.md", "docs", "config", "controllers", "hack", "internal", "test/cmd", ".github"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry os.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			read += strings.Count(string(content), "kubectl ")
			for _, command := range short.FindAllString(string(content), -1) {
				t.Errorf("%s: %s", path, command)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if read < 100 {
		t.Errorf("only %d commands were looked at", read)
	}
}
