package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	lua "github.com/yuin/gopher-lua"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/cli"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/standing"
	"github.com/tailgate-dev/tailgate/internal/verdicthttp"
)

// These specs simulate the tools of config/samples/gates: the behavior of each tool is taken from its source, which the comments name.
// The samples are those of the folder with other names. peers_test.go runs the tools that are available as Go modules.

// gateSamples is the folder of the samples.
var gateSamples = filepath.Join("..", "..", "config", "samples", "gates")

// readSample reads a sample. replace holds pairs of strings for strings.NewReplacer, to adapt the sample to a spec.
func readSample(file string, replace ...string) []byte {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(gateSamples, file))
	Expect(err).NotTo(HaveOccurred())
	return []byte(strings.NewReplacer(replace...).Replace(string(content)))
}

// objectsOf returns the objects of a sample.
func objectsOf(content []byte) []*unstructured.Unstructured {
	GinkgoHelper()
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		o := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(document), &o.Object)).To(Succeed())
		all = append(all, o)
	}
	return all
}

// decode decodes a tool's object into a struct with the fields that the specs use.
func decode(o *unstructured.Unstructured, into any) {
	GinkgoHelper()
	content, err := json.Marshal(o.Object)
	Expect(err).NotTo(HaveOccurred())
	Expect(json.Unmarshal(content, into)).To(Succeed())
}

// typed returns the object of a kind in a sample. Fields that its type does not have are errors.
func typed[T any](content []byte, kind string) T {
	GinkgoHelper()
	var into T
	for _, o := range objectsOf(content) {
		if o.GetKind() == kind {
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &into, true)).To(Succeed())
			return into
		}
	}
	Fail("no " + kind + " in the sample")
	return into
}

// create creates objects until the spec ends. Unknown fields are errors.
func create(ctx SpecContext, objects ...*unstructured.Unstructured) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(k8s.Create(ctx, o, client.FieldValidation("Strict"))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, o))).To(Succeed()) })
	}
}

// makeNamespace creates a namespace that a sample names, if it does not exist.
func makeNamespace(ctx SpecContext, name string) {
	GinkgoHelper()
	err := k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	Expect(client.IgnoreAlreadyExists(err)).To(Succeed())
}

// installTools installs the CustomResourceDefinitions of the tools. They stay, because they do not affect other specs.
func installTools() {
	GinkgoHelper()
	_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{filepath.Join("testdata", "tools", "crds.yaml")}, ErrorIfPathMissing: true})
	Expect(err).NotTo(HaveOccurred())
}

// Reader is the service account of reader.yaml for a gate.
type Reader struct{ Token, Kubeconfig string }

// NewReader creates the objects of reader.yaml in a namespace, for a gate of the same name, and a token, as the kubelet gives it to
// pods.
func NewReader(ctx SpecContext, namespace string) *Reader {
	GinkgoHelper()
	create(ctx, objectsOf(readSample("reader.yaml", "namespace: default", "namespace: "+namespace, "fast-nodes", namespace))...)
	clientset, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	request, err := clientset.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "latency-reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	r := &Reader{Token: request.Status.Token}
	r.Kubeconfig = writeKubeconfig(namespace, r.Token)
	return r
}

// writeKubeconfig writes a kubeconfig for the user of a token.
func writeKubeconfig(namespace, token string) string {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"it": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"it": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"it": {Cluster: "it", AuthInfo: "it", Namespace: namespace}},
		CurrentContext: "it",
	}, file)).To(Succeed())
	return file
}

// adminKubeconfig writes a kubeconfig for a user with all rights.
func adminKubeconfig(namespace string) string {
	GinkgoHelper()
	return writeKubeconfig(namespace, config.BearerToken)
}

// kubectl runs the real kubectl.
func kubectl(ctx context.Context, kubeconfig string, args ...string) (code int, output string) {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+GinkgoT().TempDir(), "KUBERC=off")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), string(out)
	}
	Expect(err).NotTo(HaveOccurred(), string(out))
	return 0, string(out)
}

// gateCommand runs the command of a container that starts with /tailgate, with another timeout.
func gateCommand(ctx context.Context, kubeconfig, timeout string, command []string) (code int, output string) {
	GinkgoHelper()
	Expect(command[0]).To(Equal("/tailgate"))
	args := append(slices.Clone(command[1:]), "--kubeconfig="+kubeconfig)
	i := slices.Index(args, "--timeout=2h")
	Expect(i).To(BeNumerically(">", 0))
	args[i] = "--timeout=" + timeout
	var out bytes.Buffer
	code = cli.Run(ctx, args, &out, &out)
	return code, out.String()
}

// command returns the command of the only container of a job.
func command(job batchv1.Job) []string { return job.Spec.Template.Spec.Containers[0].Command }

// freeAddress returns an address on which nothing listens.
func freeAddress() string {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	return listener.Addr().String()
}

