// Package chart tests the Helm chart in config/helm by rendering it with Helm itself.
package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	root      = "../.."
	chart     = root + "/config/helm"
	namespace = "tailgate-system"
)

// tool returns the path of a tool that is pinned in a module file of hack/tools.
func tool(modfile, name string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		c := exec.Command("go", "tool", "-n", "-modfile=hack/tools/"+modfile, name)
		c.Dir, c.Stderr = root, os.Stderr
		out, err := c.Output()
		return strings.TrimSpace(string(out)), err
	})
}

var (
	helmTool      = tool("helm.mod", "helm")
	kustomizeTool = tool("go.mod", "kustomize")
)

// run runs a tool, and returns its output.
func run(t *testing.T, tool func() (string, error), args ...string) (stdout, stderr string, err error) {
	t.Helper()
	path, err := tool()
	if err != nil {
		t.Fatal("building the tool: ", err)
	}
	var out, errs bytes.Buffer
	c := exec.Command(path, args...)
	// The user's configuration must not affect it.
	c.Env = append(os.Environ(), "HELM_CONFIG_HOME="+t.TempDir(), "KUBECONFIG=/nowhere")
	c.Stdout, c.Stderr = &out, &errs
	err = c.Run()
	return out.String(), errs.String(), err
}

// object is an object of a manifest.
type object = *unstructured.Unstructured

// objects parses a manifest, and returns its objects by kind and name.
func objects(t *testing.T, manifest string) map[string]object {
	t.Helper()
	all := map[string]object{}
	decoder := utilyaml.NewYAMLToJSONDecoder(strings.NewReader(manifest))
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the manifest cannot be read after %d objects: %v", len(all), err)
		}
		if len(o.Object) == 0 {
			continue
		}
		name := o.GetKind() + " " + o.GetName()
		if all[name] != nil {
			t.Errorf("there are two of %s", name)
		}
		all[name] = o
	}
	if len(all) == 0 {
		t.Fatal("there is nothing in the manifest")
	}
	return all
}

// render renders the chart with values, each as path=value.
func render(t *testing.T, values ...string) map[string]object {
	t.Helper()
	stdout, stderr, err := template(t, values...)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, stderr)
	}
	return objects(t, stdout)
}

func template(t *testing.T, values ...string) (stdout, stderr string, err error) {
	t.Helper()
	args := []string{"template", "tailgate", chart, "--namespace", namespace}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	return run(t, helmTool, args...)
}

func kustomize(t *testing.T, folder string) map[string]object {
	t.Helper()
	stdout, stderr, err := run(t, kustomizeTool, "build", filepath.Join(root, folder))
	if err != nil {
		t.Fatalf("kustomize build: %v\n%s", err, stderr)
	}
	return objects(t, stdout)
}

func TestDefaultsAreTheKustomization(t *testing.T) {
	want := kustomize(t, "config/default")
	// Helm's release is stored in it, so that Helm cannot create it.
	delete(want, "Namespace "+namespace)
	checkSame(t, want, render(t, "crds.keep=false"))
}

func TestPrometheusIsTheKustomization(t *testing.T) {
	want, got := kustomize(t, "config/prometheus"), render(t, "prometheus.enabled=true")
	for name := range render(t) {
		delete(got, name)
	}
	checkSame(t, want, got)
	all := render(t, "prometheus.enabled=true", "prometheus.labels.release=stack", "prometheus.serviceAccount.name=p", "prometheus.serviceAccount.namespace=n")
	for _, kind := range []string{"ServiceMonitor", "PrometheusRule"} {
		if labels := all[kind+" tailgate"].GetLabels(); labels["release"] != "stack" || labels["app.kubernetes.io/name"] != "tailgate" {
			t.Errorf("labels of the %s are %v", kind, labels)
		}
	}
	for _, binding := range []string{"ClusterRoleBinding tailgate-metrics-reader", "RoleBinding tailgate-metrics-discovery"} {
		if subjects := fmt.Sprint(all[binding].Object["subjects"]); subjects != "[map[kind:ServiceAccount name:p namespace:n]]" {
			t.Errorf("subjects of %s are %s", binding, subjects)
		}
	}
}

