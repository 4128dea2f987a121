package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/verdicthttp"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/mounted"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// These specs run real commands: the manager, Kubernetes' workload controllers, and those of Argo Rollouts, Flagger, Prometheus and
// cert-manager, each with the manifests of the documentation. Only kubelets, agents and the manager's Service are simulated: the
// manifests contain the address of the manager instead of the Service. `make peers` runs these specs, because building the commands
// takes some minutes.

const servingName = "metrics.tailgate-system.svc"

// execute starts a command and kills it at the end of the spec.
func execute(name string, env []string, path string, args ...string) *gexec.Session {
	GinkgoHelper()
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	out := gexec.NewPrefixedWriter("["+name+"] ", GinkgoWriter)
	session, err := gexec.Start(cmd, out, out)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Eventually(session.Kill()).Should(gexec.Exit()) })
	return session
}

// executePeer runs a command of another project until the spec ends.
func executePeer(ctx SpecContext, name string, env []string, args ...string) {
	GinkgoHelper()
	path, err := localcluster.Peer(ctx, os.Stderr, name)
	Expect(err).NotTo(HaveOccurred())
	execute(name, env, path, args...)
}

// installPeer installs the CustomResourceDefinitions of a peer from the module that it is built from.
func installPeer(ctx SpecContext, name, module string, path ...string) {
	GinkgoHelper()
	source, err := localcluster.PeerSource(ctx, name, module)
	Expect(err).NotTo(HaveOccurred())
	installKinds([]string{filepath.Join(append([]string{source}, path...)...)})
}

// mountCertificate writes a folder with a certificate for the manager, like a mounted Secret, and a folder with its CA.
func mountCertificate() (serving, ca string) {
	GinkgoHelper()
	chain, key, err := cert.GenerateSelfSignedCertKeyWithFixtures(servingName, []net.IP{net.IPv4(127, 0, 0, 1)}, nil, "")
	Expect(err).NotTo(HaveOccurred())
	_, issuer := pem.Decode(chain)
	serving, ca = GinkgoT().TempDir(), GinkgoT().TempDir()
	Expect(mounted.Write(serving, map[string][]byte{corev1.TLSCertKey: chain[:len(chain)-len(issuer)], corev1.TLSPrivateKeyKey: key})).To(Succeed())
	Expect(mounted.Write(ca, map[string][]byte{"ca.crt": issuer})).To(Succeed())
	return serving, ca
}

// Execute runs the manager's command with a serving certificate until the spec ends, and returns its address. The API server
// reads the logs of pods from a simulated kubelet.
func (w *World) Execute(certificate string) (address string, manager *gexec.Session) {
	GinkgoHelper()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		path := strings.Split(r.URL.Path, "/") // /containerLogs/NAMESPACE/POD/CONTAINER
		log, err := w.Kubelet.Logs(r.Context(), types.NamespacedName{Namespace: path[2], Name: path[3]}, false)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusNotFound)
			return
		}
		_, _ = io.Copy(rw, log)
	}))
	DeferCleanup(kubelet.Close)
	for _, name := range []string{w.A, w.B} {
		w.ChangeNodeStatus(context.Background(), name, func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
			n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(kubelet.Listener.Addr().(*net.TCPAddr).Port)
		})
	}
	path, err := gexec.Build("github.com/tailgate-dev/tailgate/cmd/manager")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(gexec.CleanupBuildArtifacts)
	kubeconfig := writeKubeconfig("tailgate-system", managerConfig.BearerToken)
	address = freeAddress()
	manager = execute("manager", []string{"KUBECONFIG=" + kubeconfig}, path, "--bench-image=bench:test", "--bench-image-pull-policy=Never",
		"--leader-elect=false", "--health-probe-bind-address=0", "--metrics-bind-address="+address, "--serving-cert-dir="+certificate)
	Eventually(func() error { _, _, err := call(http.MethodGet, "https://"+address, ""); return err }).Should(Succeed())
	return address, manager
}

