package integration

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// denial is the status code in a webhook's answer; 0: without a code, 1: no answer at all.
type denial int32

const silence denial = 1

// deny registers a webhook that denies the creation of objects of a resource in the world's namespace, and returns a function that
// removes it. With a role, it denies only the pods of that role.
func (w *World) deny(ctx SpecContext, group, name string, role string, answer denial) (remove func()) {
	GinkgoHelper()
	patience := int32(10)
	if answer == silence {
		patience = 1
	}
	return w.webhook(ctx, group, name, patience, func(asked context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		var object metav1.PartialObjectMetadata
		_ = json.Unmarshal(request.Object.Raw, &object)
		if role != "" && object.Labels[v1alpha1.LabelRole] != role {
			return &admissionv1.AdmissionResponse{Allowed: true}
		}
		if answer == silence {
			<-asked.Done()
			return nil
		}
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "of no good reason", Code: int32(answer)}}
	})
}

// webhook registers a webhook that answers the creation of objects of a resource in the world's namespace, and returns a function that
// removes it. If answer returns nil, the webhook itself answers with an error. The timeout is in seconds.
func (w *World) webhook(ctx SpecContext, group, resource string, timeout int32,
	answer func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse,
) (remove func()) {
	GinkgoHelper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(in.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(out, "no review", http.StatusBadRequest)
			return
		}
		if review.Response = answer(in.Context(), review.Request); review.Response == nil {
			http.Error(out, "the webhook is broken", http.StatusInternalServerError)
			return
		}
		review.Response.UID = review.Request.UID
		_ = json.NewEncoder(out).Encode(review)
	}))
	DeferCleanup(server.Close)
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-denies-" + resource},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "policy.tailgate.test", AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: &timeout,
			SideEffects:   new(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy: new(admissionregistrationv1.Fail),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
			}},
		}},
	}
	Expect(k8s.Create(ctx, hook)).To(Succeed())
	remove = func() {
		GinkgoHelper()
		Expect(client.IgnoreNotFound(k8s.Delete(context.WithoutCancel(ctx), hook))).To(Succeed())
	}
	DeferCleanup(remove)
	return remove
}

// effective waits until the API server rejects pods of a role, which takes a moment.
func (w *World) effective(ctx SpecContext, role string) {
	GinkgoHelper()
	Eventually(w.probe(ctx, role)).ShouldNot(Succeed())
}

// probe returns a function that checks by a dry run whether the API server would create a pod of a role.
func (w *World) probe(ctx SpecContext, role string) func() error {
	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, GenerateName: "probe-", Labels: map[string]string{v1alpha1.LabelRole: role}},
		Spec:       corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "probe", Image: "probe:test", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}},
	}
	return func() error { return k8s.Create(ctx, probe.DeepCopy(), client.DryRunAll) }
}

var _ = Describe("A pod that the API server refuses", func() {
	DescribeTable("ends the attempt with the API server's words,",
		func(ctx SpecContext, words string, refuse func(SpecContext, *World)) {
			w := NewWorld(ctx)
			w.Settings.AllowHostNetwork = true
			refuse(ctx, w)
			w.effective(ctx, v1alpha1.RoleServer)
			w.Clock.Stop()
			w.Start()
			b := MakeBenchmark(w.Namespace, "x").On(w.A, w.B)
			b.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkHost}
			created := w.Create(ctx, b)
			ExpectSucceeded(ctx, created, "^Unknown Retrying: .*PodRefused.*attempt 1 of 3.*"+words+".*namespace "+w.Namespace)
			Expect(Attempts(ctx, created)).To(Equal([]string{"x-r1 a1 PodRefused"}))
			Expect(Get(ctx, created).Status.Active).To(BeNil())
			w.Advance(ctx, 6*time.Second, created)
			Eventually(func() []string { return Attempts(ctx, created) }).Should(HaveLen(2))
			w.Advance(ctx, 11*time.Second, created)
			ExpectSucceeded(ctx, created, "^False Failed: .*PodRefused. at attempt 3")
			Expect(w.Kubelet.Created()).To(BeEmpty())
		},
		Entry("denied by a webhook without a code", "of no good reason", func(ctx SpecContext, w *World) { w.deny(ctx, "", "pods", "", 0) }),
		Entry("denied by a webhook with 403", "of no good reason", func(ctx SpecContext, w *World) { w.deny(ctx, "", "pods", "", 403) }),
		Entry("denied by a webhook with 422", "of no good reason", func(ctx SpecContext, w *World) { w.deny(ctx, "", "pods", "", 422) }),
		Entry("beyond a quota", "exceeded quota", func(ctx SpecContext, w *World) {
			quota := &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "full"},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
			}
			Expect(k8s.Create(ctx, quota)).To(Succeed())
			// There is no quota controller.
			quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}
			Expect(k8s.Status().Update(ctx, quota)).To(Succeed())
		}),
		Entry("larger than a LimitRange", "maximum cpu usage per Container", func(ctx SpecContext, w *World) {
			Expect(k8s.Create(ctx, &corev1.LimitRange{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "small"},
				Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
					Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
				}}},
			})).To(Succeed())
		}),
		Entry("below the Pod Security Standard of its namespace", "violates PodSecurity", func(ctx SpecContext, w *World) {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
			Expect(k8s.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}, patch)).To(Succeed())
		}),
	)

	DescribeTable("for now is created again, and gives the nodes back in the end,",
		func(ctx SpecContext, words string, answer denial) {
			w := NewWorld(ctx)
			remove := w.deny(ctx, "", "pods", "", answer)
			w.effective(ctx, v1alpha1.RoleServer)
			w.Clock.Stop()
			w.Start()
			b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
			ExpectSucceeded(ctx, b, "^Unknown PodRefused: .*"+words)
			Expect(Get(ctx, b).Status.Active.Refused).NotTo(BeNil())
			w.Advance(ctx, 61*time.Second, b)
			ExpectSucceeded(ctx, b, "^Unknown Retrying: .*PodRefused.*"+words)
			Expect(Get(ctx, b).Status.Active).To(BeNil())
			w.Advance(ctx, 6*time.Second, b)
			ExpectSucceeded(ctx, b, "^Unknown PodRefused")

			remove()
			Eventually(w.probe(ctx, v1alpha1.RoleServer)).Should(Succeed())
			w.Advance(ctx, 3*time.Second, b)
			w.Kubelet.Measure(ctx, "x-r1", 2)
			ExpectSucceeded(ctx, b, "^True Complete")
		},
		Entry("by a webhook with 429", "of no good reason", denial(429)),
		Entry("by a webhook with 500", "of no good reason", denial(500)),
		Entry("by a webhook with 409", "of no good reason", denial(409)),
		Entry("by a webhook that does not answer", "failed calling webhook", silence),
	)

	It("for the client, too, gives the nodes back", func(ctx SpecContext) {
		w := NewWorld(ctx)
		w.deny(ctx, "", "pods", v1alpha1.RoleClient, 503)
		w.effective(ctx, v1alpha1.RoleClient)
		w.Clock.Stop()
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		w.Kubelet.Run(ctx, server)
		ExpectSucceeded(ctx, b, "^Unknown PodRefused: .*client.*of no good reason")
		w.Advance(ctx, 61*time.Second, b)
		w.Kubelet.Gone(ctx, server)
		ExpectSucceeded(ctx, b, "^Unknown Retrying: .*PodRefused.*client")
	})
})