// checkSame compares the objects of the chart with those of the kustomization.
func checkSame(t *testing.T, want, got map[string]object) {
	t.Helper()
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Fatalf("the kustomization and the chart have other objects:\n%s", diff)
	}
	for name := range want {
		if diff := cmp.Diff(want[name].Object, got[name].Object); diff != "" {
			t.Errorf("%s (-kustomization +chart):\n%s", name, diff)
		}
	}
}

func TestCRDsAreKept(t *testing.T) {
	crds := 0
	for name, o := range render(t) {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		crds++
		if o.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s goes with the release", name)
		}
	}
	if crds != 4 {
		t.Errorf("there are %d CRDs, want 4", crds)
	}
	for name := range render(t, "crds.enabled=false") {
		if strings.HasPrefix(name, "CustomResourceDefinition") {
			t.Errorf("there is %s without crds.enabled", name)
		}
	}
}

func TestAnotherNamespace(t *testing.T) {
	stdout, stderr, err := run(t, helmTool, "template", "x", chart, "--namespace", "latency")
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, stderr)
	}
	if strings.Contains(stdout, namespace) {
		t.Errorf("something is in %s, or about it, although the release is in another namespace", namespace)
	}
}

func deployment(t *testing.T, all map[string]object) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(all["Deployment manager"].Object, d, true); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestImages(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0123", 16)
	cases := map[string]struct {
		values         []string
		manager, bench string
	}{
		"as built":   {nil, "tailgate:latest", "tailgate-bench:latest"},
		"a registry": {[]string{"image.registry=r.example:5000", "benchImage.tag=v2"}, "r.example:5000/tailgate:latest", "tailgate-bench:v2"},
		"a mirror of all": {
			[]string{"image.registry=r.example", "global.imageRegistry=mirror.example/team/"}, "mirror.example/team/tailgate:latest", "mirror.example/team/tailgate-bench:latest",
		},
		"digests": {
			[]string{"image.digest=" + digest, "benchImage.digest=" + digest, "benchImage.registry=r.example"}, "tailgate@" + digest, "r.example/tailgate-bench@" + digest,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			container := deployment(t, render(t, c.values...)).Spec.Template.Spec.Containers[0]
			if container.Image != c.manager || container.Args[0] != "--bench-image="+c.bench {
				t.Errorf("got %s and %s, want %s and --bench-image=%s", container.Image, container.Args[0], c.manager, c.bench)
			}
		})
	}
}

