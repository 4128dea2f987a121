//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/cli"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/specs"
)

const (
	// gated is the label of the nodes of the gate.
	gated = "e2e.tailgate.dev/gated"
	// cableDelay is much longer than what the CPUs add to it, and short enough for a hundred round trips in a round.
	cableDelay = time.Millisecond
)

// latencyGate compares the nodes with that label with their own accepted minimum over the VFs.
func latencyGate() *v1alpha1.LatencyGate {
	template := benchmark("", overVFs, pingPong, func(s *v1alpha1.LatencyBenchmarkSpec) {
		s.Rounds, s.Workload.Duration.Duration = 6, 500*time.Millisecond
		s.Placement.Client, s.Placement.Server = &v1alpha1.EndpointPlacement{}, &v1alpha1.EndpointPlacement{}
		s.Criteria = &v1alpha1.Criteria{
			Rules:    []v1alpha1.Rule{{Metric: v1alpha1.MetricMin, Max: v1alpha1.Limit{Text: "20ms"}}, {Metric: v1alpha1.MetricMin, MaxIncrease: v1alpha1.Limit{Text: "100%"}}},
			Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineGate},
		}
	})
	return &v1alpha1.LatencyGate{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e"},
		Spec: v1alpha1.LatencyGateSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{gated: ""}}, Namespace: namespace, Template: v1alpha1.LatencyBenchmarkTemplate{Spec: template.Spec.MeasurementSpec},
			Enforcement: v1alpha1.Enforcement{Label: &v1alpha1.GateLabel{}, Taint: &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoSchedule}, HoldPod: &v1alpha1.GateHoldPod{}},
		},
	}
}

// undemandingGate returns the gate with its absolute limit only, for specs in which the latency does not matter.
func undemandingGate() *v1alpha1.LatencyGate {
	g := latencyGate()
	c := g.Spec.Template.Spec.Criteria
	c.Baseline, c.Rules = nil, c.Rules[:1]
	return g
}

// gateNode reads a node.
func gateNode(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	n := &corev1.Node{}
	Expect(kube.Get(ctx, types.NamespacedName{Name: name}, n)).To(Succeed())
	return n
}