// Verdicts serves verdicts as each replica of the manager does, whether it leads or not. It runs no controller.
func Verdicts() (base string) {
	GinkgoHelper()
	address := freeAddress()
	live, err := client.New(managerConfig, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	listener, err := net.Listen("tcp", address)
	Expect(err).NotTo(HaveOccurred())
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	Expect(err).NotTo(HaveOccurred())
	pair, err := tls.X509KeyPair(certificate, key)
	Expect(err).NotTo(HaveOccurred())
	server := verdicthttp.NewServer(verdicthttp.New(live, &clock{}, promhttp.Handler()))
	go func() {
		defer GinkgoRecover()
		secured := tls.NewListener(verdicthttp.Bound(listener), &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
		Expect(server.Serve(secured)).To(MatchError(http.ErrServerClosed))
	}()
	DeferCleanup(server.Close)
	base = "https://" + address
	Eventually(func() error { _, _, err := call(http.MethodGet, base+"/", ""); return err }).Should(Succeed())
	return base
}

// unverifying is a client that does not verify certificates, as with argo-rollouts' insecure and Flagger's disableTLS.
var unverifying = &http.Client{
	Timeout: 10 * time.Second,
	Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // The certificate is made at each start.
	},
}

// call requests a URL, with a token if it is not empty.
func call(method, url, token string) (code int, body string, err error) {
	request, err := http.NewRequest(method, url, strings.NewReader(`{"name":"trading","namespace":"default","phase":"Progressing"}`))
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := unverifying.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// analysis holds the fields of an AnalysisTemplate that are used here.
type analysis struct {
	Spec struct {
		Metrics []struct {
			Count, InconclusiveLimit, FailureLimit, ConsecutiveSuccessLimit int32
			SuccessCondition, FailureCondition                              string
			Provider                                                        struct {
				Web struct {
					URL, JSONPath string
					Headers       []struct{ Key, Value string }
				}
			}
		}
	}
}

// measure simulates a measurement of argo-rollouts' web metric: webmetric.go and evaluate.go of v1.9.
func (a analysis) measure(base, token string) string {
	GinkgoHelper()
	metric := a.Spec.Metrics[0]
	url := base + strings.TrimPrefix(metric.Provider.Web.URL, "https://metrics.tailgate-system.svc:8443")
	request, err := http.NewRequest(http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	for _, h := range metric.Provider.Web.Headers {
		request.Header.Set(h.Key, strings.ReplaceAll(h.Value, "{{args.token}}", token))
	}
	response, err := unverifying.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode >= 300 {
		return "Error"
	}
	var data any
	Expect(json.NewDecoder(response.Body).Decode(&data)).To(Succeed())
	parser := jsonpath.New("metrics")
	Expect(parser.Parse(metric.Provider.Web.JSONPath)).To(Succeed())
	found, err := parser.FindResults(data)
	Expect(err).NotTo(HaveOccurred())
	// The conditions of the sample are comparisons with one word.
	holds := func(condition string) bool {
		word := regexp.MustCompile(`^result == "(\w+)"$`).FindStringSubmatch(condition)
		Expect(word).NotTo(BeNil(), condition)
		return found[0][0].Interface() == word[1]
	}
	switch {
	case holds(metric.FailureCondition):
		return "Failed"
	case holds(metric.SuccessCondition):
		return "Successful"
	}
	return "Inconclusive"
}

// assess returns the phase of the metric after measurements: assessMetricStatus of argo-rollouts' analysis.go. Versions without
// support for consecutiveSuccessLimit ignore it.
func (a analysis) assess(knowsSuccessLimit bool, measurements ...string) string {
	metric := a.Spec.Metrics[0]
	var failed, inconclusive, errorsInARow, successes, count int32
	for _, m := range measurements {
		if m == "Error" {
			errorsInARow++
			successes = 0
			if errorsInARow > 4 {
				return "Error"
			}
			continue
		}
		errorsInARow = 0
		count++
		switch m {
		case "Failed":
			failed++
			successes = 0
		case "Inconclusive":
			inconclusive++
			successes = 0
		default:
			successes++
		}
		switch {
		case inconclusive > metric.InconclusiveLimit:
			return "Inconclusive"
		case failed > metric.FailureLimit:
			return "Failed"
		case knowsSuccessLimit && successes >= metric.ConsecutiveSuccessLimit:
			return "Successful"
		case count >= metric.Count && knowsSuccessLimit:
			return "Inconclusive"
		case count >= metric.Count:
			return "Successful"
		}
	}
	return "Running"
}

// flagger simulates Flagger's callWebhook for the first webhook of a Canary: webhook.go of v1.44.
func flagger(base, token string, canary *unstructured.Unstructured) error {
	GinkgoHelper()
	webhooks, _, err := unstructured.NestedSlice(canary.Object, "spec", "analysis", "webhooks")
	Expect(err).NotTo(HaveOccurred())
	url := webhooks[0].(map[string]any)["url"].(string)
	url = strings.Replace(url, "https://reader:TOKEN@metrics.tailgate-system.svc:8443", strings.Replace(base, "https://", "https://reader:"+token+"@", 1), 1)
	code, body, err := call(http.MethodPost, url, "")
	if err == nil && code > 202 {
		return errors.New(body)
	}
	return err
}

// readinessRule holds the fields of a NodeReadinessRule that are used here.
type readinessRule struct {
	Spec struct {
		EnforcementMode string
		Conditions      []struct{ Type, RequiredStatus, DefaultStatus string }
		NodeSelector    struct{ MatchLabels map[string]string }
	}
}

// taints reports whether node-readiness-controller would taint a node: evaluateRuleForNode of v0.5, all conditions.
func (r readinessRule) taints(n *corev1.Node) bool {
	if !labels.SelectorFromSet(r.Spec.NodeSelector.MatchLabels).Matches(labels.Set(n.Labels)) {
		return false
	}
	for _, required := range r.Spec.Conditions {
		status := required.DefaultStatus
		if status == "" {
			status = "Unknown"
		}
		for _, c := range n.Status.Conditions {
			if string(c.Type) == required.Type {
				status = string(c.Status)
			}
		}
		if status != required.RequiredStatus {
			return true
		}
	}
	return false
}

// upgradePlan holds the fields of a Plan of the system-upgrade-controller that are used here.
type upgradePlan struct {
	Spec struct {
		Concurrency  int
		NodeSelector struct{ MatchLabels map[string]string }
		Prepare      *struct{ Command []string }
	}
}

// applying returns the nodes that the system-upgrade-controller works on next: SelectConcurrentNodes of v0.20. Nodes that it already
// works on keep their place as long as they are selected. done holds the nodes that have the label of the plan's hash. The Job of a
// node that is no longer selected is deleted (handle_batch.go), and when no node is left, the Plan is complete (handle_upgrade.go).
func (p upgradePlan) applying(nodes []*corev1.Node, before, done []string) []string {
	var candidates, selected []string
	for _, n := range nodes {
		if labels.SelectorFromSet(p.Spec.NodeSelector.MatchLabels).Matches(labels.Set(n.Labels)) && !slices.Contains(done, n.Name) {
			candidates = append(candidates, n.Name)
		}
	}
	for _, first := range []bool{true, false} {
		for _, name := range candidates {
			if slices.Contains(before, name) == first && (first || len(selected) < p.Spec.Concurrency) {
				selected = append(selected, name)
			}
		}
	}
	slices.Sort(selected)
	return selected
}

// validated reports whether an operator with NVIDIA's k8s-operator-libs considers a node valid: Validate of validation_manager.go. It
// checks the containers, and not the pod's condition Ready.
func validated(ctx context.Context, selector, node string) bool {
	GinkgoHelper()
	parsed, err := labels.Parse(selector)
	Expect(err).NotTo(HaveOccurred())
	list := &corev1.PodList{}
	Expect(k8s.List(ctx, list, client.MatchingLabelsSelector{Selector: parsed}, client.MatchingFields{"spec.nodeName": node})).To(Succeed())
	for _, pod := range list.Items {
		if pod.Status.Phase != corev1.PodRunning || len(pod.Status.ContainerStatuses) == 0 {
			return false
		}
		for _, c := range pod.Status.ContainerStatuses {
			if !c.Ready {
				return false
			}
		}
	}
	return len(list.Items) > 0
}

// health returns the health of an object in Argo CD with the scripts of argocd.yaml: runLua of util/lua/lua.go, with the libraries that
// are open by default.
func health(o client.Object) string {
	GinkgoHelper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	Expect(err).NotTo(HaveOccurred())
	gvk, err := k8s.GroupVersionKindFor(o)
	Expect(err).NotTo(HaveOccurred())
	var patch corev1.ConfigMap
	Expect(yaml.UnmarshalStrict(readSample("argocd.yaml"), &patch)).To(Succeed())
	script, ok := patch.Data["resource.customizations.health."+gvk.Group+"_"+gvk.Kind]
	Expect(ok).To(BeTrue())

	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		Expect(l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name))).To(Succeed())
	}
	l.SetGlobal("obj", luaValue(l, content))
	Expect(l.DoString(script)).To(Succeed())
	table, ok := l.Get(-1).(*lua.LTable)
	Expect(ok).To(BeTrue())
	Expect(table.RawGetString("message").Type()).To(Equal(lua.LTString))
	return table.RawGetString("status").String()
}

// luaValue converts a JSON value to Lua.
func luaValue(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case bool:
		return lua.LBool(v)
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case []any:
		table := l.NewTable()
		for _, item := range v {
			table.Append(luaValue(l, item))
		}
		return table
	case map[string]any:
		table := l.NewTable()
		for key, item := range v {
			table.RawSetString(key, luaValue(l, item))
		}
		return table
	}
	return lua.LNil
}

// gateSaying creates a gate with the given condition Passed, without an operator.
func gateSaying(ctx SpecContext, namespace string, status metav1.ConditionStatus, reason string, nodes v1alpha1.NodeCounts) *v1alpha1.LatencyGate {
	GinkgoHelper()
	g := MakeGate(namespace).Obj()
	Expect(k8s.Create(ctx, g)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, g))).To(Succeed()) })
	say(ctx, g, status, reason, nodes)
	return g
}

// say sets the status of a gate, as the operator does.
func say(ctx context.Context, g *v1alpha1.LatencyGate, status metav1.ConditionStatus, reason string, nodes v1alpha1.NodeCounts) {
	GinkgoHelper()
	g.Status.ObservedGeneration, g.Status.Nodes = g.Generation, nodes
	g.SetCondition(v1alpha1.Condition(v1alpha1.ConditionOperational, metav1.ConditionTrue, v1alpha1.ReasonOperational, "ready"))
	g.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, status, reason, "so the operator says"))
	standing.Publish(&g.Status.Conditions, g.Generation, time.Now(), standing.OfGate(g))
	Expect(k8s.Status().Update(ctx, g)).To(Succeed())
}

