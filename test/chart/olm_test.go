package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestOLMBundle: the bundle grants the manager exactly the rights of the kustomization, and has all its other objects.
func TestOLMBundle(t *testing.T) {
	stdout, stderr, err := run(t, kustomizeTool, "build", filepath.Join(root, "config/default"))
	if err != nil {
		t.Fatalf("kustomize build: %v\n%s", err, stderr)
	}
	manifests, dir := filepath.Join(t.TempDir(), "install.yaml"), filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(manifests, []byte(stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := bundleOf(manifests, dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "manifests", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	bundle := map[string]object{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for name, o := range objects(t, string(content)) {
			bundle[name] = o
		}
	}
	csv := bundle["ClusterServiceVersion tailgate.v0.2.0-rc.1"]
	if csv == nil {
		t.Fatalf("the bundle has no ClusterServiceVersion: %q", files)
	}
	install := func(field string) map[string]any {
		all, _, err := unstructured.NestedSlice(csv.Object, "spec", "install", "spec", field)
		if err != nil || len(all) != 1 {
			t.Fatalf("%s: %v, %v", field, all, err)
		}
		return all[0].(map[string]any)
	}
	all := kustomize(t, "config/default")
	rules := func(roles ...string) (of []any) {
		for _, name := range roles {
			own, _, _ := unstructured.NestedSlice(all[name].Object, "rules")
			of = append(of, own...)
			delete(all, name)
		}
		return of
	}
	cluster := install("clusterPermissions")
	for field, pair := range map[string][2]any{
		"clusterPermissions": {rules("ClusterRole tailgate-manager", "ClusterRole tailgate-manager-gates", "ClusterRole tailgate-manager-identity", "ClusterRole tailgate-metrics-auth"), cluster["rules"]},
		"permissions":        {rules("Role leader-election"), install("permissions")["rules"]},
		"deployments":        {all["Deployment manager"].Object["spec"], install("deployments")["spec"]},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("%s (-kustomization +bundle):\n%s", field, diff)
		}
	}
	if cluster["serviceAccountName"] != "manager" {
		t.Errorf("the rights are those of %v", cluster["serviceAccountName"])
	}
	owned, _, _ := unstructured.NestedSlice(csv.Object, "spec", "customresourcedefinitions", "owned")
	for _, o := range owned {
		if name := "CustomResourceDefinition " + o.(map[string]any)["name"].(string); bundle[name] == nil {
			t.Errorf("the bundle owns %s and does not have it", name)
		}
	}
	crds := 0
	for name, o := range all {
		switch o.GetKind() {
		case "Namespace", "NetworkPolicy", "ServiceAccount", "RoleBinding", "ClusterRoleBinding", "Deployment",
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			continue // OLM creates these, or does not accept them
		case "CustomResourceDefinition":
			crds++
		}
		o.SetNamespace("")
		if bundle[name] == nil {
			t.Errorf("the bundle does not have %s", name)
		} else if diff := cmp.Diff(o.Object, bundle[name].Object); diff != "" {
			t.Errorf("%s (-kustomization +bundle):\n%s", name, diff)
		}
		delete(bundle, name)
	}
	if crds != len(owned) {
		t.Errorf("%d CRDs, and %d are owned", crds, len(owned))
	}
	if len(bundle) != 1 {
		t.Errorf("the bundle has more than the kustomization: %v", bundle)
	}
	dockerfile, err := os.ReadFile(filepath.Join(dir, "bundle.Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	annotations, err := os.ReadFile(filepath.Join(dir, "metadata", "annotations.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(annotations)), "\n")[1:] {
		if label := "LABEL " + strings.Replace(strings.TrimSpace(line), ": ", "=", 1) + "\n"; !strings.Contains(string(dockerfile), label) {
			t.Errorf("the Dockerfile has no %s", label)
		}
	}
}

// bundleOf writes the bundle of the manifests in a file, and returns what the script prints.
func bundleOf(manifests, dir string) (string, error) {
	out, err := exec.Command(filepath.Join(root, "hack", "olm.sh"), manifests, "v0.2.0-rc.1", dir).CombinedOutput()
	return string(out), err
}

// TestOLMBundleRefuses: manifests of another form than that of the kustomization have no bundle.
func TestOLMBundleRefuses(t *testing.T) {
	const binding = `---
{kind: ClusterRole, metadata: {name: a}, rules: []}
---
{kind: ClusterRoleBinding, metadata: {name: a}, roleRef: {kind: ClusterRole, name: a}, subjects: [{name: manager}]}
`
	deployment := func(containers string) string {
		return binding + "---\n{kind: Deployment, metadata: {name: manager}, spec: {template: {spec: {containers: [" + containers + "]}}}}\n"
	}
	bench := "{name: manager, image: a, args: [--bench-image=b]}"
	for name, c := range map[string]struct{ manifests, want string }{
		"no container":      {deployment(""), "not one Deployment of one container"},
		"two containers":    {deployment(bench + ", {name: proxy}"), "not one Deployment of one container"},
		"no bench image":    {deployment("{name: manager, image: a, args: [--bench-image=]}"), "not one Deployment of one container with one --bench-image"},
		"no deployment":     {binding, "not one Deployment"},
		"two accounts":      {deployment(bench) + "---\n{kind: RoleBinding, roleRef: {kind: ClusterRole, name: a}, subjects: [{name: other}]}\n", "not of one service account: manager other"},
		"a role of another": {deployment(bench) + "---\n{kind: RoleBinding, metadata: {name: c}, roleRef: {kind: Role, name: b}, subjects: [{name: manager}]}\n", "no role of c"},
		"two of one name": {deployment(bench) + "---\n{kind: Service, metadata: {name: a, namespace: x}}\n---\n{kind: Service, metadata: {name: a, namespace: y}}\n",
			"two objects have one name"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			manifests := filepath.Join(dir, "install.yaml")
			if err := os.WriteFile(manifests, []byte(c.manifests), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := bundleOf(manifests, filepath.Join(dir, "bundle")); err == nil || !strings.Contains(out, c.want) {
				t.Errorf("got error %v and %q, want %q", err, out, c.want)
			}
		})
	}
}