func TestArguments(t *testing.T) {
	sfnettest := "onload/sfnettest@sha256:" + strings.Repeat("0a", 32)
	all := render(t, "benchImage.pullPolicy=Always", "benchImage.tools={pinger,netperf}", "benchImage.sfnettestImage="+sfnettest, "benchmarks.serviceAccountName=bench", "benchmarks.allowHostNetwork=true", "benchmarks.allowPacketCapture=true",
		"benchmarks.customImages={registry.example.com/trading,docker.io}", "benchmarks.networkNamespaces={nets,more}", "benchmarks.maxOccupation=2h", "benchmarks.podStartTimeout=90s", "benchmarks.maxAttempts=1", "metrics.port=9443", "metrics.certificate.secretName=s", "health.port=9081", "log.level=debug",
		"log.encoder=console", "gates.enabled=false", "namespaces={perf}", "extraArgs={--leader-elect=false}")
	d := deployment(t, all)
	want := []string{
		"--bench-image=tailgate-bench:latest", "--bench-image-pull-policy=Always", "--bench-tools=pinger,netperf", "--sfnettest-image=" + sfnettest, "--bench-service-account=bench", "--gates=false", "--namespaces=perf", "--allow-host-network", "--allow-packet-capture",
		"--custom-images=registry.example.com/trading,docker.io", "--network-namespaces=nets,more", "--max-occupation=2h", "--pod-start-timeout=90s", "--max-attempts=1", "--metrics-bind-address=:9443", "--serving-cert-dir=/serving-cert", "--health-probe-bind-address=:9081",
		"--zap-log-level=debug", "--zap-encoder=console", "--leader-elect=false",
	}
	got := d.Spec.Template.Spec.Containers[0].Args
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if ports := d.Spec.Template.Spec.Containers[0].Ports; ports[0].ContainerPort != 9443 || ports[1].ContainerPort != 9081 {
		t.Errorf("ports are %v", ports)
	}

	// The chart sets every flag of the manager.
	source, err := os.ReadFile(filepath.Join(root, "cmd/manager/main.go"))
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`fs\.[A-Z][a-z0-9A-Z]*(?:Var)?\((?:&[^,]+, )?"([a-z-]+)"`).FindAllSubmatch(source, -1)
	if len(flags) < 9 {
		t.Fatalf("cmd/manager has %d flags, which cannot be", len(flags))
	}
	for _, f := range flags {
		if !slices.ContainsFunc(got, func(arg string) bool { return strings.Split(arg, "=")[0] == "--"+string(f[1]) }) {
			t.Errorf("the chart has no value for --%s", f[1])
		}
	}

	all = render(t, "metrics.enabled=false", "metrics.certificate.secretName=s", "metrics.certificate.issuerRef.name=ca")
	if args := deployment(t, all).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--metrics-bind-address=0") {
		t.Errorf("metrics are not off: %v", args)
	}
	if all["Service metrics"] != nil {
		t.Error("there is a Service of metrics that are off")
	}
	if all["Certificate metrics"] != nil || deployment(t, all).Spec.Template.Spec.Volumes != nil {
		t.Error("there is a certificate of metrics that are off")
	}
}

// Without gates the manager has no right to write to nodes, and does not try to.
func TestWithoutGates(t *testing.T) {
	want := overlay(t, "components: [CONFIG/without-gates]", "default")
	delete(want, "Namespace "+namespace)
	got := render(t, "crds.keep=false", "gates.enabled=false")
	checkSame(t, want, got)
	for name, o := range got {
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(name, "manager-gates") || o.GetKind() == "ClusterRole" && strings.HasPrefix(o.GetName(), "tailgate-manager") && strings.Contains(string(text), "nodes/status") {
			t.Errorf("%s is there: %s", name, text)
		}
	}
	if args := deployment(t, got).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--gates=false") {
		t.Errorf("arguments %v", args)
	}
	if render(t)["ClusterRole tailgate-manager-gates"] == nil {
		t.Error("there is no ClusterRole tailgate-manager-gates with gates")
	}
}

// A manager of named namespaces may write only there, and to objects that are in no namespace.
func TestNamedNamespaces(t *testing.T) {
	want := overlay(t, "components: [CONFIG/named-namespaces]", "default")
	delete(want, "Namespace "+namespace)
	checkSame(t, want, render(t, "crds.keep=false", "namespaces={perf}"))
	for name, o := range render(t, "namespaces={perf}", "gates.enabled=false") {
		if strings.Contains(name, "gates") && o.GetKind() != "CustomResourceDefinition" && !strings.HasPrefix(name, "ClusterRole tailgate-gate-") {
			t.Errorf("%s is there without gates", name)
		}
	}
	stdout, stderr, err := template(t, "namespaces={perf,more}")
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, stderr)
	}
	for text, want := range map[string]int{"namespace: perf\n": 2, "namespace: more\n": 2, "name: tailgate-manager}": 2, "name: tailgate-manager-gates}": 2} {
		if got := strings.Count(stdout, text); got != want {
			t.Errorf("%d of %q, want %d", got, text, want)
		}
	}
}