// expectVerdict waits until the gate has a verdict. From then on, every request for the verdict returns it.
func (w *World) expectVerdict(ctx SpecContext, says string) {
	GinkgoHelper()
	g := &v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	Eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix(says))
}

// fail makes the gate fail by an upgrade of node A to a slow kernel.
func (w *World) fail(ctx SpecContext, kernel string) {
	GinkgoHelper()
	w.SlowNode(w.A)
	w.Upgrade(ctx, w.A, kernel)
	w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
	w.expectVerdict(ctx, "False NodesFailed")
}

// recover makes the gate pass by another measurement of node A, which is no longer slow.
func (w *World) recover(ctx SpecContext) {
	GinkgoHelper()
	w.Kubelet.Agents(nil)
	w.AskVerify(ctx, w.A)
	w.Expect(ctx, w.A, IsVerified)
	w.expectVerdict(ctx, "True AllVerified")
}

// passingGate returns a world with a gate that has passed, and the address of its manager.
func passingGate(ctx SpecContext, certificate string) (w *World, address string, manager *gexec.Session) {
	GinkgoHelper()
	w = NewGateWorld(ctx)
	address, manager = w.Execute(certificate)
	w.Gate(ctx, MakeGate(w.Namespace))
	w.Expect(ctx, w.A, IsVerified)
	w.Expect(ctx, w.B, IsVerified)
	w.expectVerdict(ctx, "True AllVerified: all 2 nodes")
	return w, address, manager
}

// workloads creates a namespace in which Deployments and ReplicaSets have pods, which are ready at once, and Secrets have tokens.
func workloads(ctx SpecContext) (namespace string) {
	GinkgoHelper()
	controllers := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-controller-manager")
	Expect(controllers).To(BeAnExistingFile(), "`go run ./test/cmd/localcluster assets` prints a folder that has it")
	namespace = newNamespace(ctx)
	execute("kube-controller-manager", nil, controllers, "--kubeconfig="+adminKubeconfig(namespace), "--leader-elect=false", "--secure-port=0",
		"--controllers=deployment-controller,replicaset-controller,serviceaccount-token-controller",
		"--service-account-private-key-file="+filepath.Join(environment.ControlPlane.GetAPIServer().CertDir, "sa-signer.key"))
	DeferCleanup(func(ctx SpecContext) {
		Expect(k8s.DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace(namespace))).To(Succeed())
		Expect(k8s.DeleteAllOf(ctx, &appsv1.ReplicaSet{}, client.InNamespace(namespace))).To(Succeed())
	})
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	DeferCleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for ; own.Err() == nil; time.Sleep(100 * time.Millisecond) {
			// A pod that has changed meanwhile is handled in the next turn.
			if err := readyPods(own, namespace); err != nil {
				fmt.Fprintln(GinkgoWriter, "pods:", err)
			}
		}
	}()
	return namespace
}