// labelNodes sets a label on both nodes, or removes it if the value is nil.
func labelNodes(ctx context.Context, key string, value any) {
	GinkgoHelper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, key)
	if value != nil {
		patch = fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value)
	}
	for _, name := range []string{here.Client, here.Server} {
		Expect(kube.Patch(ctx, gateNode(ctx, name), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
	}
}

// verification reads the LatencyVerification of a node.
func verification(ctx context.Context, node string) *v1alpha1.LatencyVerification {
	GinkgoHelper()
	v := &v1alpha1.LatencyVerification{}
	Expect(client.IgnoreNotFound(kube.Get(ctx, types.NamespacedName{Name: v1alpha1.VerificationName("e2e", node)}, v))).To(Succeed())
	return v
}

// published returns the condition, label and taint by which a Node shows its verification, such as "True true -".
func published(ctx context.Context, node string) string {
	GinkgoHelper()
	return publishedOn(gateNode(ctx, node))
}

func publishedOn(n *corev1.Node) string {
	condition, label, taint := specs.Published(n)
	return fmt.Sprintf("%s %s %s", condition, label, taint)
}

const (
	isVerified = "True true -"
	heldBack   = "False false NoSchedule"
)

// nodeVersion is a version of a Node: when it was seen, and what it published.
type nodeVersion struct {
	at              time.Time
	number, publish string
	node            *corev1.Node
}

// watchNode watches every version of a Node from now on. versions ends that, and returns them.
func watchNode(ctx context.Context, node string) (versions func() []nodeVersion) {
	GinkgoHelper()
	events, err := kube.Watch(context.WithoutCancel(ctx), &corev1.NodeList{}, client.MatchingFields{"metadata.name": node})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(events.Stop)
	const key = "e2e.tailgate.dev/last-version"
	last, found := fmt.Sprint(time.Now().UnixNano()), make(chan []nodeVersion, 1)
	go func() {
		defer close(found)
		var all []nodeVersion
		for event := range events.ResultChan() {
			n, ok := event.Object.(*corev1.Node)
			if !ok {
				return
			}
			all = append(all, nodeVersion{time.Now(), n.ResourceVersion, publishedOn(n), n})
			if n.Annotations[key] == last {
				found <- all
				return
			}
		}
	}()
	annotate := func(ctx context.Context, value any) {
		GinkgoHelper()
		data, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
		Expect(err).NotTo(HaveOccurred())
		Expect(kube.Patch(ctx, gateNode(ctx, node), client.RawPatch(types.MergePatchType, data))).To(Succeed())
	}
	return func() []nodeVersion {
		GinkgoHelper()
		annotate(ctx, last)
		DeferCleanup(func(ctx context.Context) { annotate(ctx, nil) })
		var all []nodeVersion
		Eventually(found).WithTimeout(soon).Should(Receive(&all))
		return all
	}
}

// watchLetIn watches every version of a Node from now on. letIn returns each version that admits pods by its condition,
// label or taint, while the previous version held the node back by all of them.
func watchLetIn(ctx context.Context, node string) (letIn func() []string) {
	GinkgoHelper()
	versions := watchNode(ctx, node)
	return func() []string {
		GinkgoHelper()
		var all []string
		held := false
		for _, v := range versions() {
			open := strings.HasPrefix(v.publish, "True ") || strings.Contains(v.publish, " true ") || strings.HasSuffix(v.publish, " -")
			if held && open {
				all = append(all, v.number+": "+v.publish)
			}
			held = !open
		}
		return all
	}
}

// eventuallyConcludes waits until a node's verification ends in a state, and returns it. Any other final state fails.
func eventuallyConcludes(ctx context.Context, node string, state v1alpha1.VerificationState) *v1alpha1.LatencyVerification {
	GinkgoHelper()
	var v *v1alpha1.LatencyVerification
	Eventually(func() v1alpha1.VerificationState {
		v = verification(ctx, node)
		switch v.Status.State {
		case state, "", v1alpha1.VerificationUnverified, v1alpha1.VerificationMeasuring:
		default:
			StopTrying(fmt.Sprintf("%s %s: %s", v.Status.State, v.Status.Verified().Reason, v.Status.Verified().Message)).Now()
		}
		return v.Status.State
	}).WithTimeout(measured+here.Upgrade.Timeout.Duration).WithPolling(200*time.Millisecond).Should(Equal(state), func() string { return v.Status.Verified().Message })
	AddReportEntry(fmt.Sprintf("%s: %s %s: %s", node, v.Status.State, v.Status.Verified().Reason, v.Status.Verified().Message))
	want := heldBack
	if state == v1alpha1.VerificationVerified {
		want = isVerified
	}
	Eventually(published).WithArguments(ctx, node).WithTimeout(soon).Should(Equal(want))
	By("its hold pod: " + node)
	// A kubelet that has just started delays a first probe by up to its period.
	Eventually(holds).WithArguments(ctx, node).WithTimeout(soon + 30*time.Second).WithPolling(200 * time.Millisecond).
		Should(Equal(map[bool]string{true: "Running True True", false: "Running False False"}[want == isVerified]))
	return v
}

// holds returns the phase of a node's hold pod, and its conditions ContainersReady and Ready.
func holds(ctx context.Context, node string) string {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(kube.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelHold: "true", v1alpha1.LabelGate: "e2e"})).To(Succeed())
	var all []string
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.NodeName == node && p.DeletionTimestamp.IsZero() {
			text := string(p.Status.Phase)
			for _, conditionType := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
				for _, c := range p.Status.Conditions {
					if c.Type == conditionType {
						text += " " + string(c.Status)
					}
				}
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

// asked returns the answers that a tool gets when it asks the gate for its verdict: the exit code of the job of the samples,
// and the HTTP response of the manager, both with the rights of the samples' service account.
func asked(ctx context.Context) string {
	GinkgoHelper()
	var all []byte
	for _, name := range []string{"reader.yaml", "gate-job.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../config/samples/gates", name))
		Expect(err).NotTo(HaveOccurred())
		all = append(append(all, text...), "\n---\n"...)
	}
	file := filepath.Join(GinkgoT().TempDir(), "job.yaml")
	our := strings.NewReplacer("fast-nodes", "e2e", "namespace: default", "namespace: "+namespace, "tailgate:latest", manager(ctx).Image)
	Expect(os.WriteFile(file, []byte(our.Replace(string(all))), 0o600)).To(Succeed())
	Expect(kubectl(ctx, GinkgoWriter, "apply", "-f", file)).To(Succeed())
	defer func() {
		Expect(kubectl(ctx, GinkgoWriter, "delete", "--ignore-not-found", "-f", file)).To(Succeed())
	}()

	var code int32
	Eventually(func(g Gomega) {
		list := &corev1.PodList{}
		g.Expect(kube.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"job-name": "latency-gate"})).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
		g.Expect(list.Items[0].Status.ContainerStatuses).To(HaveLen(1))
		end := list.Items[0].Status.ContainerStatuses[0].State.Terminated
		g.Expect(end).NotTo(BeNil())
		code = end.ExitCode
	}).WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(Succeed())
	var token bytes.Buffer
	Expect(kubectl(ctx, &token, "-n", namespace, "create", "token", "latency-reader")).To(Succeed())
	status, body := managerGet(ctx, managerNamespace, anyManager, nil, "/verdict/latencygates/e2e", token.String())
	var answer struct{ Verdict string }
	Expect(json.Unmarshal([]byte(body), &answer)).To(Succeed(), body)
	return fmt.Sprintf("exit code %d, HTTP %d %s", code, status, answer.Verdict)
}

