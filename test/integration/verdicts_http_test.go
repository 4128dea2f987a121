package integration

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/verdicthttp"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

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
		b := MakeBenchmark(namespace, "b").On("a", "b").Rounds(6).Rule(Under("8us")).Obj()
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