// readyPods makes the pods of a namespace ready, and removes those that are being deleted.
func readyPods(ctx context.Context, namespace string) error {
	list := &corev1.PodList{}
	if err := k8s.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range list.Items {
		pod := &list.Items[i]
		var err error
		switch {
		case !pod.DeletionTimestamp.IsZero():
			err = client.IgnoreNotFound(k8s.Delete(ctx, pod, client.GracePeriodSeconds(0)))
		case pod.Status.Phase == corev1.PodPending:
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
			err = k8s.Status().Update(ctx, pod)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readerToken creates the objects of reader.yaml for a gate, and returns the token of its Secret.
func readerToken(ctx SpecContext, namespace, gate string) string {
	GinkgoHelper()
	create(ctx, objectsOf(readSample("reader.yaml", "namespace: default", "namespace: "+namespace, "fast-nodes", gate))...)
	secret := &corev1.Secret{}
	Eventually(func() []byte {
		Expect(k8s.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "latency-reader"}, secret)).To(Succeed())
		return secret.Data[corev1.ServiceAccountTokenKey]
	}).ShouldNot(BeEmpty())
	return string(secret.Data[corev1.ServiceAccountTokenKey])
}

// field returns a function that returns the current value of an object's field.
func field(ctx context.Context, o *unstructured.Unstructured, path ...string) func() any {
	return func() any {
		GinkgoHelper()
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		value, _, err := unstructured.NestedFieldNoCopy(o.Object, path...)
		Expect(err).NotTo(HaveOccurred())
		return value
	}
}

// images returns a function that returns the images of the running pods of a namespace, with repetitions.
func images(ctx context.Context, namespace string) func() []string {
	return func() (all []string) {
		GinkgoHelper()
		list := &corev1.PodList{}
		Expect(k8s.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		for _, pod := range list.Items {
			if pod.DeletionTimestamp.IsZero() && pod.Status.Phase == corev1.PodRunning {
				all = append(all, pod.Spec.Containers[0].Image)
			}
		}
		return all
	}
}

// release changes the image of a Deployment or Rollout.
func release(ctx context.Context, o client.Object, image string) {
	GinkgoHelper()
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, image)
	Expect(k8s.Patch(ctx, o, client.RawPatch(types.JSONPatchType, []byte(patch)))).To(Succeed())
}

// analysisRuns returns the phases of the AnalysisRuns in a namespace, and the number of those with two answers Pending to a
// measurement.
func analysisRuns(ctx context.Context, namespace string) (phases []string, waiting int) {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("argoproj.io/v1alpha1")
	list.SetKind("AnalysisRun")
	Expect(k8s.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	for _, run := range list.Items {
		var status struct {
			Status struct {
				Phase         string
				MetricResults []struct{ Measurements []struct{ Value string } }
			}
		}
		decode(&run, &status)
		phases = append(phases, status.Status.Phase)
		pending := 0
		for _, result := range status.Status.MetricResults {
			for _, m := range result.Measurements {
				if m.Value == `"Pending"` {
					pending++
				}
			}
		}
		if pending >= 2 {
			waiting++
		}
	}
	return phases, waiting
}

// prometheusConfig returns the objects of config/prometheus with the component config/serving-cert, by kind and name.
func prometheusConfig() map[string]*unstructured.Unstructured {
	GinkgoHelper()
	folder, err := filepath.Abs(filepath.Join("..", "..", "config"))
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	relative, err := filepath.Rel(dir, folder)
	Expect(err).NotTo(HaveOccurred())
	content := fmt.Sprintf("components: [%s/serving-cert]\nresources: [%s/prometheus]\n", relative, relative)
	Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(content), 0o600)).To(Succeed())
	build := exec.Command("go", "tool", "-modfile=hack/tools/go.mod", "kustomize", "build", dir)
	build.Dir, build.Stderr = filepath.Dir(folder), GinkgoWriter
	out, err := build.Output()
	Expect(err).NotTo(HaveOccurred())
	all := map[string]*unstructured.Unstructured{}
	for _, o := range objectsOf(out) {
		all[o.GetKind()+" "+o.GetName()] = o
	}
	return all
}

// docsCertificate returns the Certificate in docs/security.md.
func docsCertificate() *unstructured.Unstructured {
	GinkgoHelper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	Expect(err).NotTo(HaveOccurred())
	_, rest, found := strings.Cut(string(page), "```yaml\napiVersion: cert-manager.io/v1\n")
	Expect(found).To(BeTrue())
	block, _, _ := strings.Cut(rest, "```")
	return objectsOf([]byte("apiVersion: cert-manager.io/v1\n" + block))[0]
}