// change runs a command of the values, or on the local cluster the function.
func change(ctx context.Context, command string, local func() error) {
	GinkgoHelper()
	if !elsewhere {
		Expect(local()).To(Succeed())
		return
	}
	c := exec.CommandContext(ctx, "sh", "-c", command)
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), "NODE="+here.Client), GinkgoWriter, GinkgoWriter
	Expect(c.Run()).To(Succeed(), command)
}

// upgrade upgrades the client's node, waits until the node is held back for that, and returns the new boot ID.
func upgrade(ctx context.Context) string {
	GinkgoHelper()
	before := gateNode(ctx, here.Client).Status.NodeInfo.BootID
	change(ctx, here.Upgrade.Command, func() error {
		return localcluster.Upgrade(ctx, options, here.Client, "Upgraded "+time.Now().UTC().Format("15:04:05"))
	})
	var after corev1.NodeSystemInfo
	Eventually(func() string { after = gateNode(ctx, here.Client).Status.NodeInfo; return after.BootID }).
		WithTimeout(here.Upgrade.Timeout.Duration).WithPolling(20 * time.Millisecond).ShouldNot(Equal(before))
	reported := time.Now()
	Eventually(published).WithArguments(ctx, here.Client).WithTimeout(here.Upgrade.Timeout.Duration).WithPolling(20 * time.Millisecond).Should(Equal(heldBack))
	AddReportEntry(fmt.Sprintf("held back %s after the kubelet reported the boot of %s", time.Since(reported).Round(time.Millisecond), after.OSImage))
	Expect(verification(ctx, here.Client).Status.State).NotTo(Equal(v1alpha1.VerificationVerified))
	return after.BootID
}