var _ = Describe("A network that the API server refuses", func() {
	It("gives the nodes back, and says why", func(ctx SpecContext) {
		installMultus()
		w := NewWorld(ctx)
		for _, name := range []string{w.A, w.B} {
			node := &corev1.Node{}
			Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
			node.Status.Allocatable[VF] = resource.MustParse("1")
			Expect(k8s.Status().Update(ctx, node)).To(Succeed())
		}
		w.deny(ctx, foreign.GroupVersionKind.Group, "network-attachment-definitions", "", 0)
		Eventually(func() error {
			network := &unstructured.Unstructured{}
			network.SetGroupVersionKind(foreign.GroupVersionKind)
			network.SetNamespace(w.Namespace)
			network.SetGenerateName("probe-")
			return k8s.Create(ctx, network, client.DryRunAll)
		}).Should(MatchError(ContainSubstring("of no good reason")))
		w.Clock.Stop()
		w.Start()
		b := MakeBenchmark(w.Namespace, "x").On(w.A, w.B)
		b.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: VF, IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: "192.168.40.0/24"}}}}
		created := w.Create(ctx, b)
		ExpectSucceeded(ctx, created, "^Unknown Retrying: .*NetworkRefused.*of no good reason")
		Expect(Get(ctx, created).Status.Active).To(BeNil())
		Expect(w.Kubelet.Created()).To(BeEmpty())
	})
})

var _ = Describe("One fault", func() {
	// third adds a node to the world.
	third := func(ctx SpecContext, w *World) string {
		GinkgoHelper()
		name := w.Namespace + "-c"
		w.AddNode(ctx, MakeNode(name))
		return name
	}
	start := func(ctx context.Context, w *World, attempt int32) (server, peer *corev1.Pod) {
		GinkgoHelper()
		return w.Kubelet.RunBoth(ctx, "x-r1", attempt)
	}

	It("of a kubelet that hangs while its log is read stops no other benchmark, and ends", func(ctx SpecContext) {
		w := NewWorld(ctx)
		hung := types.NamespacedName{Namespace: w.Namespace, Name: "x-r1-a1-server"}
		w.LogTimeout = 300 * time.Millisecond
		w.Logs = func(ctx context.Context, pod types.NamespacedName, follow bool) (io.ReadCloser, error) {
			if pod != hung {
				return w.Kubelet.Logs(ctx, pod, follow)
			}
			reader, writer := io.Pipe()
			context.AfterFunc(ctx, func() { writer.CloseWithError(ctx.Err()) })
			return reader, nil
		}
		c, d := third(ctx, w), w.Namespace+"-d"
		w.AddNode(ctx, MakeNode(d))
		w.Start()
		x := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
		server, peer := start(ctx, w, 1)
		w.Kubelet.Succeed(ctx, peer)
		w.Kubelet.Succeed(ctx, server)
		ExpectSucceeded(ctx, x, "^Unknown Running: the result cannot be read yet: .*context deadline exceeded")
		y := w.Create(ctx, MakeBenchmark(w.Namespace, "y").On(c, d))
		w.Kubelet.Measure(ctx, "y-r1", 1)
		ExpectSucceeded(ctx, y, "^True Complete")
		w.Clock.Stop()
		w.Advance(ctx, 61*time.Second, x)
		w.Kubelet.Gone(ctx, server, peer)
		ExpectSucceeded(ctx, x, "^Unknown Retrying: .*ResultMissing.*context deadline exceeded")
	})
})
