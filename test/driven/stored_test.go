package driven

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// plain returns the uncompressed content of a stored document.
func plain(compressed []byte) []byte {
	GinkgoHelper()
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	Expect(err).NotTo(HaveOccurred())
	content, err := io.ReadAll(z)
	Expect(err).NotTo(HaveOccurred())
	return content
}

// ofRun returns a stored document with the name of another run.
func ofRun(compressed []byte, run string) []byte {
	GinkgoHelper()
	var d result.Document
	Expect(json.Unmarshal(plain(compressed), &d)).To(Succeed())
	d.Run = run
	return framed(d).Compressed
}

// forgeries returns the ConfigMap that a user with the right to create ConfigMaps can make of a stored result: for another
// benchmark, under the name of its run, with labels, owner and all of the result's own fields.
func forgeries(stored corev1.ConfigMap, b *v1alpha1.LatencyBenchmark, run string) *corev1.ConfigMap {
	GinkgoHelper()
	return remade(stored, func(cm *corev1.ConfigMap) {
		cm.Name = run
		cm.Labels[v1alpha1.LabelBenchmark], cm.Labels[v1alpha1.LabelRun] = b.Name, run
		cm.OwnerReferences = []metav1.OwnerReference{pods.Owner(b)}
		for _, key := range []string{result.KeyClient, result.KeyServer} {
			cm.BinaryData[key] = ofRun(cm.BinaryData[key], run)
		}
		for key, part := range map[string]string{"client": result.KeyClient, "server": result.KeyServer} {
			cm.Annotations["tailgate.dev/"+key+"-sha256"] = sha256Of(cm.BinaryData[part])
		}
		cm.Annotations["tailgate.dev/pods-sha256"] = sha256Of([]byte(cm.Data[result.KeyPods]))
	})
}

