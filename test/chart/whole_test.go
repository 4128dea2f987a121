package chart

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A copy of the chart from which a file is missing, or in which it is empty, is refused: it would install Tailgate without its roles
// or policies, and an upgrade would remove them. Checkouts and artifacts without symbolic links made such copies.
func TestIncompleteChartIsRefused(t *testing.T) {
	everything := []string{"--set", "prometheus.enabled=true"}
	var files []string
	err := filepath.WalkDir(filepath.Join(chart, "files"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if !entry.Type().IsRegular() {
			t.Errorf("%s is no regular file", path)
		}
		path, err = filepath.Rel(chart, path)
		files = append(files, path)
		return err
	})
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files of the chart, %v", len(files), err)
	}
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	for i, file := range files {
		path := filepath.Join(folder, file)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		change := func() error { return os.Remove(path) }
		if i%2 == 1 {
			change = func() error { return os.Truncate(path, 0) }
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"template", "tailgate", folder, "--namespace", namespace}, everything...)
		named := slices.Concat(args, []string{"--set", "namespaces={perf}"})
		_, stderr, err := run(t, helmTool, args...)
		if strings.Contains(file, "named-namespaces") {
			_, stderr, err = run(t, helmTool, named...)
		}
		if err == nil || !strings.Contains(stderr, "this copy of the chart is not whole: "+file) {
			t.Errorf("without %s: %v\n%s", file, err, stderr)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// With another namespace and other names, the policies are the same, the bindings are to the policies that are there, and the account by
// whose right they recognize the manager is that of its Deployment.
func TestOtherNamesKeepThePolicies(t *testing.T) {
	want := kustomize(t, "config/policy")
	all := overlay(t, "namespace: latency\nnamePrefix: a-\nnameSuffix: -z", "default")
	policies := 0
	for name, o := range want {
		kind, own, _ := strings.Cut(name, " ")
		got := all[kind+" a-"+own+"-z"]
		if got == nil {
			t.Errorf("%s is missing", name)
			continue
		}
		if kind != "ValidatingAdmissionPolicy" {
			bound := got.Object["spec"].(map[string]any)["policyName"].(string)
			if all["ValidatingAdmissionPolicy "+bound] == nil {
				t.Errorf("%s binds %s, which does not exist", name, bound)
			}
			continue
		}
		policies++
		if asJSON(t, o.Object["spec"]) != asJSON(t, got.Object["spec"]) {
			t.Errorf("%s is changed", name)
		}
		if text := asJSON(t, got.Object); strings.Contains(text, namespace) {
			t.Errorf("%s names the namespace: %s", name, text)
		}
	}
	if policies < 6 {
		t.Errorf("only %d policies", policies)
	}
	account := asJSON(t, all["Deployment a-manager-z"].Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["serviceAccountName"])
	subjects := asJSON(t, all["ClusterRoleBinding a-tailgate-manager-identity-z"].Object["subjects"])
	if want := `[{"kind":"ServiceAccount","name":` + account + `,"namespace":"latency"}]`; subjects != want {
		t.Errorf("the policies recognize %s, not %s", subjects, want)
	}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// An umbrella chart switches a part off by its condition, and shares the names of pull secrets as strings, as other charts take them.
func TestUmbrella(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "charts", "tailgate"), os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"Chart.yaml":  "{apiVersion: v2, name: platform, version: 1.0.0, dependencies: [{name: tailgate, version: \"*\", condition: tailgate.enabled}]}",
		"values.yaml": "{tailgate: {enabled: true, replicas: 1}, global: {imagePullSecrets: [mirror, {name: other}], imageRegistry: registry.example, own: {any: thing}}}",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr, err := run(t, helmTool, "template", "x", dir, "--namespace", namespace)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, stderr)
	}
	all := objects(t, stdout)
	if got, want := len(all), len(render(t, "replicas=1")); got != want {
		t.Errorf("%d objects, not %d", got, want)
	}
	var secrets []string
	for _, s := range deployment(t, all).Spec.Template.Spec.ImagePullSecrets {
		secrets = append(secrets, s.Name)
	}
	if got := strings.Join(secrets, " "); got != "mirror other" {
		t.Errorf("the pull secrets are %q", got)
	}
	if stdout, stderr, err := run(t, helmTool, "template", "x", dir, "--set", "tailgate.enabled=false"); err != nil || strings.TrimSpace(stdout) != "" {
		t.Errorf("it is not switched off: %v\n%s\n%s", err, stderr, stdout)
	}
}