func TestServingCertificate(t *testing.T) {
	want := overlay(t, "components: [CONFIG/serving-cert]", "default", "prometheus")
	delete(want, "Namespace "+namespace)
	checkSame(t, want, render(t, "crds.keep=false", "prometheus.enabled=true", "metrics.certificate.secretName=tailgate-serving-cert"))
	for _, alone := range []string{"default", "prometheus"} {
		overlay(t, "components: [CONFIG/serving-cert]", alone)
	}

	stdout, stderr, err := run(t, helmTool, "template", "x", chart, "--namespace", "latency", "--set", "prometheus.enabled=true",
		"--set", "metrics.certificate.secretName=s,metrics.certificate.issuerRef.name=ca,metrics.certificate.issuerRef.kind=ClusterIssuer")
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, stderr)
	}
	all := objects(t, stdout)
	if got := fmt.Sprint(all["Certificate metrics"].Object["spec"]); got != "map[dnsNames:[metrics.latency.svc] issuerRef:map[kind:ClusterIssuer name:ca] secretName:s]" {
		t.Errorf("the certificate asked for is %s", got)
	}
	pod := deployment(t, all).Spec.Template.Spec
	if pod.Volumes[0].Secret.SecretName != "s" || pod.Containers[0].VolumeMounts[0].Name != pod.Volumes[0].Name || !pod.Containers[0].VolumeMounts[0].ReadOnly {
		t.Errorf("Secret s is not mounted, or not to be read alone: %+v %+v", pod.Volumes, pod.Containers[0].VolumeMounts)
	}
	if !slices.Contains(pod.Containers[0].Args, "--serving-cert-dir="+pod.Containers[0].VolumeMounts[0].MountPath) {
		t.Errorf("the manager does not know where it is mounted: %v", pod.Containers[0].Args)
	}
	endpoints, _, err := unstructured.NestedSlice(all["ServiceMonitor tailgate"].Object, "spec", "endpoints")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(endpoints[0].(map[string]any)["tlsConfig"]); got != "map[ca:map[secret:map[key:ca.crt name:s]] serverName:metrics.latency.svc]" {
		t.Errorf("Prometheus verifies %s", got)
	}
}