// Numbers of nodes that match conditions.
var (
	allVerified     = v1alpha1.NodeCounts{Total: 2, Verified: 2}
	oneFailed       = v1alpha1.NodeCounts{Total: 2, Verified: 1, Failed: 1}
	oneMeasuring    = v1alpha1.NodeCounts{Total: 2, Verified: 1, Measuring: 1}
	oneInconclusive = v1alpha1.NodeCounts{Total: 2, Verified: 1, Inconclusive: 1}
)

var _ = Describe("The samples for upgrade tools", func() {
	BeforeEach(installTools)

	// The samples that are patches of objects of the tools.
	patches := []string{"argocd.yaml", "hold-pod.yaml", "kmm.yaml", "kured.yaml", "taint.yaml"}

	It("are taken by the API server, without a field that a tool does not have", func(ctx SpecContext) {
		makeNamespace(ctx, "system-upgrade")
		makeNamespace(ctx, "gates")
		files, err := filepath.Glob(filepath.Join(gateSamples, "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(len(files)).To(BeNumerically(">", len(patches)))
		for _, file := range files {
			if slices.Contains(patches, filepath.Base(file)) {
				continue
			}
			for _, o := range objectsOf(readSample(filepath.Base(file))) {
				By(filepath.Base(file) + ": " + o.GetKind())
				Expect(k8s.Create(ctx, o, client.DryRunAll, client.FieldValidation("Strict"))).To(Succeed())
			}
		}
	})

	It("that are patches are taken by kubectl", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		admin := adminKubeconfig(namespace)
		daemonSet := func(name string) *appsv1.DaemonSet {
			label := map[string]string{"name": name}
			return &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Spec: appsv1.DaemonSetSpec{
					Selector: &metav1.LabelSelector{MatchLabels: label},
					Template: corev1.PodTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: label},
						Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "image", Command: []string{"/usr/bin/" + name}}}},
					},
				},
			}
		}
		kured, multus := daemonSet("kured"), daemonSet("multus")
		argocd := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "argocd-cm"}, Data: map[string]string{"url": "kept"}}
		g := MakeGate(namespace).Obj()
		for _, o := range []client.Object{kured, multus, argocd, g} {
			Expect(k8s.Create(ctx, o)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(k8s.Delete(ctx, o)).To(Succeed()) })
		}
		patch := func(file string, o client.Object, args ...string) {
			GinkgoHelper()
			code, out := kubectl(ctx, admin, append([]string{"patch", "--patch-file", filepath.Join(gateSamples, file)}, args...)...)
			Expect(code).To(Equal(0), out)
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		}
		patch("kured.yaml", kured, "daemonset", "kured")
		Expect(kured.Spec.Template.Spec.Containers).To(HaveLen(1))
		Expect(kured.Spec.Template.Spec.Containers[0].Image).To(Equal("image"))
		Expect(kured.Spec.Template.Spec.Containers[0].Command).To(ContainElement("--alert-filter-match-only=true"))
		patch("argocd.yaml", argocd, "configmap", "argocd-cm")
		Expect(argocd.Data).To(HaveLen(5))
		patch("hold-pod.yaml", g, "lgate", namespace, "--type=merge")
		Expect(g.Spec.Enforcement.HoldPod).NotTo(BeNil())
		Expect(g.Spec.Enforcement.Label).NotTo(BeNil())

		By("tolerating the taint where the patch says so, and nowhere else")
		tainted := corev1.Taint{Key: v1alpha1.NodeTaintUnverified, Effect: corev1.TaintEffectNoSchedule}
		tolerated := func(d *appsv1.DaemonSet) bool {
			return slices.ContainsFunc(d.Spec.Template.Spec.Tolerations, func(t corev1.Toleration) bool {
				return (t.Key == "" || t.Key == tainted.Key) && (t.Effect == "" || t.Effect == tainted.Effect) && t.Operator == corev1.TolerationOpExists
			})
		}
		Expect(tolerated(multus)).To(BeFalse())
		patch("taint.yaml", multus, "daemonset", "multus")
		Expect(tolerated(multus)).To(BeTrue())
		Expect(tolerated(kured)).To(BeFalse())
	})
})

var _ = Describe("A simulated upgrade tool", func() {
	It("goes on while a node is verified, halts when it has failed, and goes on when it is accepted", func(ctx SpecContext) {
		installTools()
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{} }))
		reader, base, admin := NewReader(ctx, w.Namespace), Verdicts(), adminKubeconfig(w.Namespace)
		names := []string{"fast-nodes", w.Namespace, "{latency: gated}", fmt.Sprintf("{%s: %s}", gateLabel, w.Namespace), "latency: gated,", fmt.Sprintf("%s: %s,", gateLabel, w.Namespace)}
		var rule readinessRule
		Expect(yaml.Unmarshal(readSample("node-readiness-controller.yaml", names...), &rule)).To(Succeed())
		var upgrade, after upgradePlan
		plans := objectsOf(readSample("system-upgrade-controller.yaml", append(names, " upgraded-to: v1.36.2-k3s1,", "")...))
		decode(plans[0], &upgrade)
		decode(plans[1], &after)
		waits := typed[batchv1.Job](readSample("kubectl-wait.yaml", names...), "Job")
		gates := typed[batchv1.Job](readSample("gate-job.yaml", names...), "Job")
		var rollouts analysis
		Expect(yaml.Unmarshal(readSample("argo-rollouts.yaml", names...), &rollouts)).To(Succeed())
		canary := objectsOf(readSample("flagger.yaml", names...))[0]

		node := func(name string) *corev1.Node {
			GinkgoHelper()
			n := &corev1.Node{}
			Expect(k8s.Get(ctx, types.NamespacedName{Name: name}, n)).To(Succeed())
			return n
		}
		exits := func(kubeconfig string, args ...string) func() bool {
			return func() bool { code, _ := kubectl(ctx, kubeconfig, append(args, "--timeout=1s")...); return code == 0 }
		}
		wait := command(waits)
		Expect(wait[0]).To(Equal("kubectl"))
		Expect(wait[len(wait)-1]).To(Equal("--timeout=2h"))
		verification := v1alpha1.VerificationName(w.Namespace, w.A)
		// Functions that report whether a tool continues, for node A or for the gate.
		tools := map[string]func() bool{
			"kubectl wait for the gate":         exits(reader.Kubeconfig, wait[1:len(wait)-1]...),
			"kubectl wait for the verification": exits(admin, "wait", "lver/"+verification, "--for=condition=Verified"),
			"kubectl wait for the node":         exits(admin, "wait", "node/"+w.A, "--for=condition=tailgate.dev/LatencyVerified"),
			"the gate's command":                func() bool { code, _ := gateCommand(ctx, reader.Kubeconfig, "5s", command(gates)); return code == 0 },
			"prepare of the system-upgrade-controller": func() bool {
				code, _ := gateCommand(ctx, reader.Kubeconfig, "5s", upgrade.Spec.Prepare.Command)
				return code == 0
			},
			"a Plan by the label": func() bool {
				return slices.Contains(after.applying([]*corev1.Node{node(w.A), node(w.B)}, nil, nil), w.A)
			},
			"node-readiness-controller": func() bool { return !rule.taints(node(w.A)) },
			"the scheduler": func() bool {
				return !slices.ContainsFunc(node(w.A).Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.NodeTaintUnverified })
			},
			"k8s-operator-libs": func() bool { return validated(ctx, "tailgate.dev/hold=true,tailgate.dev/gate="+w.Namespace, w.A) },
			"Argo CD, the gate": func() bool {
				Expect(k8s.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
				return health(g) == "Healthy"
			},
			"Argo CD, the verification": func() bool { return health(w.Verification(ctx, w.A)) == "Healthy" },
			"Argo Rollouts":             func() bool { return rollouts.measure(base, reader.Token) == "Successful" },
			"Flagger":                   func() bool { return flagger(base, reader.Token, canary) == nil },
		}
		all := func(goOn bool) {
			GinkgoHelper()
			for name, goes := range tools {
				By(name)
				Eventually(goes).Should(Equal(goOn), name)
			}
		}
		w.Expect(ctx, w.A, isVerified)
		w.Expect(ctx, w.B, isVerified)
		all(true)

		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		all(false)
		By("the other node, which is not disturbed")
		Expect(rule.taints(node(w.B))).To(BeFalse())
		Expect(validated(ctx, "tailgate.dev/hold=true,tailgate.dev/gate="+w.Namespace, w.B)).To(BeTrue())
		Expect(rollouts.measure(base, reader.Token)).To(Equal("Failed"))
		Expect(flagger(base, reader.Token, canary)).To(MatchError(ContainSubstring(`"reason":"NodesFailed"`)))

		history := w.Verification(ctx, w.A).Status.History
		w.Annotate(ctx, w.A, v1alpha1.AnnotationAccept, history[0].Benchmark)
		w.Expect(ctx, w.A, "Verified AcceptedByHand: True true -")
		all(true)
	})
})