// verifyAgain requests a verification of a node, and waits until it has begun.
func verifyAgain(ctx context.Context, node string) {
	GinkgoHelper()
	v := verification(ctx, node)
	self := &authenticationv1.SelfSubjectReview{}
	Expect(kube.Create(ctx, self)).To(Succeed())
	before := v.DeepCopy()
	v.Spec.Verify = &v1alpha1.UserRequest{RequestedBy: self.Status.UserInfo.Username, RequestTime: time.Now().Format(time.RFC3339Nano)}
	Expect(kube.Patch(ctx, v, client.MergeFrom(before))).To(Succeed())
	Eventually(func() v1alpha1.VerificationState { return verification(ctx, node).Status.State }).
		WithTimeout(soon).WithPolling(20 * time.Millisecond).Should(BeElementOf(v1alpha1.VerificationUnverified, v1alpha1.VerificationMeasuring))
}

// deleteGate deletes a gate and the results that it accepted, with which a gate of its name would compare.
func deleteGate(ctx context.Context, g *v1alpha1.LatencyGate) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(kube.Delete(ctx, g))).To(Succeed())
	Eventually(func() error { return kube.Get(ctx, client.ObjectKeyFromObject(g), g) }).WithTimeout(soon).ShouldNot(Succeed())
	Expect(kube.DeleteAllOf(ctx, &v1alpha1.LatencyVerification{})).To(Succeed())
}

// endGate deletes the gate, and checks that it leaves no mark on the nodes.
func endGate(ctx context.Context) {
	GinkgoHelper()
	deleteGate(ctx, latencyGate())
	for _, name := range []string{here.Client, here.Server} {
		Expect(published(ctx, name)).To(Equal("- - -"), "a gate leaves nothing behind")
	}
	labelNodes(ctx, gated, nil)
}