var _ = Describe("A real peer,", Label("peers"), func() {
	BeforeEach(func() {
		if !strings.Contains(GinkgoLabelFilter(), "peers") {
			Skip("make peers runs it, with --label-filter=peers")
		}
	})

	It("Argo Rollouts, stops a Rollout on Fail, holds it without a verdict, and continues after Pass", func(ctx SpecContext) {
		installPeer(ctx, "argo-rollouts", "github.com/argoproj/argo-rollouts", "manifests", "crds")
		serving, ca := mountCertificate()
		w, address, _ := passingGate(ctx, serving)
		namespace := workloads(ctx)
		readerToken(ctx, namespace, w.Namespace)
		create(ctx, objectsOf(readSample("argo-rollouts.yaml", "namespace: default", "namespace: "+namespace, "fast-nodes", w.Namespace,
			servingName+":8443", address, "insecure: true", "insecure: false", "interval: 1m", "interval: 5s"))...)
		rollout := objectsOf([]byte(strings.ReplaceAll(`apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: trading, namespace: NAMESPACE}
spec:
  replicas: 2
  selector: {matchLabels: {app: trading}}
  template:
    metadata: {labels: {app: trading}}
    spec: {containers: [{name: trading, image: "trading:v1"}]}
  strategy:
    canary:
      steps:
      - setWeight: 50
      - analysis: {templates: [{templateName: latency}]}
`, "NAMESPACE", namespace)))[0]
		create(ctx, rollout)
		_, metricsPort, _ := net.SplitHostPort(freeAddress())
		_, healthPort, _ := net.SplitHostPort(freeAddress())
		executePeer(ctx, "argo-rollouts", []string{"SSL_CERT_DIR=" + ca}, "--kubeconfig="+adminKubeconfig(namespace), "--namespaced",
			"--namespace="+namespace, "--leader-elect=false", "--metricsPort="+metricsPort, "--healthzPort="+healthPort)
		phase := field(ctx, rollout, "status", "phase")
		Eventually(phase).Should(Equal("Healthy"))
		Expect(images(ctx, namespace)()).To(ConsistOf("trading:v1", "trading:v1"))

		By("Fail")
		w.fail(ctx, "6.2.0")
		release(ctx, rollout, "trading:v2")
		Eventually(phase).Should(Equal("Degraded"))
		Expect(field(ctx, rollout, "status", "message")()).To(ContainSubstring(`assessed Failed due to failed (1) > failureLimit (0)`))
		runs, _ := analysisRuns(ctx, namespace)
		Expect(runs).To(ConsistOf("Failed"))
		Eventually(images(ctx, namespace)).Should(ConsistOf("trading:v1", "trading:v1"))

		By("Pass, and what kubectl argo rollouts retry does")
		w.recover(ctx)
		Expect(k8s.Status().Patch(ctx, rollout, client.RawPatch(types.MergePatchType, []byte(`{"status":{"abort":false}}`)))).To(Succeed())
		Eventually(phase).Should(Equal("Healthy"))
		Eventually(images(ctx, namespace)).Should(ConsistOf("trading:v2", "trading:v2"))
		runs, _ = analysisRuns(ctx, namespace)
		Expect(runs).To(ConsistOf("Failed", "Successful"))

		By("a node that is being measured: no verdict")
		w.Kubelet.Die(w.A)
		w.Kubelet.Agents(nil)
		w.Upgrade(ctx, w.A, "6.3.0")
		w.Expect(ctx, w.A, "Measuring Measuring"+HeldBack)
		release(ctx, rollout, "trading:v3")
		Eventually(func() int { _, waiting := analysisRuns(ctx, namespace); return waiting }).Should(Equal(1), "it asks again")
		Expect(images(ctx, namespace)()).To(ConsistOf("trading:v2", "trading:v3"))
		Expect(phase()).To(Equal("Progressing"))
		By("which then passes")
		w.Kubelet.Die("")
		Eventually(phase).Should(Equal("Healthy"))
		Eventually(images(ctx, namespace)).Should(ConsistOf("trading:v3", "trading:v3"))
		runs, _ = analysisRuns(ctx, namespace)
		Expect(runs).To(ConsistOf("Failed", "Successful", "Successful"))
	})

	It("Flagger, halts a Canary before and after its analysis on Fail, and continues after Pass", func(ctx SpecContext) {
		installPeer(ctx, "flagger", "github.com/fluxcd/flagger", "artifacts", "flagger", "crd.yaml")
		serving, ca := mountCertificate()
		w, address, _ := passingGate(ctx, serving)
		namespace := workloads(ctx)
		token := readerToken(ctx, namespace, w.Namespace)
		labels := map[string]string{"app": "trading"}
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "trading"},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "trading", Image: "trading:v1"}}},
				},
			},
		}
		Expect(k8s.Create(ctx, deployment)).To(Succeed())
		canary := objectsOf(readSample("flagger.yaml", "namespace: default", "namespace: "+namespace, "fast-nodes", w.Namespace, "TOKEN@", token+"@",
			servingName+":8443", address, "disableTLS: true", "", "interval: 1m", "interval: 10s", "iterations: 10", "iterations: 1000"))[0]
		create(ctx, canary)
		_, port, _ := net.SplitHostPort(freeAddress())
		executePeer(ctx, "flagger", []string{"SSL_CERT_DIR=" + ca}, "-kubeconfig="+adminKubeconfig(namespace), "-namespace="+namespace,
			"-mesh-provider=kubernetes", "-port="+port)
		phase := field(ctx, canary, "status", "phase")
		Eventually(phase).Should(Equal("Initialized"))
		Eventually(images(ctx, namespace)).Should(ConsistOf("trading:v1"), "the primary's")
		halted := func() int64 {
			GinkgoHelper()
			list := &corev1.EventList{}
			Expect(k8s.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
			var n int64
			for _, e := range list.Items {
				if strings.HasPrefix(e.Message, "Halt trading."+namespace+" advancement waiting for") {
					n++
				}
			}
			return n
		}

		By("Fail, before the analysis")
		w.fail(ctx, "6.2.0")
		release(ctx, deployment, "trading:v2")
		Eventually(phase).Should(Equal("Waiting"))
		Eventually(halted).Should(BeEquivalentTo(1))
		Consistently(phase).WithTimeout(25*time.Second).Should(Equal("Waiting"), "two intervals")
		By("Pass")
		w.recover(ctx)
		Eventually(phase).Should(Equal("Progressing"))
		By("Fail, after the analysis")
		w.fail(ctx, "6.3.0")
		// Flagger reads the number of iterations in each iteration, so the analysis does not end before the gate fails.
		Expect(k8s.Patch(ctx, canary, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"analysis":{"iterations":1}}}`)))).To(Succeed())
		Eventually(phase).Should(Equal("WaitingPromotion"))
		Eventually(halted).Should(BeEquivalentTo(2))
		Consistently(images(ctx, namespace)).WithTimeout(25*time.Second).Should(ConsistOf("trading:v1", "trading:v2"), "two intervals")
		By("Pass")
		w.recover(ctx)
		Eventually(phase).Should(Equal("Succeeded"))
		Eventually(images(ctx, namespace)).Should(ConsistOf("trading:v2"))
	})

	DescribeTable("scrapes with a token over verified TLS, and the alerts follow the gate:", func(ctx SpecContext, prometheus string) {
		serving, ca := mountCertificate()
		w, address, manager := passingGate(ctx, serving)
		dir := GinkgoT().TempDir()
		write := func(name string, content any) {
			GinkgoHelper()
			data, err := yaml.Marshal(content)
			Expect(err).NotTo(HaveOccurred())
			Expect(os.WriteFile(filepath.Join(dir, name), data, 0o600)).To(Succeed())
		}
		objects := prometheusConfig()
		binding := objects["ClusterRoleBinding tailgate-metrics-reader"]
		rule, _, err := unstructured.NestedMap(objects["PrometheusRule tailgate"].Object, "spec")
		Expect(err).NotTo(HaveOccurred())
		write("rules.yaml", rule)
		var monitor struct {
			Spec struct {
				Endpoints []struct {
					Scheme          string
					HonorLabels     bool
					BearerTokenFile string
					TLSConfig       struct {
						CA                 struct{ Secret struct{ Key string } }
						ServerName         string
						InsecureSkipVerify bool
					}
				}
			}
		}
		decode(objects["ServiceMonitor tailgate"], &monitor)
		endpoint := monitor.Spec.Endpoints[0]
		Expect(endpoint.BearerTokenFile).To(Equal("/var/run/secrets/kubernetes.io/serviceaccount/token"))
		write("prometheus.yaml", map[string]any{
			"global":     map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
			"rule_files": []string{"rules.yaml"},
			"scrape_configs": []any{map[string]any{
				"job_name": "tailgate", "scheme": endpoint.Scheme, "honor_labels": endpoint.HonorLabels,
				"authorization": map[string]any{"credentials_file": "token"},
				"tls_config": map[string]any{
					"ca_file": filepath.Join(ca, endpoint.TLSConfig.CA.Secret.Key), "server_name": endpoint.TLSConfig.ServerName,
					"insecure_skip_verify": endpoint.TLSConfig.InsecureSkipVerify,
				},
				"static_configs": []any{map[string]any{"targets": []string{address}}},
			}},
		})
		makeNamespace(ctx, "monitoring")
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "prometheus-k8s"}}
		Expect(k8s.Create(ctx, account)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(k8s.Delete(ctx, account)).To(Succeed()) })
		clientset, err := kubernetes.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		request, err := clientset.CoreV1().ServiceAccounts("monitoring").CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(dir, "token"), []byte(request.Status.Token), 0o600)).To(Succeed())
		listen := freeAddress()
		executePeer(ctx, prometheus, nil, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
			"--web.listen-address="+listen)
		ask := func(path string, into any) error {
			response, err := http.Get("http://" + listen + "/api/v1/" + path)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			return json.NewDecoder(response.Body).Decode(into)
		}
		target := func() string {
			var all struct {
				Data struct {
					ActiveTargets []struct{ Health, LastError string }
				}
			}
			if err := ask("targets", &all); err != nil || len(all.Data.ActiveTargets) == 0 {
				return fmt.Sprint("not ready: ", err)
			}
			return all.Data.ActiveTargets[0].Health + " " + all.Data.ActiveTargets[0].LastError
		}
		// alerts returns the alerts with their states, which kured requests, and whether they name the gate.
		alerts := func() (all []string, err error) {
			var active struct {
				Data struct {
					Alerts []struct {
						State  string
						Labels map[string]string
					}
				}
			}
			if err := ask("alerts", &active); err != nil {
				return nil, err
			}
			for _, a := range active.Data.Alerts {
				all = append(all, strings.TrimSpace(fmt.Sprint(a.Labels["alertname"], " ", a.State, " ", strings.Replace(a.Labels["gate"], w.Namespace, "gate", 1))))
			}
			return all, nil
		}

		By("a service account without the right")
		Eventually(target).Should(ContainSubstring("HTTP status 403 Forbidden"))
		Eventually(alerts).Should(ContainElement("TailgateGateNotPassed firing"))
		By("with the right, while the gate has passed")
		create(ctx, binding)
		Eventually(target).Should(Equal("up "))
		Eventually(alerts).ShouldNot(ContainElement(HavePrefix("TailgateGate")))
		By("Fail")
		w.fail(ctx, "6.2.0")
		Eventually(alerts).Should(ContainElements("TailgateGateFailed firing gate", "TailgateGateNotPassed firing gate"))
		By("Pass")
		w.recover(ctx)
		Eventually(alerts).ShouldNot(ContainElement(HavePrefix("TailgateGate")))
		By("no manager")
		Eventually(manager.Kill()).Should(gexec.Exit())
		Eventually(alerts).WithTimeout(5 * time.Minute).Should(ContainElements("TailgateGateNotPassed firing", "TailgateManagerAbsent firing"))
	},
		Entry("Prometheus 3", "prometheus"),
		Entry("Prometheus 2", "prometheus2"),
	)

	It("cert-manager, issues the certificate of the manager and rotates it while a client requests verdicts, and no request fails", func(ctx SpecContext) {
		installPeer(ctx, "cert-manager", "github.com/cert-manager/cert-manager", "deploy", "crds")
		issuers := newNamespace(ctx)
		create(ctx, objectsOf([]byte(strings.ReplaceAll(`apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: self-signed}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: latency-ca, namespace: NAMESPACE}