var _ = Describe("kubectl wait and the gate's command", func() {
	It("end by the verdict, or wait, with no more rights than the samples give", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		reader := NewReader(ctx, namespace)
		gates := command(typed[batchv1.Job](readSample("gate-job.yaml", "fast-nodes", namespace), "Job"))
		waits := command(typed[batchv1.Job](readSample("kubectl-wait.yaml", "fast-nodes", namespace), "Job"))
		wait := func(timeout string) int {
			GinkgoHelper()
			code, out := kubectl(ctx, reader.Kubeconfig, append(slices.Clone(waits[1:len(waits)-1]), "--timeout="+timeout)...)
			GinkgoWriter.Println(out)
			return code
		}
		expect := func(code int, timeout string) {
			GinkgoHelper()
			got, out := gateCommand(ctx, reader.Kubeconfig, timeout, gates)
			Expect(got).To(Equal(code), out)
		}
		By("a gate that does not exist")
		expect(3, "30s")
		g := gateSaying(ctx, namespace, metav1.ConditionTrue, v1alpha1.ReasonAllVerified, allVerified)
		By("Pass")
		expect(0, "30s")
		Expect(wait("30s")).To(Equal(0))
		By("Fail, at which kubectl wait waits on")
		say(ctx, g, metav1.ConditionFalse, v1alpha1.ReasonNodesFailed, oneFailed)
		expect(1, "30s")
		Expect(wait("1s")).To(Equal(1))
		By("Inconclusive")
		say(ctx, g, metav1.ConditionUnknown, v1alpha1.ReasonNotAllVerified, oneInconclusive)
		expect(2, "30s")
		Expect(wait("1s")).To(Equal(1))
		By("no verdict in time")
		say(ctx, g, metav1.ConditionUnknown, v1alpha1.ReasonNotAllVerified, oneMeasuring)
		expect(3, "1s")
		By("a verdict that comes while both wait")
		Eventually(watching).WithArguments(ctx, "latencygates").Should(BeZero())
		before := gets(ctx, "latencygates")
		codes := make(chan int, 2)
		go func() {
			defer GinkgoRecover()
			code, _ := gateCommand(ctx, reader.Kubeconfig, "1m", gates)
			codes <- code
		}()
		go func() {
			defer GinkgoRecover()
			codes <- wait("1m")
		}()
		Eventually(watching).WithArguments(ctx, "latencygates").Should(Equal(1))
		Eventually(gets).WithArguments(ctx, "latencygates").Should(BeNumerically(">=", before+2))
		say(ctx, g, metav1.ConditionTrue, v1alpha1.ReasonAllVerified, allVerified)
		Eventually(codes).Should(Receive(Equal(0)))
		Eventually(codes).Should(Receive(Equal(0)))
		By("a spec that the operator has not looked at yet, which only the command knows")
		g.Spec.MaxParallel = new(intstr.FromInt32(2))
		Expect(k8s.Update(ctx, g)).To(Succeed())
		expect(3, "1s")
		By("another gate, for which it has no right")
		other := newNamespace(ctx)
		gateSaying(ctx, other, metav1.ConditionTrue, v1alpha1.ReasonAllVerified, allVerified)
		code, out := gateCommand(ctx, reader.Kubeconfig, "10s", []string{"/tailgate", "gate", "lgate/" + other, "--timeout=2h", "--wait"})
		Expect(code).To(Equal(3), out)
		code, out = kubectl(ctx, reader.Kubeconfig, "annotate", "lgate/"+namespace, "a=b")
		Expect(code).To(Equal(1), out)
	})
})

var _ = Describe("Verdicts over HTTP", func() {
	It("are given to those who may get the object, and Pass is the only one that is 200 to POST", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		reader, base := NewReader(ctx, namespace), Verdicts()
		gate := base + "/verdict/latencygates/" + namespace
		ask := func(method, url, token string) (int, verdicthttp.Answer) {
			GinkgoHelper()
			code, body, err := call(method, url, token)
			Expect(err).NotTo(HaveOccurred())
			var a verdicthttp.Answer
			Expect(json.Unmarshal([]byte(body), &a)).To(Succeed(), body)
			return code, a
		}
		expect := func(method, url, token string, code int, verdict verdicthttp.Verdict, reason string) {
			GinkgoHelper()
			got, a := ask(method, url, token)
			Expect([]any{got, a.Verdict, a.Reason}).To(Equal([]any{code, verdict, reason}), a.Message)
		}
		expect("GET", gate, reader.Token, 404, verdicthttp.Unknown, "NotFound")
		g := gateSaying(ctx, namespace, metav1.ConditionTrue, v1alpha1.ReasonAllVerified, allVerified)
		expect("GET", gate, reader.Token, 200, verdicthttp.Pass, "AllVerified")
		expect("POST", gate, reader.Token, 200, verdicthttp.Pass, "AllVerified")
		By("without a token, with an invalid token, and without the right")
		expect("POST", gate, "", 401, verdicthttp.Unknown, "Unauthorized")
		expect("POST", gate, "made-up", 401, verdicthttp.Unknown, "Unauthorized")
		expect("POST", gate+"/nodes/node-a", reader.Token, 403, verdicthttp.Unknown, "Forbidden")
		expect("GET", base+"/verdict/namespaces/"+namespace+"/latencybenchmarks/b", reader.Token, 403, verdicthttp.Unknown, "Forbidden")
		By("a benchmark, with ClusterRole tailgate-gate-reader bound in its namespace")
		roles := objectsOf(readConfig("rbac", "users.yaml"))
		create(ctx, roles[slices.IndexFunc(roles, func(o *unstructured.Unstructured) bool { return o.GetName() == "tailgate-gate-reader" })])
		binding := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": map[string]any{"namespace": namespace, "name": "reader"},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tailgate-gate-reader"},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": namespace, "name": "latency-reader"}},
		}}
		create(ctx, binding)
		b := MakeBenchmark(namespace, "b").On("a", "b").Rounds(6).Rule(under("8us")).Obj()
		Expect(k8s.Create(ctx, b)).To(Succeed())
		Eventually(func() int {
			code, _ := ask("GET", base+"/verdict/namespaces/"+namespace+"/latencybenchmarks/b", reader.Token)
			return code
			// The denial is cached for some seconds, and the rate is limited.
		}).WithPolling(time.Second).Should(Equal(200))
		expect("GET", base+"/verdict/namespaces/"+namespace+"/latencybenchmarks/b", reader.Token, 200, verdicthttp.Pending, "NotJudged")
		expect("POST", base+"/verdict/namespaces/"+namespace+"/latencybenchmarks/b", reader.Token, 412, verdicthttp.Pending, "NotJudged")
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonInconclusive, "too noisy"))
		Expect(k8s.Status().Update(ctx, b)).To(Succeed())
		expect("POST", base+"/verdict/namespaces/"+namespace+"/latencybenchmarks/b", reader.Token, 412, verdicthttp.Inconclusive, "Inconclusive")
		By("a spec that the operator has not looked at yet")
		g.Spec.MaxParallel = new(intstr.FromInt32(2))
		Expect(k8s.Update(ctx, g)).To(Succeed())
		expect("POST", gate, reader.Token, 412, verdicthttp.Pending, "NotObserved")
		By("metrics, for which the right to a verdict is none")
		code, _, err := call(http.MethodGet, base+"/metrics", reader.Token)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(http.StatusForbidden))
	})
})

