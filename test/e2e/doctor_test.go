//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/internal/cli"
	"github.com/tailgate-dev/tailgate/internal/doctor"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/test/localcluster"
)

// ward is the namespace of the doctor's pods, with the networks of a spec and no others.
const ward = "doctor"

// examine runs kubectl tailgate doctor in a namespace, and checks that its pods are gone when it ends.
func examine(ctx context.Context, namespace string, args ...string) (code int, r doctor.Report) {
	GinkgoHelper()
	var stdout, stderr bytes.Buffer
	began := time.Now()
	code = cli.Run(ctx, append([]string{"doctor", "-n", namespace, "-o", "json", "--timeout", "100s", "--kubeconfig", kubeconfig}, args...), &stdout, &stderr)
	GinkgoWriter.Printf("kubectl tailgate doctor: %s, exit code %d\n%s", time.Since(began).Round(time.Second), code, &stderr)
	if stdout.Len() > 0 {
		Expect(json.Unmarshal(stdout.Bytes(), &r)).To(Succeed())
		GinkgoWriter.Println(r.Table(true, nil))
	}
	left := &corev1.PodList{}
	Expect(kube.List(context.WithoutCancel(ctx), left, client.HasLabels{pods.LabelDoctor}, client.InNamespace(namespace))).To(Succeed())
	Expect(left.Items).To(BeEmpty())
	return code, r
}

// of returns a line of a report.
func of(r doctor.Report, node, check, subject string) doctor.Line {
	GinkgoHelper()
	for _, l := range r.Lines {
		if l.Node == node && l.Check == check && l.Subject == subject {
			return l
		}
	}
	Fail("no line " + check + " " + subject + " of node " + node)
	return doctor.Line{}
}

// found expects a line with a level, with words in it, and with advice.
func found(r doctor.Report, level doctor.Level, node, check, subject, words string) {
	GinkgoHelper()
	Expect(of(r, node, check, subject)).To(And(HaveField("Level", level), HaveField("Found", ContainSubstring(words)),
		HaveField("Effect", Not(BeEmpty())), HaveField("Remedy", Not(BeEmpty()))))
}

// ofWard returns the subject of a line about a network in ward.
func ofWard(network string) string { return ward + "/" + network }

// inWard creates a network in ward until the spec ends. Without a config it has the configuration of the local cluster's VFs
// or macvlan.
func inWard(ctx context.Context, name, resource, config string) {
	GinkgoHelper()
	network := nadNamed(name, resource)
	network.SetNamespace(ward)
	if resource == "" {
		network.SetAnnotations(nil)
	}
	if config == "" {
		config = configOf(ctx, map[bool]string{true: "sf-vf", false: "macvlan"}[resource != ""])
	}
	Expect(unstructured.SetNestedField(network.Object, config, "spec", "config")).To(Succeed())
	Expect(kube.Create(ctx, network)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(kube.Delete(ctx, network)).To(Succeed()) })
}