spec: {isCA: true, commonName: latency-ca, secretName: latency-ca, issuerRef: {name: self-signed, kind: ClusterIssuer}}
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: latency-ca}
spec: {ca: {secretName: latency-ca}}
`, "NAMESPACE", issuers)))...)
		certificate := docsCertificate()
		create(ctx, certificate)
		executePeer(ctx, "cert-manager", nil, "-kubeconfig="+adminKubeconfig(issuers), "-cluster-resource-namespace="+issuers)
		secret := &corev1.Secret{}
		issued := func() (*big.Int, error) {
			if err := k8s.Get(ctx, types.NamespacedName{Namespace: "tailgate-system", Name: "tailgate-serving-cert"}, secret); err != nil {
				return nil, err
			}
			pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
			if err != nil {
				return nil, err
			}
			return pair.Leaf.SerialNumber, nil
		}
		Eventually(issued).ShouldNot(BeNil())
		DeferCleanup(func(ctx SpecContext) { Expect(k8s.Delete(ctx, secret)).To(Succeed()) })
		serving := GinkgoT().TempDir()
		Expect(mounted.Write(serving, secret.Data)).To(Succeed())
		w, address, _ := passingGate(ctx, serving)
		token := NewReader(ctx, w.Namespace).Token

		roots := x509.NewCertPool()
		Expect(roots.AppendCertsFromPEM(secret.Data["ca.crt"])).To(BeTrue())
		// Each request has its own connection, and thus a handshake. A client may send ten requests a second.
		verifying := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: servingName},
		}}
		var asked, failed atomic.Int64
		var served atomic.Pointer[big.Int]
		ask := func() (status string, err error) {
			request, err := http.NewRequest(http.MethodPost, "https://"+address+verdicthttp.Path+"latencygates/"+w.Namespace, nil)
			if err != nil {
				return "", err
			}
			request.Header.Set("Authorization", "Bearer "+token)
			response, err := verifying.Do(request)
			if err != nil {
				return "", err
			}
			defer response.Body.Close()
			served.Store(response.TLS.PeerCertificates[0].SerialNumber)
			return response.Status, nil
		}
		Eventually(ask).WithPolling(200 * time.Millisecond).Should(Equal("200 OK"))
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		DeferCleanup(func() { stop(); <-done })
		go func() {
			defer close(done)
			for ; own.Err() == nil; time.Sleep(150 * time.Millisecond) {
				asked.Add(1)
				if status, err := ask(); err != nil || status != "200 OK" {
					failed.Add(1)
					fmt.Fprintln(GinkgoWriter, "verdict:", status, err)
				}
			}
		}()
		seen := map[string]bool{}
		for range 4 {
			now, err := issued()
			Expect(err).NotTo(HaveOccurred())
			Expect(mounted.Write(serving, secret.Data)).To(Succeed())
			Eventually(served.Load).Should(Equal(now), "the manager serves what cert-manager issued")
			seen[now.String()] = true
			before := asked.Load()
			Eventually(asked.Load).Should(BeNumerically(">", before+10))
			By("renewing as cmctl renew does")
			renew := fmt.Sprintf(`[{"op":"add","path":"/status/conditions/-","value":{"type":"Issuing","status":"True","reason":"ManuallyTriggered","message":"renew","lastTransitionTime":%q}}]`,
				time.Now().UTC().Format(time.RFC3339))
			Expect(k8s.Status().Patch(ctx, certificate, client.RawPatch(types.JSONPatchType, []byte(renew)))).To(Succeed())
			Eventually(issued).ShouldNot(Equal(now))
		}
		stop()
		<-done
		AddReportEntry("requests", fmt.Sprintf("%d requests, %d certificates", asked.Load(), len(seen)))
		Expect(seen).To(HaveLen(4))
		Expect(failed.Load()).To(BeZero(), "requests that failed, of %d", asked.Load())
		By("Fail, with a rotated certificate")
		w.fail(ctx, "6.2.0")
		Eventually(ask).WithPolling(200 * time.Millisecond).Should(Equal("412 Precondition Failed"))
		By("Pass")
		w.recover(ctx)
		Eventually(ask).WithPolling(200 * time.Millisecond).Should(Equal("200 OK"))
	})
})