// readConfig reads a file under config.
func readConfig(path ...string) []byte {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "config"}, path...)...))
	Expect(err).NotTo(HaveOccurred())
	return content
}

var _ = Describe("Argo Rollouts, simulated,", func() {
	It("takes no analysis for a success that had no Pass", func() {
		var a analysis
		Expect(yaml.Unmarshal(readSample("argo-rollouts.yaml"), &a)).To(Succeed())
		for _, newer := range []bool{true, false} {
			inconclusive := slices.Repeat([]string{"Inconclusive"}, int(a.Spec.Metrics[0].Count))
			Expect(a.assess(newer, inconclusive...)).To(Equal("Inconclusive"))
			Expect(a.assess(newer, inconclusive[1:]...)).To(Equal("Running"))
			Expect(a.assess(newer, "Inconclusive", "Failed")).To(Equal("Failed"))
			Expect(a.assess(newer, "Error", "Error", "Error", "Error", "Error")).To(Equal("Error"))
		}
		Expect(a.assess(true, "Inconclusive", "Successful")).To(Equal("Successful"))
	})
})

var _ = Describe("Argo CD, simulated,", func() {
	It("finds an object healthy when it has passed, and only then", func() {
		benchmark := func(gated bool, generation int64, conditions ...metav1.Condition) *v1alpha1.LatencyBenchmark {
			b := MakeBenchmark("perf", "b").Obj()
			if gated {
				b = MakeBenchmark("perf", "b").Rule(under("8us")).Obj()
			}
			b.Generation = 1
			for _, c := range conditions {
				b.SetCondition(c)
			}
			b.Generation = generation
			return b
		}
		is := v1alpha1.Condition
		complete := is(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, "measured")
		running := is(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonRunning, "running")
		broken := is(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed, "failed")
		passed := func(status metav1.ConditionStatus, reason string) metav1.Condition {
			return is(v1alpha1.ConditionPassed, status, reason, "told")
		}
		gate := func(change func(*v1alpha1.LatencyGate), status metav1.ConditionStatus, reason string, nodes v1alpha1.NodeCounts) *v1alpha1.LatencyGate {
			g := MakeGate("fast").Obj()
			g.Generation, g.Status.Nodes = 1, nodes
			g.SetCondition(passed(status, reason))
			if change != nil {
				change(g)
			}
			return g
		}
		verification := func(state v1alpha1.VerificationState) *v1alpha1.LatencyVerification {
			return &v1alpha1.LatencyVerification{Status: v1alpha1.LatencyVerificationStatus{State: state, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionVerified, Message: "told"}}}}
		}
		notReady := verification(v1alpha1.VerificationVerified)
		notReady.Status.Conditions[0].Status = metav1.ConditionUnknown
		waiting := v1alpha1.NodeCounts{Total: 2, Unverified: 2}
		for _, c := range []struct {
			object client.Object
			want   string
		}{
			{benchmark(true, 1), "Progressing"},
			{benchmark(true, 1, is(v1alpha1.ConditionAccepted, metav1.ConditionFalse, "NoSuchNode", "no node")), "Progressing"},
			{benchmark(true, 1, running, passed("Unknown", v1alpha1.ReasonNotJudged)), "Progressing"},
			{benchmark(true, 1, complete, passed("True", v1alpha1.ReasonPass)), "Healthy"},
			{benchmark(true, 1, complete, passed("False", v1alpha1.ReasonFail)), "Degraded"},
			{benchmark(true, 1, complete, passed("Unknown", v1alpha1.ReasonInconclusive)), "Suspended"},
			{benchmark(true, 1, complete, passed("Unknown", v1alpha1.ReasonBaselineMissing)), "Suspended"},
			{benchmark(true, 1, complete), "Progressing"},
			{benchmark(true, 1, broken), "Degraded"},
			{benchmark(true, 2, complete, passed("True", v1alpha1.ReasonPass)), "Progressing"},
			{benchmark(false, 1, complete), "Healthy"},
			{benchmark(false, 1, running), "Progressing"},
			{gate(nil, "True", v1alpha1.ReasonAllVerified, allVerified), "Healthy"},
			{gate(nil, "False", v1alpha1.ReasonNodesFailed, oneFailed), "Degraded"},
			{gate(nil, "Unknown", v1alpha1.ReasonNotAllVerified, oneMeasuring), "Progressing"},
			{gate(nil, "False", v1alpha1.ReasonTooManyUnverified, waiting), "Progressing"},
			{gate(nil, "Unknown", v1alpha1.ReasonNotAllVerified, oneInconclusive), "Suspended"},
			{gate(nil, "Unknown", v1alpha1.ReasonNotAllVerified, waiting), "Progressing"},
			{gate(func(g *v1alpha1.LatencyGate) { g.Spec.Suspend = true }, "Unknown", v1alpha1.ReasonNotAllVerified, waiting), "Suspended"},
			{gate(nil, "Unknown", v1alpha1.ReasonNoNodes, v1alpha1.NodeCounts{}), "Progressing"},
			{gate(func(g *v1alpha1.LatencyGate) { g.Generation++ }, "True", v1alpha1.ReasonAllVerified, allVerified), "Progressing"},
			{gate(func(g *v1alpha1.LatencyGate) { g.Status = v1alpha1.LatencyGateStatus{} }, "True", v1alpha1.ReasonAllVerified, allVerified), "Progressing"},
			{verification(""), "Progressing"},
			{verification(v1alpha1.VerificationUnverified), "Progressing"},
			{verification(v1alpha1.VerificationMeasuring), "Progressing"},
			{verification(v1alpha1.VerificationVerified), "Healthy"},
			{notReady, "Progressing"},
			{verification(v1alpha1.VerificationFailed), "Degraded"},
			{verification(v1alpha1.VerificationInconclusive), "Suspended"},
		} {
			Expect(health(c.object)).To(Equal(c.want), "%+v", c.object)
			if b, ok := c.object.(*v1alpha1.LatencyBenchmark); ok {
				m := &v1alpha1.LatencyMatrix{ObjectMeta: b.ObjectMeta, Spec: v1alpha1.LatencyMatrixSpec{Template: v1alpha1.LatencyBenchmarkTemplate{Spec: b.Spec}}}
				m.Status.Conditions = b.Status.Conditions
				Expect(health(m)).To(Equal(c.want), "%+v", m)
			}
		}
	})
})