var _ = Describe("A LatencyGate", Label("gate"), SpecPriority(2), func() {
	AfterEach(func(ctx context.Context) {
		endGate(ctx)
		if !elsewhere {
			Expect(localcluster.RestoreCable(options)).To(Succeed())
			Expect(localcluster.Up(ctx, options)).To(Succeed())
		}
	})

	It("holds an upgraded node back until its latency is proved", Label("upgrade"), func(ctx context.Context) {
		if here.Upgrade == nil {
			Skip("the values have no upgrade")
		}
		var cable *localcluster.LongCable
		if !elsewhere {
			// A first comparison allows for 8 % between boots. The delay of the cable, not the speed of the CPUs, decides about that here.
			var err error
			cable, err = localcluster.NewLongCable(options, cableDelay)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(cable.Close)
		}
		letIn, times := watchLetIn(ctx, here.Client), 2
		labelNodes(ctx, gated, "")
		Expect(kube.Create(ctx, latencyGate())).To(Succeed())
		first := eventuallyConcludes(ctx, here.Client, v1alpha1.VerificationVerified)
		eventuallyConcludes(ctx, here.Server, v1alpha1.VerificationVerified)
		Eventually(asked).WithArguments(ctx).WithTimeout(time.Minute).Should(Equal("exit code 0, HTTP 200 Pass"))
		other := verification(ctx, here.Server)

		By("an upgrade that changes nothing of the latency")
		boot := upgrade(ctx)
		second := eventuallyConcludes(ctx, here.Client, v1alpha1.VerificationVerified)
		Expect(second.Status.Accepted.Benchmark).NotTo(Equal(first.Status.Accepted.Benchmark), "it has a new baseline")
		Expect(second.Status.Accepted.Identity).To(HaveKeyWithValue(string(v1alpha1.IdentityBootID), boot))
		Expect(second.Status.Reference[0].Benchmark).To(Equal(first.Status.Accepted.Benchmark))

		g := latencyGate()
		if !elsewhere || here.Upgrade.Slow != "" {
			second = slowUpgrade(ctx, cable, second)
			times++
		}
		Expect(verification(ctx, here.Server).ResourceVersion).To(Equal(other.ResourceVersion), "the other node was left alone")

		By("too few samples")
		Eventually(func() error {
			Expect(kube.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
			g.Spec.Template.Spec.Criteria.Rules = []v1alpha1.Rule{{Metric: v1alpha1.MetricP99999, Max: v1alpha1.Limit{Text: "1s"}}}
			return kube.Update(ctx, g)
		}).WithTimeout(soon).Should(Succeed())
		verifyAgain(ctx, here.Client)
		held := eventuallyConcludes(ctx, here.Client, v1alpha1.VerificationInconclusive)
		Expect(held.Status.Verified().Message).To(ContainSubstring("samples"))
		Expect(held.Status.Accepted).To(Equal(second.Status.Accepted))
		Expect(letIn()).To(HaveLen(times), "once for each time that it was verified")
	})

	It("does not pass a node that changes while the manager is scaled to zero", needs("a manager that it may scale"), func(ctx context.Context) {
		const policies = "../../config/samples/gates/hold-on-change.yaml"
		DeferCleanup(func(ctx context.Context) {
			Expect(kubectl(ctx, GinkgoWriter, "delete", "--ignore-not-found", "-f", policies)).To(Succeed())
		})
		labelNodes(ctx, gated, "")
		g := undemandingGate()
		Expect(kube.Create(ctx, g)).To(Succeed())
		eventuallyConcludes(ctx, "node-a", v1alpha1.VerificationVerified)
		eventuallyConcludes(ctx, "node-b", v1alpha1.VerificationVerified)

		for i, withPolicies := range []bool{false, true} {
			if withPolicies {
				Expect(kubectl(ctx, GinkgoWriter, "apply", "-f", policies)).To(Succeed())
				Eventually(func() string {
					other := gateNode(ctx, "node-a")
					boot := client.RawPatch(types.MergePatchType, []byte(`{"status":{"nodeInfo":{"bootID":"other"}}}`))
					Expect(kube.Status().Patch(ctx, other, boot, client.DryRunAll)).To(Succeed())
					return publishedOn(other)
				}).WithTimeout(time.Minute).Should(HavePrefix("False false"), "the API server has compiled the policies")
			}
			scaleManager(ctx, 0)
			t := newWaysTimeline(ctx, "node-a")
			t.until(func(at string) bool {
				return at == "exit code 0, HTTP no manager, hold pod Running True True, condition, label and taint True true -"
			})
			before := gateNode(ctx, "node-a").Status.NodeInfo.BootID
			Expect(localcluster.Upgrade(ctx, options, "node-a", fmt.Sprintf("Away %d", i))).To(Succeed())
			Eventually(func() string { return gateNode(ctx, "node-a").Status.NodeInfo.BootID }).
				WithTimeout(time.Minute).WithPolling(20 * time.Millisecond).ShouldNot(Equal(before))
			t.add("the kubelet reported another boot")
			Expect(exitCode(ctx)).To(Equal(2), "the exit code knows at once, without a manager")
			want := isVerified
			if withPolicies {
				// The taint is added by the next write of the Node. The kubelet may or may not write it when it returns.
				want = "False false"
			}
			t.until(func(at string) bool {
				return strings.Contains(at, "exit code 2, HTTP no manager, hold pod Running False False, condition, label and taint "+want)
			})
			if withPolicies {
				Expect(kube.Patch(ctx, gateNode(ctx, "node-a"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"e2e":"any"}}}`)))).To(Succeed())
				t.add("a write of the Node")
				t.until(func(at string) bool { return strings.HasSuffix(at, heldBack) })
			}
			scaleManager(ctx, 1)
			t.add("the manager is back")
			t.until(func(at string) bool { return strings.HasSuffix(at, heldBack) })
			t.until(func(at string) bool {
				return strings.Contains(at, "exit code 0, HTTP 200 Pass") && strings.HasSuffix(at, isVerified)
			})
			eventuallyConcludes(ctx, "node-a", v1alpha1.VerificationVerified)
			t.report(map[bool]string{false: "without hold-on-change.yaml", true: "with hold-on-change.yaml"}[withPolicies])
		}
	})

	It("makes the hold pods of nodes that it only observes ready at once, also when a kubelet has just started", needs("a kubelet to kill"), func(ctx context.Context) {
		labelNodes(ctx, gated, "")
		Expect(localcluster.KillProcess(ctx, options, "kubelet-"+here.Client)).To(Succeed())
		Expect(localcluster.StartProcess(ctx, options, "kubelet-"+here.Client)).To(Succeed())
		g := undemandingGate()
		g.Spec.Enforcement.Mode = v1alpha1.EnforcementObserve
		Expect(kube.Create(ctx, g)).To(Succeed())
		for _, node := range []string{here.Client, here.Server} {
			Eventually(holds).WithArguments(ctx, node).WithTimeout(measured).WithPolling(200 * time.Millisecond).Should(Equal("Running True True"))
			Expect(holdPod(ctx, node).Spec.Containers[0].ReadinessProbe).To(BeNil(), "a kubelet that has just started delays the first probe by up to its period")
		}
	})

	It("passes for no reader while a kubelet is away, and holds a failed node that registers again", needs("a kubelet to kill"), func(ctx context.Context) {
		labelNodes(ctx, gated, "")
		g := undemandingGate()
		Expect(kube.Create(ctx, g)).To(Succeed())
		eventuallyConcludes(ctx, "node-a", v1alpha1.VerificationVerified)
		eventuallyConcludes(ctx, "node-b", v1alpha1.VerificationVerified)
		list := &corev1.PodList{}
		Expect(kube.List(ctx, list, client.InNamespace(managerNamespace))).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		away := map[string]string{"node-a": "node-b", "node-b": "node-a"}[list.Items[0].Spec.NodeName]
		measuredBefore := len(verification(ctx, away).Status.History)

		t := newWaysTimeline(ctx, away)
		passes := func(at string) bool { return strings.Contains(at, "exit code 0") || strings.Contains(at, " Pass ") }
		t.until(func(at string) bool { return strings.HasPrefix(at, "exit code 0, HTTP 200 Pass") })
		Expect(localcluster.KillProcess(ctx, options, "kubelet-"+away)).To(Succeed())
		t.add("the kubelet of %s was killed", away)
		Eventually(func() corev1.ConditionStatus { return readiness(gateNode(ctx, away)) }).
			WithTimeout(measured).WithPolling(time.Second).Should(Equal(corev1.ConditionUnknown))
		t.add("its Node is no longer ready")
		t.until(func(at string) bool { return !passes(at) })
		Consistently(func() bool { return passes(t.look()) }).WithTimeout(30 * time.Second).WithPolling(time.Second).Should(BeFalse())
		Expect(localcluster.StartProcess(ctx, options, "kubelet-"+away)).To(Succeed())
		t.add("the kubelet is back")
		t.until(func(at string) bool {
			return strings.HasPrefix(at, "exit code 0, HTTP 200 Pass") && strings.HasSuffix(at, isVerified)
		})
		Expect(verification(ctx, away).Status.History).To(HaveLen(measuredBefore), "the same boot is not measured again")
		t.report("a kubelet that is away")

		By("a limit that no network meets")
		Eventually(func() error {
			Expect(kube.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
			g.Spec.Template.Spec.Criteria.Rules[0].Max.Text = "1ns"
			return kube.Update(ctx, g)
		}).WithTimeout(soon).Should(Succeed())
		verifyAgain(ctx, away)
		eventuallyConcludes(ctx, away, v1alpha1.VerificationFailed)
		before := gateNode(ctx, away)
		Expect(localcluster.KillProcess(ctx, options, "kubelet-"+away)).To(Succeed())
		Expect(kube.Delete(ctx, before)).To(Succeed())
		Eventually(exitCode).WithArguments(ctx).WithTimeout(soon).ShouldNot(Equal(1), "the gate sees that the failed node is gone")
		Expect(localcluster.StartProcess(ctx, options, "kubelet-"+away)).To(Succeed())
		after := &corev1.Node{}
		Eventually(func() error { return kube.Get(ctx, client.ObjectKeyFromObject(before), after) }).WithTimeout(time.Minute).Should(Succeed())
		Expect(exitCode(ctx)).To(Equal(2), "at once")
		// A DRA driver's pod ends with its Node. The local driver is a process: without a restart it would publish its devices
		// with the UID of the deleted Node, and the garbage collector would delete them each time.
		Expect(localcluster.KillProcess(ctx, options, "dradriver-"+away)).To(Succeed())
		Expect(localcluster.StartProcess(ctx, options, "dradriver-"+away)).To(Succeed())
		Expect(after.UID).NotTo(Equal(before.UID))
		Expect(after.Labels).NotTo(HaveKey(gated))
		Eventually(published).WithArguments(ctx, away).WithTimeout(soon).Should(Equal(heldBack))
		Consistently(func() string { return fmt.Sprint(exitCode(ctx), " ", published(ctx, away)) }).
			WithTimeout(10 * time.Second).WithPolling(time.Second).Should(Equal("2 " + heldBack))
		Expect(localcluster.Up(ctx, options)).To(Succeed())
	})
})

// readiness returns the status of a Node's condition Ready.
func readiness(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// slowUpgrade upgrades the client's node, which is then so slow that it fails. It returns the verification after the network
// is restored.
func slowUpgrade(ctx context.Context, cable *localcluster.LongCable, second *v1alpha1.LatencyVerification) *v1alpha1.LatencyVerification {
	GinkgoHelper()
	By("an upgrade after which it is slow")
	fast := func(ctx context.Context) {
		change(ctx, here.Upgrade.Restore, func() error { cable.SetDelay(cableDelay); return nil })
	}
	DeferCleanup(fast)
	change(ctx, here.Upgrade.Slow, func() error { cable.SetDelay(16 * cableDelay); return nil })
	boot := upgrade(ctx)
	failed := eventuallyConcludes(ctx, here.Client, v1alpha1.VerificationFailed)
	Expect(failed.Status.Verified().Message).To(MatchRegexp(`^with peer ` + regexp.QuoteMeta(here.Server) +
		`, and there is no other to show which of them is slow: .*min .* ratio [\d.]+, 95 % interval \[[\d.]+, [\d.]+\] over 6\+18 rounds of 2 boots, which differ by SD [\d.]+ % \(assumed\), .*: Fail, beyond maxIncrease 100%`))
	Expect(failed.Status.Accepted).To(Equal(second.Status.Accepted), "what failed is no baseline")
	g := latencyGate()
	Eventually(func(check Gomega) {
		check.Expect(kube.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
		check.Expect(g.Status.Conditions).To(ContainElement(And(
			HaveField("Type", v1alpha1.ConditionPassed), HaveField("Status", metav1.ConditionFalse), HaveField("Reason", v1alpha1.ReasonNodesFailed))))
	}).WithTimeout(soon).Should(Succeed())
	Expect(asked(ctx)).To(Equal("exit code 1, HTTP 200 Fail"))
	verdict := get(ctx, benchmark(failed.Status.History[0].Benchmark)).Status.Verdict
	Expect(verdict.Outcome).To(Equal(v1alpha1.VerdictFail))
	Expect(verdict.Rules[1]).To(And(HaveField("Estimate", Not(BeEmpty())), HaveField("Lower", Not(BeEmpty())), HaveField("Upper", Not(BeEmpty()))))

	By("the network as before")
	fast(ctx)
	verifyAgain(ctx, here.Client)
	third := eventuallyConcludes(ctx, here.Client, v1alpha1.VerificationVerified)
	Expect(third.Status.Accepted.Benchmark).NotTo(Equal(second.Status.Accepted.Benchmark), "it has a new baseline")
	Expect(third.Status.Accepted.Identity).To(HaveKeyWithValue(string(v1alpha1.IdentityBootID), boot))
	return third
}

// scaleManager scales the manager, and waits until that number of pods is ready.
func scaleManager(ctx context.Context, replicas int) {
	GinkgoHelper()
	Expect(kubectl(ctx, GinkgoWriter, "-n", managerNamespace, "scale", "deployment/manager", fmt.Sprint("--replicas=", replicas))).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(kubectl(ctx, GinkgoWriter, "-n", managerNamespace, "scale", "deployment/manager", "--replicas=1")).To(Succeed())
	})
	Eventually(managers).WithArguments(ctx).WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(Equal(replicas))
}

// managers returns the number of ready manager pods, or 1000 if any of them is terminating.
func managers(ctx context.Context) int {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(kube.List(ctx, list, client.InNamespace(managerNamespace))).To(Succeed())
	ready := 0
	for i := range list.Items {
		if !list.Items[i].DeletionTimestamp.IsZero() {
			return 1000
		}
		for _, c := range list.Items[i].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	return ready
}

// exitCode returns the exit code of kubectl tailgate gate.
func exitCode(ctx context.Context) int {
	var out bytes.Buffer
	return cli.Run(ctx, []string{"gate", "lgate/e2e", "--kubeconfig", kubeconfig}, &out, &out)
}

// timeline records events of a spec with their times.
type timeline struct {
	start time.Time
	lines []string
}

func newTimeline() *timeline { return &timeline{start: time.Now()} }

func (t *timeline) add(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf("%6.1f s  %s", time.Since(t.start).Seconds(), fmt.Sprintf(format, args...)))
	GinkgoWriter.Println(t.lines[len(t.lines)-1])
}

// report adds the timeline to the report of the spec.
func (t *timeline) report(name string) {
	AddReportEntry("timeline: "+name, "\n"+strings.Join(t.lines, "\n"))
}

// waysTimeline records what each interface reports about a node, whenever any of them changes.
type waysTimeline struct {
	*timeline
	ctx   context.Context
	node  string
	token string
	last  string
}

func newWaysTimeline(ctx context.Context, node string) *waysTimeline {
	GinkgoHelper()
	var token bytes.Buffer
	Expect(kubectl(ctx, &token, "-n", managerNamespace, "create", "token", "manager")).To(Succeed())
	return &waysTimeline{timeline: newTimeline(), ctx: ctx, node: node, token: token.String()}
}

// look records what each interface reports, if that has changed.
func (t *waysTimeline) look() string {
	GinkgoHelper()
	said := "HTTP no manager"
	if managers(t.ctx) == 1 {
		// A manager that has just started may be ready before it serves.
		err := InterceptGomegaFailure(func() {
			code, body := managerGet(t.ctx, managerNamespace, anyManager, nil, "/verdict/latencygates/e2e", t.token)
			var answer struct{ Verdict, Reason string }
			Expect(json.Unmarshal([]byte(body), &answer)).To(Succeed(), body)
			said = fmt.Sprintf("HTTP %d %s %s", code, answer.Verdict, answer.Reason)
		})
		if err != nil {
			said = "HTTP no answer"
		}
	}
	at := fmt.Sprintf("exit code %d, %s, hold pod %s, condition, label and taint %s", exitCode(t.ctx), said, holds(t.ctx, t.node), published(t.ctx, t.node))
	if at != t.last {
		t.last = at
		t.add("%s", at)
	}
	return at
}

// until calls look until sees returns true.
func (t *waysTimeline) until(sees func(at string) bool) {
	GinkgoHelper()
	Eventually(func() bool { return sees(t.look()) }).WithTimeout(measured).WithPolling(time.Second).
		Should(BeTrue(), func() string { return strings.Join(t.lines, "\n") })
}