var _ = Describe("A ConfigMap", func() {
	var w *World
	BeforeEach(func(ctx SpecContext) { w = NewWorld(ctx) })

	// another measures a benchmark whose result can be copied.
	another := func(ctx SpecContext) corev1.ConfigMap {
		GinkgoHelper()
		other := w.Create(ctx, MakeBenchmark(w.Namespace, "other").On(w.A, w.B))
		w.Kubelet.Measure(ctx, "other-r1", 1)
		ExpectSucceeded(ctx, other, "^True Complete")
		return ConfigMaps(ctx, other)[0]
	}

	It("that is a copy of another benchmark's completes nothing", func(ctx SpecContext) {
		w.Start()
		stored := another(ctx)
		b, server, peer := w.Measuring(ctx)
		Expect(k8s.Create(ctx, forgeries(stored, b, "x-r1"))).To(Succeed())
		w.Patiently(ctx, b, func() any { return Get(ctx, b).Status.Stored }, BeEmpty())
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Succeed(ctx, peer)
		ExpectSucceeded(ctx, b, "^True Complete")
		status := Get(ctx, b).Status
		Expect(status.Stored).To(HaveLen(1))
		Expect(status.Stored[0].ConfigMap).To(MatchRegexp(`^x-r1-[a-z0-9]{10}$`))
		Expect(StoredRuns(ctx, b)[0].ClientSeen.PodUID).To(BeEquivalentTo(peer.UID), "what was measured is stored")
	})

	It("of the name that the status says, made by someone else, is left alone, and the result gets another name", func(ctx SpecContext) {
		first := w.Start(dies(stores))
		b, server, peer := w.Measuring(ctx)
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Succeed(ctx, peer)
		eventually(first.Dead).Should(BeTrue())
		first.Stop()
		name := Get(ctx, b).Status.Active.Collected.ConfigMap
		taken := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name, OwnerReferences: []metav1.OwnerReference{pods.Owner(b)}},
			BinaryData: map[string][]byte{result.KeyClient: []byte("x"), result.KeyServer: []byte("x")}, Data: map[string]string{result.KeyPods: "{}"},
		}
		Expect(k8s.Create(ctx, taken)).To(Succeed())

		w.Start()
		ExpectSucceeded(ctx, b, "^True Complete")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured"}))
		Expect(Get(ctx, b).Status.Stored[0].ConfigMap).NotTo(Equal(name))
		Expect(StoredRuns(ctx, b)).To(HaveLen(1))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(taken), taken)).To(Succeed())
		eventually(func() ([]string, error) { return warnings(ctx, w.Namespace) }).Should(ContainElement(HavePrefix("NameTaken ConfigMap " + name)))
	})

	It("of the name of a run does not keep the run from being measured", func(ctx SpecContext) {
		taken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "x-r1"}, Data: map[string]string{"mine": "yes"}}
		Expect(k8s.Create(ctx, taken)).To(Succeed())
		w.Start()
		w.Kubelet.Auto()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
		ExpectSucceeded(ctx, b, "^True Complete")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured"}))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(taken), taken)).To(Succeed())
		Expect(taken.Data).To(HaveKeyWithValue("mine", "yes"))
	})

	It("that a quota refuses ends the attempt in time, says so, and gives the nodes back", func(ctx SpecContext) {
		exceeded[*corev1.ConfigMap](w, "no-more")
		w.Start()
		b, server, peer := w.Measuring(ctx)
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Succeed(ctx, peer)
		ExpectSucceeded(ctx, b, "^Unknown StoreRefused: the result of x-r1 cannot be stored yet: .*exceeded quota: no-more")
		Expect(Get(ctx, b).Status.Active).NotTo(BeNil())
		w.Pass(61 * time.Second)
		w.Kubelet.Gone(ctx, server, peer)
		ExpectSucceeded(ctx, b, "^Unknown Retrying: .*StoreRefused.*exceeded quota: no-more.*; change the quota, policy or webhook of namespace "+w.Namespace)
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 StoreRefused"}))
		Expect(Get(ctx, b).Status.Active).To(BeNil())
	})

	It("that a quota refuses for a moment is created when the quota is lifted", func(ctx SpecContext) {
		lift := exceeded[*corev1.ConfigMap](w, "no-more")
		w.Start()
		b, server, peer := w.Measuring(ctx)
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Succeed(ctx, peer)
		ExpectSucceeded(ctx, b, "^Unknown StoreRefused")
		lift()
		ExpectSucceeded(ctx, b, "^True Complete")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured"}))
	})

	It("in the place of a stored result is not decoded", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(2).On(w.A, w.B))
		w.Kubelet.Measure(ctx, "x-r1", 1)
		eventually(func() []v1alpha1.StoredResult { return Get(ctx, b).Status.Stored }).Should(HaveLen(1))
		stored := ConfigMaps(ctx, b)[0]
		Expect(k8s.Delete(ctx, &stored)).To(Succeed())
		Expect(k8s.Create(ctx, remade(stored, func(cm *corev1.ConfigMap) {
			cm.BinaryData[result.KeyClient] = framed(result.Document{
				Version: result.Version, Run: "x-r1", Variant: "default", Attempt: 1, Role: v1alpha1.RoleClient, Cells: make([]result.Cell, 1000),
			}).Compressed
		}))).To(Succeed())
		w.Kubelet.Measure(ctx, "x-r2", 1)
		w.Kubelet.Measure(ctx, "x-r1", 2)
		ExpectSucceeded(ctx, b, "^True Complete")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured", "x-r2 a1 Measured", "x-r1 a2 Measured"}))
	})
})

// warnings lists the warnings among the events of a namespace, as "reason note".
func warnings(ctx SpecContext, namespace string) ([]string, error) {
	list := &eventsv1.EventList{}
	err := k8s.List(ctx, list, client.InNamespace(namespace))
	var events []string
	for _, e := range list.Items {
		if e.Type == corev1.EventTypeWarning {
			events = append(events, strings.TrimSpace(fmt.Sprintf("%s %s", e.Reason, e.Note)))
		}
	}
	return events, err
}

func sha256Of(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
