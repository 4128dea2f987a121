// Command olm writes the bundle for the Operator Lifecycle Manager. It takes roles, CRDs and the Deployment from the manifests in
// one file, and names and descriptions from the chart:
//
//	go run ./hack/olm bin/install.yaml v0.1.0 bin/bundle
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// leftOut are the kinds that OLM creates itself, or does not accept in a bundle.
var leftOut = []string{"Namespace", "NetworkPolicy"}

// samples are the examples that OLM's consoles show.
var samples = []string{"first.yaml", "all-pairs.yaml", "gates/gate.yaml"}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "olm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: olm INSTALL_YAML VERSION DIRECTORY")
	}
	manifests, version, dir := args[0], args[1], args[2]
	objects, err := read(manifests)
	if err != nil {
		return err
	}
	b, err := newBundle(objects, version)
	if err != nil {
		return err
	}
	if err := errors.Join(b.describe(), os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "manifests"), 0o755), os.MkdirAll(filepath.Join(dir, "metadata"), 0o755)); err != nil {
		return err
	}
	return b.write(dir)
}

// read returns the objects of a file.
func read(path string) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("%s has no objects", path)
	}
	return objects, nil
}

// bundle is a bundle under construction.
type bundle struct {
	version string
	csv     *unstructured.Unstructured
	// beside are the objects next to the ClusterServiceVersion.
	beside []*unstructured.Unstructured
}

// permission returns the permissions of a service account in the format of OLM.
func permission(account string, rules []any) map[string]any {
	return map[string]any{"serviceAccountName": account, "rules": rules}
}

// newBundle separates the objects that OLM creates from the ClusterServiceVersion from the objects that stay next to it.
func newBundle(objects []*unstructured.Unstructured, version string) (*bundle, error) {
	bases, err := read("config/olm/csv.yaml")
	if err != nil {
		return nil, err
	}
	b := &bundle{version: strings.TrimPrefix(version, "v"), csv: bases[0]}
	roles, bound := map[string]*unstructured.Unstructured{}, map[string]bool{}
	for _, o := range objects {
		if strings.HasSuffix(o.GetKind(), "Role") {
			roles[o.GetKind()+" "+o.GetName()] = o
		}
	}
	rules := map[string][]any{}
	var account string
	for _, o := range objects {
		if !strings.HasSuffix(o.GetKind(), "RoleBinding") {
			continue
		}
		kind, _, _ := unstructured.NestedString(o.Object, "roleRef", "kind")
		name, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
		subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
		role := roles[kind+" "+name]
		if role == nil || len(subjects) != 1 {
			return nil, fmt.Errorf("%s %s is not of one role here and one subject", o.GetKind(), o.GetName())
		}
		subject := fmt.Sprint(subjects[0].(map[string]any)["name"])
		if account != "" && subject != account {
			return nil, fmt.Errorf("%s %s is of service account %s, and others of %s", o.GetKind(), o.GetName(), subject, account)
		}
		account, bound[kind+" "+name] = subject, true
		own, _, _ := unstructured.NestedSlice(role.Object, "rules")
		rules[o.GetKind()] = append(rules[o.GetKind()], own...)
	}
	for _, o := range objects {
		switch kind := o.GetKind(); {
		case slices.Contains(leftOut, kind), strings.HasSuffix(kind, "RoleBinding"), kind == "ServiceAccount" && o.GetName() == account,
			bound[kind+" "+o.GetName()]:
		case kind == "Deployment":
			spec, _, _ := unstructured.NestedMap(o.Object, "spec")
			err = errors.Join(err, unstructured.SetNestedMap(b.csv.Object, map[string]any{
				"clusterPermissions": []any{permission(account, rules["ClusterRoleBinding"])},
				"permissions":        []any{permission(account, rules["RoleBinding"])},
				"deployments":        []any{map[string]any{"name": o.GetName(), "label": labels(o), "spec": spec}},
			}, "spec", "install", "spec"), b.relatedImages(spec))
		default:
			o.SetNamespace("") // OLM sets it
			b.beside = append(b.beside, o)
		}
	}
	return b, errors.Join(err, unstructured.SetNestedField(b.csv.Object, "deployment", "spec", "install", "strategy"))
}

func labels(o *unstructured.Unstructured) map[string]any {
	all := map[string]any{}
	for name, value := range o.GetLabels() {
		all[name] = value
	}
	return all
}