var _ = Describe("kubectl tailgate doctor", Label("doctor"), func() {
	const onload = "tailgate.test/onload"
	BeforeEach(func(ctx context.Context) {
		if !elsewhere {
			err := kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ward}})
			Expect(client.IgnoreAlreadyExists(err)).To(Succeed())
		}
	})

	It("has no error on the nodes and networks of the specs, and no finding on the local cluster", func(ctx context.Context) {
		code, r := examine(ctx, namespace, here.Client, here.Server)
		worst := doctor.Warning
		if !elsewhere {
			worst = doctor.Good
			Expect(code).To(BeZero())
		}
		for _, l := range r.Lines {
			Expect(l.Level).To(BeElementOf(doctor.Good, worst), "%v", l)
		}
		Expect(of(r, here.Client, "cpu-manager", "").Level).To(Equal(doctor.Good))
	})

	It("is quiet on a good cluster, and removes its pods when it is interrupted", needs("networks of one spec only"), func(ctx context.Context) {
		inWard(ctx, "sf-vf", localcluster.ResourceVF, "")
		inWard(ctx, "macvlan", "", "")
		classForClaimedVFs(ctx)
		inWard(ctx, "sf-vf-claimed", localcluster.ResourceVFClaimed, "")
		code, r := examine(ctx, ward)
		for _, l := range r.Lines {
			Expect(l.Level).To(Equal(doctor.Good), "%v", l)
		}
		Expect(code).To(Equal(0))
		Expect(of(r, "", "machines", "").Found).To(ContainSubstring("node-a, node-b"))
		for _, node := range []string{"node-a", "node-b"} {
			Expect(of(r, node, "cpu-manager", "").Level).To(Equal(doctor.Good))
			Expect(of(r, node, "topology", ofWard("sf-vf")).Level).To(Equal(doctor.Good))
			Expect(of(r, node, "attachment", ofWard("macvlan")).Level).To(Equal(doctor.Good))
			Expect(of(r, node, "devices", string(localcluster.ResourceVFClaimed)).Found).To(ContainSubstring("of DeviceClass sf-vf-claimed"))
			Expect(of(r, node, "attachment", ofWard("sf-vf-claimed")).Level).To(Equal(doctor.Good))
		}

		By("an interrupt while its pods run")
		short, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
		defer cancel()
		code, r = examine(short, ward)
		Expect(code).To(Equal(3))
		Expect(r.Lines).To(BeEmpty())
	})

	It("finds networks, MTUs and Onload that are set up wrongly", needs("broken networks"), func(ctx context.Context) {
		inWard(ctx, "sf-vf", localcluster.ResourceVF, "")
		inWard(ctx, "sf-vf-nohint", localcluster.ResourceVFNoHint, "")
		inWard(ctx, "sf-vf-far", localcluster.ResourceVFFar, "")
		inWard(ctx, "nobody", "tailgate.test/nobody", `{"cniVersion": "1.0.0", "type": "sriov"}`)
		inWard(ctx, "broken", localcluster.ResourceVF, `{"cniVersion": "1.0.0", "type": "sriov"`)
		inWard(ctx, "no-plugin", "", `{"cniVersion": "1.0.0", "name": "no-plugin", "type": "no-such-plugin"}`)
		Expect(localcluster.SetMTU(options, "node-b", localcluster.ResourceVF, 1400)).To(Succeed())
		DeferCleanup(func() { Expect(localcluster.SetMTU(options, "node-b", localcluster.ResourceVF, 1500)).To(Succeed()) })
		for _, node := range []string{"node-a", "node-b"} {
			advertise(ctx, node, onload, "100")
			DeferCleanup(func(ctx context.Context) { advertise(ctx, node, onload, "") })
		}
		for _, node := range []string{"node-a", "node-b"} {
			Eventually(func() int64 { return allocatable(ctx, node, onload) }).WithTimeout(soon).Should(Equal(int64(100)))
		}
		code, r := examine(ctx, ward, "--onload", onload)
		Expect(code).To(Equal(1))
		found(r, doctor.Error, "", "mtu", ofWard("sf-vf"), "1400 on node-b; 1500 on node-a")
		found(r, doctor.Error, "", "network", ofWard("nobody"), "tailgate.test/nobody is advertised by no node")
		found(r, doctor.Error, "", "network", ofWard("broken"), "not a JSON object")
		for _, node := range []string{"node-a", "node-b"} {
			found(r, doctor.Error, node, "topology", ofWard("sf-vf-nohint"), "different NUMA nodes")
			found(r, doctor.Error, node, "topology", ofWard("sf-vf-far"), "TopologyAffinityError")
			found(r, doctor.Error, node, "attachment", ofWard("no-plugin"), "no-such-plugin")
			found(r, doctor.Error, node, "onload", onload, "no library")
			Expect(of(r, node, "attachment", ofWard("sf-vf")).Level).To(Equal(doctor.Good))
		}
	})

	It("finds nodes without pinning, Multus, CPUs, devices or the image, and those that are cordoned", needs("processes to kill"), func(ctx context.Context) {
		inWard(ctx, "sf-vf", localcluster.ResourceVF, "")
		inWard(ctx, "macvlan", "", "")

		By("a cordoned node, and an image that cannot be pulled")
		Expect(kubectl(ctx, GinkgoWriter, "cordon", "node-b")).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(kubectl(ctx, GinkgoWriter, "uncordon", "node-b")).To(Succeed())
		})
		code, r := examine(ctx, ward, "--image", "localhost/no-such-image:dev")
		Expect(code).To(Equal(1))
		found(r, doctor.Error, "node-b", "node", "", "cordoned")
		found(r, doctor.Error, "node-a", "inspect", "", "cannot be pulled")
		Expect(kubectl(ctx, GinkgoWriter, "uncordon", "node-b")).To(Succeed())

		By("a node whose CPUs and device plugin are gone, and one without CPU manager and Multus")
		hog := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "hog", Namespace: ward},
			Spec: corev1.PodSpec{
				NodeSelector:                  map[string]string{corev1.LabelHostname: "node-a"},
				TerminationGracePeriodSeconds: new(int64(0)),
				Containers: []corev1.Container{{
					Name: "hog", Image: "localhost/pause:1", ImagePullPolicy: corev1.PullNever,
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
				}},
			},
		}
		node := &corev1.Node{}
		Expect(kube.Get(ctx, client.ObjectKey{Name: "node-a"}, node)).To(Succeed())
		hog.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(node.Status.Allocatable.Cpu().MilliValue()-900, resource.DecimalSI)
		Expect(kube.Create(ctx, hog)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(kube.Delete(ctx, hog)).To(Succeed())
			Eventually(func() bool { return apierrors.IsNotFound(kube.Get(ctx, client.ObjectKeyFromObject(hog), hog)) }).WithTimeout(soon).Should(BeTrue())
		})
		Expect(localcluster.KillDevicePlugin(ctx, options, "node-a")).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(localcluster.Up(ctx, options)).To(Succeed()) })
		Expect(localcluster.RemoveMultinet(ctx, options, "node-b")).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(localcluster.RestoreMultinet(ctx, options, "node-b")).To(Succeed()) })
		Expect(localcluster.StopPinning(ctx, options, "node-b")).To(Succeed())
		Eventually(func() int64 { return allocatable(ctx, "node-a", localcluster.ResourceVF) }).WithTimeout(soon).Should(BeZero())
		code, r = examine(ctx, ward)
		Expect(code).To(Equal(1))
		found(r, doctor.Error, "node-a", "free-cpus", "", "0 of")
		found(r, doctor.Error, "node-a", "devices", string(localcluster.ResourceVF), "are healthy")
		found(r, doctor.Error, "node-b", "cpu-manager", "", "may use CPUs")
		found(r, doctor.Error, "node-b", "attachment", ofWard("macvlan"), foreign.AnnotationNetworkStatus)
		found(r, doctor.Error, "", "multus", "", foreign.AnnotationNetworkStatus)
	})
})
