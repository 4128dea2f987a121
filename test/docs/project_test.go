package docs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// TestProject compares PROJECT, the file of kubebuilder, with the CRDs and the folders.
func TestProject(t *testing.T) {
	type kind struct {
		version, path string
		namespaced    bool
	}
	const module = "github.com/tailgate-dev/tailgate"
	want := map[string]kind{}
	files, err := filepath.Glob(filepath.Join(root, "config/crd/bases/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no CRDs: ", err)
	}
	var group string
	for _, file := range files {
		var crd apiextensionsv1.CustomResourceDefinition
		decode(t, file, &crd)
		group = crd.Spec.Group
		for _, v := range crd.Spec.Versions {
			want[crd.Spec.Names.Kind] = kind{v.Name, module + "/api/" + v.Name, crd.Spec.Scope == apiextensionsv1.NamespaceScoped}
		}
	}

	var project struct {
		Domain, ProjectName, Repo, Version string
		Layout                             []string
		Resources                          []struct {
			API struct {
				CRDVersion string
				Namespaced bool
			}
			Controller                  bool
			Domain, Kind, Path, Version string
		}
	}
	decode(t, filepath.Join(root, "PROJECT"), &project)
	got := map[string]kind{}
	for _, r := range project.Resources {
		got[r.Kind] = kind{r.Version, r.Path, r.API.Namespaced}
		if r.Domain != group || r.API.CRDVersion != "v1" || !r.Controller {
			t.Errorf("PROJECT has %+v, want the domain %s, crdVersion v1 and a controller", r, group)
		}
		if _, err := os.Stat(filepath.Join(root, "api", r.Version)); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(kind{})); diff != "" {
		t.Errorf("(-CRDs +PROJECT):\n%s", diff)
	}
	if project.Domain != group || project.Repo != module || project.ProjectName != "tailgate" || project.Version != "3" || len(project.Layout) != 1 {
		t.Errorf("PROJECT begins with %+v", project)
	}
}

// decode decodes a file of YAML.
func decode(t *testing.T, path string, into any) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