// relatedImages lists the images of the Deployment and of its benchmarks, which a mirror for a cluster without a registry must
// contain.
func (b *bundle) relatedImages(deployment map[string]any) error {
	containers, _, _ := unstructured.NestedSlice(deployment, "template", "spec", "containers")
	if len(containers) != 1 {
		return fmt.Errorf("the Deployment has %d containers, not one", len(containers))
	}
	container := containers[0].(map[string]any)
	image := regexp.MustCompile(`--bench-image=([^ \]]+)`).FindStringSubmatch(fmt.Sprint(container["args"]))
	if image == nil {
		return errors.New("the Deployment has no --bench-image")
	}
	return unstructured.SetNestedSlice(b.csv.Object, []any{
		map[string]any{"name": "manager", "image": container["image"]}, map[string]any{"name": "bench", "image": image[1]},
	}, "spec", "relatedImages")
}

// describe sets the description of the operator and of its kinds in the ClusterServiceVersion.
func (b *bundle) describe() error {
	content, err := os.ReadFile("config/helm/Chart.yaml")
	if err != nil {
		return err
	}
	var chart struct {
		Description, KubeVersion, Home string
		Keywords                       []any
		Annotations                    map[string]string
	}
	if err := yaml.Unmarshal(content, &chart); err != nil {
		return fmt.Errorf("reading the chart: %w", err)
	}
	var kinds []any
	if err := yaml.Unmarshal([]byte(chart.Annotations["artifacthub.io/crds"]), &kinds); err != nil {
		return fmt.Errorf("reading the chart's kinds: %w", err)
	}
	var examples []any
	for _, name := range samples {
		objects, err := read(filepath.Join("config/samples", name))
		if err != nil {
			return err
		}
		for _, o := range objects {
			if strings.HasPrefix(o.GetAPIVersion(), "tailgate.dev/") {
				examples = append(examples, o.Object)
			}
		}
	}
	text, err := json.MarshalIndent(examples, "", "  ")
	if err != nil {
		return err
	}
	manager, _, _ := unstructured.NestedSlice(b.csv.Object, "spec", "relatedImages")
	annotations := b.csv.GetAnnotations()
	annotations["alm-examples"], annotations["description"] = string(text), chart.Description
	annotations["containerImage"] = fmt.Sprint(manager[0].(map[string]any)["image"])
	b.csv.SetAnnotations(annotations)
	b.csv.SetName("tailgate.v" + b.version)
	b.csv.SetLabels(map[string]string{"operatorframework.io/arch.amd64": "supported", "operatorframework.io/arch.arm64": "supported"})
	spec := b.csv.Object["spec"].(map[string]any)
	spec["version"], spec["keywords"] = b.version, chart.Keywords
	spec["minKubeVersion"] = strings.TrimSuffix(strings.TrimPrefix(chart.KubeVersion, ">="), "-0")
	spec["links"] = []any{map[string]any{"name": "Documentation", "url": chart.Home}}
	spec["customresourcedefinitions"] = map[string]any{"owned": kinds}
	return nil
}

// write writes the files of the bundle. The annotations are also the labels of the Dockerfile.
func (b *bundle) write(dir string) error {
	annotations := map[string]string{
		"operators.operatorframework.io.bundle.mediatype.v1":       "registry+v1",
		"operators.operatorframework.io.bundle.manifests.v1":       "manifests/",
		"operators.operatorframework.io.bundle.metadata.v1":        "metadata/",
		"operators.operatorframework.io.bundle.package.v1":         "tailgate",
		"operators.operatorframework.io.bundle.channels.v1":        "alpha",
		"operators.operatorframework.io.bundle.channel.default.v1": "alpha",
	}
	dockerfile := "FROM scratch\n"
	files := map[string]any{"metadata/annotations.yaml": map[string]any{"annotations": annotations}, "manifests/tailgate.clusterserviceversion.yaml": b.csv.Object}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		dockerfile += fmt.Sprintf("LABEL %s=%s\n", key, annotations[key])
	}
	dockerfile += "COPY manifests /manifests/\nCOPY metadata /metadata/\n"
	for _, o := range b.beside {
		name := fmt.Sprintf("manifests/%s.%s.yaml", o.GetName(), strings.ToLower(o.GetKind()))
		if files[name] != nil {
			return fmt.Errorf("two objects are called %s", name)
		}
		files[name] = o.Object
	}
	err := os.WriteFile(filepath.Join(dir, "bundle.Dockerfile"), []byte(dockerfile), 0o644)
	for name, content := range files {
		text, marshalling := yaml.Marshal(content)
		err = errors.Join(err, marshalling, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	return err
}
