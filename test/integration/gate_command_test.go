package integration

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/cli"
)

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