var _ = Describe("node-readiness-controller, simulated,", func() {
	It("taints nodes of the gate that do not say that they are verified, and no others", func() {
		var rule readinessRule
		Expect(yaml.Unmarshal(readSample("node-readiness-controller.yaml"), &rule)).To(Succeed())
		Expect(rule.Spec.EnforcementMode).To(Equal("continuous"))
		node := func(status corev1.ConditionStatus) *corev1.Node {
			n := MakeNode("n").Obj()
			n.Labels["latency"] = "gated"
			if status != "" {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: v1alpha1.NodeConditionVerified, Status: status})
			}
			return n
		}
		Expect(rule.taints(node(""))).To(BeTrue())
		Expect(rule.taints(node(corev1.ConditionFalse))).To(BeTrue())
		Expect(rule.taints(node(corev1.ConditionUnknown))).To(BeTrue())
		Expect(rule.taints(node(corev1.ConditionTrue))).To(BeFalse())
		other := node(corev1.ConditionFalse)
		delete(other.Labels, "latency")
		Expect(rule.taints(other)).To(BeFalse())
	})
})

var _ = Describe("The system-upgrade-controller, simulated,", func() {
	// label returns a node with the gate's label, and a label with the version it was upgraded to.
	label := func(name, verified, upgraded string) *corev1.Node {
		n := MakeNode(name).Obj()
		n.Labels["latency"], n.Labels[v1alpha1.NodeLabelVerified], n.Labels["upgraded-to"] = "gated", verified, upgraded
		return n
	}
	plans := func() (upgrade, after upgradePlan) {
		GinkgoHelper()
		objects := objectsOf(readSample("system-upgrade-controller.yaml"))
		Expect(objects).To(HaveLen(2))
		decode(objects[0], &upgrade)
		decode(objects[1], &after)
		return upgrade, after
	}

	It("keeps at the node that it upgrades while that is not verified", func() {
		upgrade, _ := plans()
		Expect(upgrade.Spec.Concurrency).To(Equal(1))
		before := []*corev1.Node{label("a", "true", ""), label("b", "true", "")}
		Expect(upgrade.applying(before, nil, nil)).To(Equal([]string{"a"}))
		during := []*corev1.Node{label("a", "false", ""), label("b", "true", "")}
		Expect(upgrade.applying(during, []string{"a"}, nil)).To(Equal([]string{"a"}))
		Expect(upgrade.applying(during, []string{"a"}, []string{"a"})).To(Equal([]string{"b"}), "where prepare holds it")

		By("which a selector with the gate's label would not: the next node is begun under the first")
		upgrade.Spec.NodeSelector.MatchLabels[v1alpha1.NodeLabelVerified] = "true"
		Expect(upgrade.applying(during, []string{"a"}, nil)).To(Equal([]string{"b"}))
	})

	It("does what comes after the upgrade on nodes that were verified since", func() {
		_, after := plans()
		const version = "v1.36.2-k3s1"
		nodes := []*corev1.Node{label("a", "true", version), label("b", "false", version), label("c", "true", "")}
		Expect(after.applying(nodes, nil, nil)).To(Equal([]string{"a"}))
		nodes[1].Labels[v1alpha1.NodeLabelVerified] = "true"
		Expect(after.applying(nodes, nil, []string{"a"})).To(Equal([]string{"b"}))
	})
})

var _ = Describe("kured, simulated,", func() {
	// flags returns the flags in the sample.
	flags := func() map[string]string {
		GinkgoHelper()
		var patch appsv1.DaemonSet
		Expect(yaml.UnmarshalStrict(readSample("kured.yaml"), &patch)).To(Succeed())
		all := map[string]string{}
		for _, flag := range patch.Spec.Template.Spec.Containers[0].Command[1:] {
			name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
			all[name] = value
		}
		return all
	}

	It("does not reboot a node while an alert of a gate is pending or firing", func() {
		f := flags()
		filter, err := regexp.Compile(f["alert-filter-regexp"])
		Expect(err).NotTo(HaveOccurred())
		// ActiveAlerts and matchesRegex of prometheus.go, v1.23.
		blocked := func(name, state string) bool {
			return filter.MatchString(name) == (f["alert-filter-match-only"] == "true") && (f["alert-firing-only"] != "true" || state == "firing")
		}
		for _, state := range []string{"pending", "firing"} {
			Expect(blocked("TailgateGateFailed", state)).To(BeTrue())
			Expect(blocked("TailgateGateNotPassed", state)).To(BeTrue())
			Expect(blocked("Watchdog", state)).To(BeFalse())
			Expect(blocked("TailgateGateNotOperational", state)).To(BeFalse())
		}
	})

	It("does not reboot a node under a benchmark", func(ctx SpecContext) {
		w := NewWorld(ctx)
		w.Start()
		selector, err := labels.Parse(flags()["blocking-pod-selector"])
		Expect(err).NotTo(HaveOccurred())
		// IsBlocked of kubernetespod.go.
		blocked := func(node string) bool {
			list := &corev1.PodList{}
			Expect(k8s.List(ctx, list, client.MatchingLabelsSelector{Selector: selector}, client.MatchingFields{"spec.nodeName": node})).To(Succeed())
			return slices.ContainsFunc(list.Items, func(p corev1.Pod) bool {
				return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodUnknown
			})
		}
		Expect(blocked(w.A)).To(BeFalse())
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "b").On(w.A, w.B))
		w.Kubelet.Run(ctx, w.Kubelet.Pod(ctx, "b-r1", 1, v1alpha1.RoleServer))
		Expect(blocked(w.B)).To(BeTrue())
		Expect(k8s.Delete(ctx, b)).To(Succeed())
	})
})