// overlay builds folders of config with further fields of a kustomization, in which CONFIG is that folder.
func overlay(t *testing.T, fields string, folders ...string) map[string]object {
	t.Helper()
	config, err := filepath.Abs(filepath.Join(root, "config"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// Kustomize accepts only relative paths.
	if config, err = filepath.Rel(dir, config); err != nil {
		t.Fatal(err)
	}
	content := fields + "\nresources:\n"
	for _, folder := range folders {
		content += "- CONFIG/" + folder + "\n"
	}
	content = strings.ReplaceAll(content, "CONFIG", config)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := run(t, kustomizeTool, "build", dir)
	if err != nil {
		t.Fatalf("kustomize build: %v\n%s", err, stderr)
	}
	return objects(t, stdout)
}

func TestPod(t *testing.T) {
	pod := deployment(t, render(t, "global.imagePullSecrets[0].name=mirror", "priorityClassName=high", "nodeSelector.zone=a", "tolerations[0].key=spare",
		"tolerations[0].operator=Exists", "podLabels.team=net", "podAnnotations.owner=net", "resources.limits.memory=1Gi", "image.pullPolicy=Never",
		"topologySpreadConstraints[0].maxSkew=1", "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution=null")).Spec.Template
	switch {
	case len(pod.Spec.ImagePullSecrets) != 1 || pod.Spec.ImagePullSecrets[0].Name != "mirror",
		pod.Spec.PriorityClassName != "high", pod.Spec.NodeSelector["zone"] != "a",
		len(pod.Spec.Tolerations) != 2 || pod.Spec.Tolerations[1].Key != "spare",
		pod.Labels["team"] != "net" || pod.Labels["app.kubernetes.io/component"] != "manager" || pod.Annotations["owner"] != "net",
		pod.Spec.Containers[0].Resources.Limits.Memory().String() != "1Gi", pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "10m",
		pod.Spec.Containers[0].ImagePullPolicy != "Never", len(pod.Spec.TopologySpreadConstraints) != 1:
		t.Errorf("something is not as it was set: %+v", pod)
	}
}

// The defaults are for a highly available manager, as in the kustomization; see TestDefaultsAreTheKustomization.
func TestReplicas(t *testing.T) {
	all := render(t)
	d := deployment(t, all)
	if *d.Spec.Replicas != 2 || d.Spec.Template.Spec.PriorityClassName != "system-cluster-critical" {
		t.Errorf("%d replicas with priority class %q", *d.Spec.Replicas, d.Spec.Template.Spec.PriorityClassName)
	}
	spread := d.Spec.Template.Spec.TopologySpreadConstraints
	if len(spread) != 1 || spread[0].TopologyKey != "kubernetes.io/hostname" || !maps.Equal(spread[0].LabelSelector.MatchLabels, d.Spec.Selector.MatchLabels) {
		t.Errorf("they are spread by %v", spread)
	}
	budget := all["PodDisruptionBudget manager"]
	if budget == nil {
		t.Fatal("there is no budget of two replicas")
	}
	if got, _, _ := unstructured.NestedFieldNoCopy(budget.Object, "spec", "maxUnavailable"); fmt.Sprint(got) != "1" {
		t.Errorf("maxUnavailable is %v", got)
	}
	if render(t, "replicas=1")["PodDisruptionBudget manager"] != nil {
		t.Error("a budget of one replica would only be in the way of drains")
	}
	if render(t, "podDisruptionBudget.enabled=false")["PodDisruptionBudget manager"] != nil {
		t.Error("there is a budget that is off")
	}
}

// Without aggregation, no role of the cluster's users gains a right by the installation.
func TestWithoutAggregation(t *testing.T) {
	want := overlay(t, "components: [CONFIG/without-aggregation]", "default")
	delete(want, "Namespace "+namespace)
	got := render(t, "crds.keep=false", "rbac.aggregate=false")
	checkSame(t, want, got)
	for name, o := range got {
		for label := range o.GetLabels() {
			if strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-") {
				t.Errorf("%s has label %s", name, label)
			}
		}
	}
	if labels := render(t)["ClusterRole tailgate-edit"].GetLabels(); labels["rbac.authorization.k8s.io/aggregate-to-edit"] != "true" {
		t.Errorf("by default, tailgate-edit has labels %v", labels)
	}
}

func TestNetworkPolicy(t *testing.T) {
	if render(t, "networkPolicy.enabled=false")["NetworkPolicy manager"] != nil {
		t.Error("there is a policy that is off")
	}
	policy := render(t, "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=monitoring")["NetworkPolicy manager"]
	rules, _, err := unstructured.NestedSlice(policy.Object, "spec", "ingress")
	if err != nil || len(rules) != 1 {
		t.Fatalf("rules are %v (%v), want one: the probes of the pod's own node need none", rules, err)
	}
	if from := rules[0].(map[string]any)["from"]; fmt.Sprint(from) != "[map[namespaceSelector:map[matchLabels:map[team:monitoring]]]]" {
		t.Errorf("metrics may come from %v", from)
	}
	policy = render(t, "metrics.enabled=false")["NetworkPolicy manager"]
	if rules, found, err := unstructured.NestedSlice(policy.Object, "spec", "ingress"); err != nil || !found || len(rules) != 0 {
		t.Errorf("without metrics, rules are %v (%v), want none", rules, err)
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	for value, says := range map[string]string{
		"replicas=0":                             "replicas",
		"image.digest=sha256:abc":                "digest",
		"image.repository=":                      "repository",
		"benchImage.pullPolicy=Sometimes":        "pullPolicy",
		"benchmarks.maxAttempts=4":               "maxAttempts",
		"benchmarks.podStartTimeout=2 minutes":   "podStartTimeout",
		"benchmarks.maxOccupation=a day":         "maxOccupation",
		"benchmarks.networkNamespaces={a b}":     "networkNamespaces",
		"benchmarks.customImages={trading}":      "customImages",
		"benchmarks.allowHostnetwork=true":       "allowHostnetwork",
		"metrics.port=443":                       "port",
		"log.level=loud":                         "level",
		"extraArgs={leader-elect=false}":         "extraArgs",
		"crds.keep=perhaps":                      "keep",
		"global.imagePullSecrets[0]=":            "imagePullSecrets",
		"global.imagePullSecrets[0].key=mirror":  "imagePullSecrets",
		"global.imageRegistry=https://r.example": "imageRegistry",
		"unknown=1":                              "unknown",

		"metrics.certificate.issuerRef.name=ca":            "secretName",
		"metrics.certificate.secretName=a/b":               "secretName",
		"metrics.certificate.issuerRef.kind=ClusterIssuer": "name",
	} {
		t.Run(value, func(t *testing.T) {
			if _, stderr, err := template(t, value); err == nil || !strings.Contains(stderr, says) {
				t.Errorf("it is not refused by a message that names %s: %v\n%s", says, err, stderr)
			}
		})
	}
}

func TestValuesAreDescribed(t *testing.T) {
	schema, err := os.ReadFile(chart + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)^ *([a-zA-Z]+):`).FindAllSubmatch(values, -1) {
		if !bytes.Contains(schema, fmt.Appendf(nil, "%q", found[1])) {
			t.Errorf("values.schema.json does not have %s", found[1])
		}
	}
}

func TestLintAndPackage(t *testing.T) {
	if stdout, stderr, err := run(t, helmTool, "lint", "--strict", chart); err != nil {
		t.Fatalf("helm lint: %v\n%s%s", err, stdout, stderr)
	}
	dir := t.TempDir()
	if stdout, stderr, err := run(t, helmTool, "package", chart, "--destination", dir); err != nil {
		t.Fatalf("helm package: %v\n%s%s", err, stdout, stderr)
	}
	archives, err := filepath.Glob(dir + "/tailgate-*.tgz")
	if err != nil || len(archives) != 1 {
		t.Fatalf("the package is %v, %v", archives, err)
	}
	// The package contains the files to which the chart links.
	stdout, stderr, err := run(t, helmTool, "template", "tailgate", archives[0], "--namespace", namespace)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, stderr)
	}
	if diff := cmp.Diff(render(t), objects(t, stdout)); diff != "" {
		t.Errorf("the package makes something else than the folder:\n%s", diff)
	}
}

// The annotations for Artifact Hub name every CRD of the chart.
func TestArtifactHubKnowsTheCRDs(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var metadata struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.Unmarshal(content, &metadata); err != nil {
		t.Fatal(err)
	}
	var listed []struct{ Kind, Version, Name, DisplayName, Description string }
	if err := yaml.UnmarshalStrict([]byte(metadata.Annotations["artifacthub.io/crds"]), &listed); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range listed {
		if l.DisplayName == "" || l.Description == "" {
			t.Errorf("%s has no name or description", l.Name)
		}
		got = append(got, "tailgate.dev_"+strings.TrimSuffix(l.Name, ".tailgate.dev")+".yaml")
	}
	want, err := filepath.Glob(filepath.Join(chart, "files", "crd", "bases", "tailgate.dev_*.yaml"))
	if err != nil || len(want) == 0 {
		t.Fatal("no CRDs: ", err)
	}
	for i := range want {
		want[i] = filepath.Base(want[i])
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-CRDs +annotation):\n%s", diff)
	}
}