// as returns a client that impersonates a user with all rights.
func as(user string) client.Client {
	GinkgoHelper()
	own := rest.CopyConfig(config)
	own.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	c, err := client.New(own, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// policies creates the policies of admission.yaml for the nodes and the gate of a namespace.
func policies(ctx SpecContext, namespace string) {
	GinkgoHelper()
	objects := objectsOf(readSample("admission.yaml", `"latency"`, `"`+gateLabel+`"`, `"gated"`, `"`+namespace+`"`, "upgrade-fast-nodes", namespace+"-plan", "fast-nodes", namespace, "fast-workers", namespace,
		"name: tailgate-", "name: "+namespace+"-", "policyName: tailgate-", "policyName: "+namespace+"-"))
	Expect(objects).To(HaveLen(6))
	for _, o := range objects {
		_, selects, err := unstructured.NestedMap(o.Object, "spec", "matchResources", "objectSelector")
		Expect(err).NotTo(HaveOccurred())
		Expect(selects).To(BeFalse(), "whoever may change an object could take off the label of a selector")
	}
	create(ctx, objects...)
}

var _ = Describe("The admission policies", func() {
	const manager = "system:serviceaccount:tailgate-system:manager"
	patch := func(ctx context.Context, c client.Client, o client.Object, data string, options ...client.PatchOption) error {
		return c.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(data)), options...)
	}
	It("keep nodes cordoned, tainted and labelled while they are not verified, for all but the gate", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		w := &World{Namespace: namespace}
		build := MakeNode(namespace + "-a")
		build.Labels[gateLabel] = namespace
		node := w.AddNode(ctx, build)
		policies(ctx, namespace)
		admin, gate := as("admin"), as(manager)
		set := func(c client.Client, status corev1.ConditionStatus) error {
			data := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q}]}}`, v1alpha1.NodeConditionVerified, status)
			return c.Status().Patch(ctx, node.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(data)))
		}
		Expect(set(gate, corev1.ConditionFalse)).To(Succeed())
		const (
			cordon, uncordon = `{"spec":{"unschedulable":true}}`, `{"spec":{"unschedulable":null}}`
			untaint          = `{"spec":{"taints":null}}`
			labelled         = `{"metadata":{"labels":{"tailgate.dev/latency-verified":"true"}}}`
		)
		hold := fmt.Sprintf(`{"metadata":{"labels":{"tailgate.dev/latency-verified":"false"}},"spec":{"taints":[{"key":%q,"effect":"NoSchedule"}]}}`, v1alpha1.NodeTaintUnverified)
		Expect(patch(ctx, gate, node, hold)).To(Succeed())
		Expect(patch(ctx, admin, node, cordon)).To(Succeed())
		By("refused, once the API server knows the policy")
		Eventually(func() bool { return apierrors.IsForbidden(patch(ctx, admin, node, uncordon, client.DryRunAll)) }).Should(BeTrue())
		Expect(patch(ctx, admin, node, uncordon)).To(MatchError(ContainSubstring("latency of node " + node.Name + " is not verified, so it stays cordoned")))
		// kubectl uncordon prints the error and exits with 0.
		_, out := kubectl(ctx, adminKubeconfig(namespace), "uncordon", node.Name)
		Expect(out).To(ContainSubstring("is not verified, so it stays cordoned"))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		Expect(node.Spec.Unschedulable).To(BeTrue())
		Expect(patch(ctx, admin, node, untaint)).To(MatchError(ContainSubstring("taint tailgate.dev/latency-unverified stays")))
		Expect(patch(ctx, admin, node, labelled)).To(MatchError(ContainSubstring("label tailgate.dev/latency-verified stays")))
		Expect(patch(ctx, admin, node, `{"metadata":{"labels":{"tailgate.dev/latency-verified":null}}}`)).To(MatchError(ContainSubstring("label tailgate.dev/latency-verified stays")))
		Expect(set(admin, corev1.ConditionTrue)).To(MatchError(ContainSubstring("is the gate's to write")))
		Expect(patch(ctx, admin, node, `{"metadata":{"labels":{"`+gateLabel+`":null}},"spec":{"unschedulable":null}}`)).To(MatchError(ContainSubstring("stays cordoned")))
		By("two writes, of which the first takes off the label of the gate")
		unselect := `{"metadata":{"labels":{"` + gateLabel + `":null}}}`
		Expect(patch(ctx, admin, node, unselect)).To(MatchError(ContainSubstring("the label by which its gate selects it stays")))
		Expect(patch(ctx, as("system:node:"+node.Name), node, unselect)).To(MatchError(ContainSubstring("the label by which its gate selects it stays")))
		Expect(admin.Status().Patch(ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(unselect)))).To(MatchError(ContainSubstring("selects it stays")))
		By("the same on a node that lost the label before the policy came")
		stray := w.AddNode(ctx, MakeNode(namespace+"-stray"))
		Expect(gate.Status().Patch(ctx, stray.DeepCopy(), client.RawPatch(types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":"False"}]}}`, v1alpha1.NodeConditionVerified)))).To(Succeed())
		Expect(patch(ctx, gate, stray, hold)).To(Succeed())
		Expect(patch(ctx, admin, stray, cordon)).To(Succeed())
		Expect(patch(ctx, admin, stray, uncordon)).To(MatchError(ContainSubstring("stays cordoned")))
		Expect(patch(ctx, admin, stray, untaint)).To(MatchError(ContainSubstring("taint tailgate.dev/latency-unverified stays")))
		By("allowed all the time")
		Expect(patch(ctx, admin, node, `{"metadata":{"labels":{"other":"label"}}}`)).To(Succeed())
		other := fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":"NoSchedule"},{"key":"other","effect":"NoSchedule"}]}}`, v1alpha1.NodeTaintUnverified)
		Expect(patch(ctx, admin, node, other)).To(Succeed())
		heartbeat := `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"again"}]}}`
		Expect(admin.Status().Patch(ctx, node.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(heartbeat)))).To(Succeed())
		By("what the gate does when the node has passed")
		Expect(set(gate, corev1.ConditionTrue)).To(Succeed())
		Expect(patch(ctx, gate, node, `{"metadata":{"labels":{"tailgate.dev/latency-verified":"true"}},"spec":{"taints":[{"key":"other","effect":"NoSchedule"}]}}`)).To(Succeed())
		Expect(patch(ctx, admin, node, uncordon)).To(Succeed())
		Expect(patch(ctx, admin, node, unselect, client.DryRunAll)).To(Succeed())
		By("a node that registers as verified")
		liar := MakeNode(namespace + "-liar").Obj()
		liar.Labels[gateLabel], liar.Labels[v1alpha1.NodeLabelVerified] = namespace, "true"
		Expect(admin.Create(ctx, liar)).To(MatchError(ContainSubstring("label tailgate.dev/latency-verified stays")))
		By("a node that registers as not verified: lets a kubelet register its node with the label false")
		honest := MakeNode(namespace + "-honest").Obj()
		honest.Labels[gateLabel], honest.Labels[v1alpha1.NodeLabelVerified] = namespace, "false"
		Expect(admin.Create(ctx, honest, client.DryRunAll)).To(Succeed())
		By("a node of no gate")
		plain := w.AddNode(ctx, MakeNode(namespace+"-b"))
		Expect(patch(ctx, admin, plain, cordon)).To(Succeed())
		Expect(patch(ctx, admin, plain, uncordon)).To(Succeed())
		By("a node of the gate that it has not seen, or let go")
		fresh := MakeNode(namespace + "-c")
		fresh.Labels[gateLabel] = namespace
		seen := w.AddNode(ctx, fresh)
		Expect(patch(ctx, admin, seen, cordon)).To(Succeed())
		Expect(patch(ctx, admin, seen, uncordon)).To(Succeed())
		Expect(patch(ctx, admin, seen, unselect, client.DryRunAll)).To(Succeed())
		By("a node that registered with label and taint, which no gate has seen")
		early := MakeNode(namespace + "-early")
		early.Labels[gateLabel] = namespace
		early.Spec.Taints = []corev1.Taint{{Key: v1alpha1.NodeTaintUnverified, Effect: corev1.TaintEffectNoSchedule}}
		registered := w.AddNode(ctx, early)
		Expect(patch(ctx, admin, registered, untaint)).To(MatchError(ContainSubstring("taint tailgate.dev/latency-unverified stays")))
		Expect(patch(ctx, admin, registered, unselect)).To(MatchError(ContainSubstring("selects it stays")))
	})

	It("let only the gate make, relabel and change hold pods", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		policies(ctx, namespace)
		admin, gate := as("admin"), as(manager)
		pod := func(name string, labels map[string]string) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "hold", Image: "bench"}}}}
		}
		held := map[string]string{v1alpha1.LabelHold: "true", v1alpha1.LabelGate: namespace}
		refused := MatchError(ContainSubstring("are the gate's to create and to change"))
		Eventually(func() error { return admin.Create(ctx, pod("forged", held), client.DryRunAll) }).Should(refused)
		Expect(admin.Create(ctx, pod("forged", map[string]string{v1alpha1.LabelHold: "false"}))).To(refused, "with any value")
		Expect(as("system:serviceaccount:kube-system:replicaset-controller").Create(ctx, pod("forged", held))).To(refused, "by way of a workload")
		By("a pod of the user, which gets the label later")
		plain := pod("plain", nil)
		Expect(admin.Create(ctx, plain)).To(Succeed())
		Expect(patch(ctx, admin, plain, `{"metadata":{"labels":{"tailgate.dev/hold":"true"}}}`)).To(refused)
		Expect(patch(ctx, admin, plain, `{"metadata":{"labels":{"other":"label"}}}`)).To(Succeed())
		By("the gate's own")
		own := pod("own", maps.Clone(held))
		own.Labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedByTailgate
		pods.Restrict(&own.Spec)
		Expect(gate.Create(ctx, own)).To(Succeed())
		for _, change := range []string{
			`{"metadata":{"labels":{"tailgate.dev/hold":null}}}`, `{"metadata":{"labels":{"tailgate.dev/hold":"false"}}}`, `{"metadata":{"labels":{"tailgate.dev/gate":"other"}}}`,
			`{"metadata":{"labels":null}}`,
		} {
			Expect(patch(ctx, admin, own, change)).To(refused, change)
		}
		evil := own.DeepCopy()
		evil.Spec.Containers[0].Image = "evil"
		Expect(admin.Update(ctx, evil)).To(refused)
		debug := own.DeepCopy()
		debug.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "evil"}}}
		Expect(admin.SubResource("ephemeralcontainers").Update(ctx, debug)).To(refused)
		ready := `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
		Expect(admin.Status().Patch(ctx, own.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(ready)))).To(Succeed(), "as its kubelet does")
		Expect(patch(ctx, admin, own, `{"metadata":{"annotations":{"any":"note"}}}`)).To(Succeed())
		Expect(patch(ctx, gate, own, `{"metadata":{"labels":{"tailgate.dev/latency-verified":"false"}}}`)).To(Succeed())
		Expect(admin.Delete(ctx, own)).To(Succeed(), "the gate makes it again")
	})

	It("hold back a verified node in the write that reports a change, while no manager runs", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		w := &World{Namespace: namespace}
		build := MakeNode(namespace + "-a")
		build.Labels[gateLabel] = namespace
		node := w.AddNode(ctx, build)
		policies(ctx, namespace)
		objects := objectsOf(readSample("hold-on-change.yaml",
			"name: tailgate-", "name: "+namespace+"-", "policyName: tailgate-", "policyName: "+namespace+"-"))
		Expect(objects).To(HaveLen(4))
		create(ctx, objects...)
		kubelet, lifecycle, gate := as("system:node:"+node.Name), as("system:serviceaccount:kube-system:node-controller"), as(manager)
		status := func(c client.Client, data string) {
			GinkgoHelper()
			Expect(c.Status().Patch(ctx, node.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(data)))).To(Succeed())
		}
		verify := func() {
			GinkgoHelper()
			status(gate, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True","reason":"Passed"}]}}`, v1alpha1.NodeConditionVerified))
			Expect(patch(ctx, gate, node, `{"metadata":{"labels":{"tailgate.dev/latency-verified":"true"}},"spec":{"taints":null}}`)).To(Succeed())
		}
		said := func() string {
			GinkgoHelper()
			return strings.TrimPrefix(w.Says(ctx, node.Name), ": ")
		}
		boots := 0
		boot := func() string {
			GinkgoHelper()
			boots++
			status(kubelet, fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":"%d"},"conditions":[{"type":"Ready","status":"True"}]}}`, boots))
			return said()
		}
		By("boots, once the API server knows the policies")
		Eventually(func() string { verify(); return boot() }).WithPolling(100 * time.Millisecond).Should(Equal("False false -"))
		By("what Kubernetes writes when the node is back")
		Eventually(func() string {
			Expect(patch(ctx, lifecycle, node, `{"spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]}}`)).To(Succeed())
			Expect(patch(ctx, lifecycle, node, `{"spec":{"taints":null}}`)).To(Succeed())
			return said()
		}).WithPolling(100 * time.Millisecond).Should(Equal("False false NoSchedule"))
		verify()
		Expect(said()).To(Equal("True true -"))
		Expect(boot()).To(Equal("False false -"), "a taint cannot be written with a status")
		Expect(patch(ctx, lifecycle, node, `{"metadata":{"annotations":{"any":"write"}}}`)).To(Succeed())
		Expect(said()).To(Equal("False false NoSchedule"), "and comes with the next write of anybody")
		By("changes of everything that a kubelet tells, each by itself")
		for _, field := range []string{"kernelVersion", "kubeletVersion", "containerRuntimeVersion", "osImage"} {
			verify()
			status(kubelet, fmt.Sprintf(`{"status":{"nodeInfo":{%q:"another"}}}`, field))
			Expect(said()).To(Equal("False false -"), field)
		}
		By("what changes nothing")
		verify()
		status(kubelet, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"again"}]}}`)
		Expect(said()).To(Equal("True true -"))
		By("a verified node that was away")
		verify()
		status(gate, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"Unknown","reason":"NodeNotReady"}]}}`, v1alpha1.NodeConditionVerified))
		for _, taints := range []string{`[{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}]`, "null"} {
			Expect(patch(ctx, lifecycle, node, `{"spec":{"taints":`+taints+`}}`)).To(Succeed())
			Expect(said()).To(Equal("Unknown true -"), "it keeps its pods if it returns unchanged")
		}
		Expect(boot()).To(Equal("False false -"), "it returns changed")
		verify()
		By("what the gate writes, which has the last word")
		status(gate, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"False"}]}}`, v1alpha1.NodeConditionVerified))
		Expect(patch(ctx, gate, node, `{"metadata":{"labels":{"tailgate.dev/latency-verified":"true"}}}`)).To(Succeed())
		Expect(said()).To(Equal("False true -"))
	})

	It("keep rollouts paused while the gate has not passed", func(ctx SpecContext) {
		installTools()
		namespace := newNamespace(ctx)
		policies(ctx, namespace)
		pool := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": map[string]any{"name": namespace, "labels": map[string]any{gateLabel: namespace}},
			"spec": map[string]any{"paused": true},
		}}
		upgrade := objectsOf(readSample("system-upgrade-controller.yaml", "namespace: system-upgrade", "namespace: "+namespace, "concurrency: 1", "concurrency: 0"))[0]
		upgrade.SetName(namespace + "-plan")
		other := pool.DeepCopy()
		other.SetName(namespace + "-other")
		create(ctx, pool, other, upgrade)
		admin := as("admin")
		unpause := func() error { return patch(ctx, admin, pool, `{"spec":{"paused":false}}`, client.DryRunAll) }
		start := func() error { return patch(ctx, admin, upgrade, `{"spec":{"concurrency":1}}`, client.DryRunAll) }
		refused := func(f func() error) func() bool { return func() bool { return apierrors.IsForbidden(f()) } }
		By("a gate that does not exist")
		Eventually(unpause).Should(MatchError(ContainSubstring("no params found")))
		Expect(patch(ctx, admin, other, `{"spec":{"paused":false}}`, client.DryRunAll)).To(Succeed())
		By("a gate that has not passed")
		g := gateSaying(ctx, namespace, metav1.ConditionFalse, v1alpha1.ReasonNodesFailed, oneFailed)
		Eventually(unpause).Should(MatchError(ContainSubstring("LatencyGate " + namespace + " has not passed")))
		Eventually(refused(start)).Should(BeTrue())
		Expect(patch(ctx, admin, upgrade, `{"spec":{"version":"v1.36.3"}}`)).To(Succeed())
		By("two writes, of which the first takes off all labels")
		Expect(patch(ctx, admin, pool, `{"metadata":{"labels":null}}`)).To(Succeed())
		Expect(unpause()).To(MatchError(ContainSubstring("LatencyGate " + namespace + " has not passed")))
		By("a gate that has passed, but not as it is now")
		say(ctx, g, metav1.ConditionTrue, v1alpha1.ReasonAllVerified, allVerified)
		Eventually(unpause).Should(Succeed())
		g.Spec.MaxParallel = new(intstr.FromInt32(2))
		Expect(k8s.Update(ctx, g)).To(Succeed())
		Eventually(unpause).Should(MatchError(ContainSubstring("LatencyGate " + namespace + " has not passed")))
		By("a gate that has passed")
		say(ctx, g, metav1.ConditionTrue, v1alpha1.ReasonAllVerified, allVerified)
		Eventually(unpause).Should(Succeed())
		Eventually(start).Should(Succeed())
		Expect(patch(ctx, admin, pool, `{"spec":{"paused":false}}`)).To(Succeed())
		say(ctx, g, metav1.ConditionUnknown, v1alpha1.ReasonNotAllVerified, oneMeasuring)
		By("pausing, which is always allowed")
		Expect(patch(ctx, admin, pool, `{"spec":{"paused":true}}`)).To(Succeed())
		Eventually(refused(unpause)).Should(BeTrue())
	})
})
