//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/cli"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/test/localcluster"
)

// watched is what kubectl tailgate inspect prints of a pod.
type watched struct {
	Pod     string
	Outcome v1alpha1.VerdictOutcome
	Lines   []proof.WorkloadLine
}

// states returns the states of a check, of all interfaces.
func (w watched) states(check string) (all []v1alpha1.ProofState) {
	for _, l := range w.Lines {
		if l.Check == check {
			all = append(all, l.State)
		}
	}
	return all
}

// inspectPods runs kubectl tailgate inspect.
func inspectPods(ctx context.Context, args ...string) (code int, all []watched, said string) {
	GinkgoHelper()
	var stdout, stderr bytes.Buffer
	args = append([]string{"inspect", "-n", namespace, "-o", "json", "--timeout", "2m", "--kubeconfig", kubeconfig}, args...)
	code = cli.Run(ctx, args, &stdout, &stderr)
	if stdout.Len() > 0 {
		Expect(json.Unmarshal(stdout.Bytes(), &all)).To(Succeed())
	}
	GinkgoWriter.Printf("kubectl tailgate %s: exit code %d\n%s", strings.Join(args, " "), code, &stderr)
	for _, w := range all {
		for _, l := range w.Lines {
			GinkgoWriter.Printf("  %s %-8s %-15s %s\n", w.Pod, l.State, l.Check, l.Found)
		}
	}
	return code, all, stderr.String()
}

// whenMeasured inspects pods as inspectPods, and again as long as the command says so because the kubelet's last measurement of the memory
// is too old: on a busy machine it may be a minute old.
func whenMeasured(ctx context.Context, args ...string) (code int, all []watched, said string) {
	GinkgoHelper()
	Eventually(func() string {
		code, all, said = inspectPods(ctx, args...)
		return said
	}).WithTimeout(4 * time.Minute).WithPolling(5 * time.Second).ShouldNot(ContainSubstring("; try again in "))
	return code, all, said
}

// guest is a pod that a spec inspects.
func guest(ctx context.Context, name, program, cpu, memory string, change ...func(*corev1.Pod)) *corev1.Pod {
	resources := corev1.ResourceList{} // of both requests and limits
	for resourceName, amount := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if amount != "" {
			resources[resourceName] = resource.MustParse(amount)
		}
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "guest-" + name, Namespace: namespace, Labels: map[string]string{"guest": name}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: here.Client}, TerminationGracePeriodSeconds: new(int64(0)),
			SecurityContext: &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000)), RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "app", Image: benchImage(ctx), Command: strings.Fields(program),
				Resources:       corev1.ResourceRequirements{Requests: maps.Clone(resources), Limits: resources},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	if cpu != "1" { // the one whole CPU of a node of the local cluster is that of the pod that is placed right
		p.Spec.NodeSelector[corev1.LabelHostname] = here.Server
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// over attaches a network of the specs to a guest, and requests its device.
func over(network, resourceName string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{foreign.AnnotationNetworks: fmt.Sprintf(`[{"name": %q, "namespace": %q, "interface": "net1"}]`, network, namespace)}
		r := p.Spec.Containers[0].Resources
		r.Requests[corev1.ResourceName(resourceName)], r.Limits[corev1.ResourceName(resourceName)] = resource.MustParse("1"), resource.MustParse("1")
	}
}

// asRoot lets a guest run as root, with all that a container has by default.
func asRoot(p *corev1.Pod) {
	p.Spec.SecurityContext, p.Spec.Containers[0].SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(0))}, nil
}

func withVariable(name, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: name, Value: value}}
	}
}

// occupants gives guests the program occupant, which a folder of the node has.
func occupants(ctx context.Context) func(*corev1.Pod) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "occupant"), "./occupant")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		Expect(os.Chmod(d, 0o755)).To(Succeed())
	}
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "program", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "program", MountPath: "/program", ReadOnly: true}}
	}
}

// settle creates guests until the spec ends, and waits until they run, and the kubelet has measured them.
func settle(ctx context.Context, guests ...*corev1.Pod) {
	GinkgoHelper()
	for _, p := range guests {
		Expect(kube.Create(ctx, p)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(kube.Delete(ctx, p))).To(Succeed())
			eventuallyGone(ctx, p)
		})
	}
	for _, p := range guests {
		Eventually(func() []corev1.ContainerStatus {
			Expect(kube.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			return p.Status.ContainerStatuses
		}).WithTimeout(4*soon).Should(ContainElement(HaveField("Ready", true)), p.Name)
	}
}

// programOfGuest returns the process of the program of a guest.
func programOfGuest(p *corev1.Pod, program string) int {
	GinkgoHelper()
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	processes := slices.DeleteFunc(processesIn(p.Spec.NodeName, program), func(pid int) bool {
		cgroup, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		return !strings.Contains(string(cgroup), id)
	})
	Expect(processes).NotTo(BeEmpty())
	return processes[0]
}

// cpusetOf returns the folder of the cpuset of a process, of version 1.
func cpusetOf(pid int) string {
	GinkgoHelper()
	cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	Expect(err).NotTo(HaveOccurred())
	_, path, found := strings.Cut(string(cgroup), ":cpuset:")
	Expect(found).To(BeTrue(), string(cgroup))
	path, _, _ = strings.Cut(path, "\n")
	return filepath.Join("/sys/fs/cgroup/cpuset", path)
}

// undisturbed expects that no inspection restarted a guest.
func undisturbed(ctx context.Context, guests ...*corev1.Pod) {
	GinkgoHelper()
	for _, p := range guests {
		id := p.Status.ContainerStatuses[0].ContainerID
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		Expect(p.Status.ContainerStatuses[0]).To(And(HaveField("RestartCount", BeZero()), HaveField("ContainerID", id)), p.Name)
	}
}

var _ = Describe("kubectl tailgate inspect", Label("inspect"), needs("pods of its own on a node with VFs"), func() {
	const (
		proved, failed, unknown, noted = v1alpha1.ProofProved, v1alpha1.ProofFailed, v1alpha1.ProofUnknown, v1alpha1.ProofNoted
		hold                           = "/usr/local/bin/tailgate-agent hold"
	)

	It("proves a pod that is placed right, and names what is wrong about others", func(ctx context.Context) {
		vfNetwork(ctx, "guest-far", localcluster.ResourceVFFar)
		other := nadNamed("guest-other", localcluster.ResourceVF)
		other.Object["spec"] = map[string]any{"config": `{"cniVersion": "1.0.0", "name": "guest-other", "type": "host-device", "device": "ens4f0v0",
			"ipam": {"type": "host-local", "dataDir": "` + filepath.Dir(localcluster.Kubeconfig(options)) + `/ipam", "subnet": "198.18.83.0/24"}}`}
		Expect(kube.Create(ctx, other)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(kube.Delete(ctx, other)).To(Succeed()) })
		like := benchmark("like", short, single, overVFs)
		create(ctx, like)
		eventuallyCompletes(ctx, like)
		program := occupants(ctx)
		vf := over(here.VF.NetworkRef.Name, here.VF.ResourceName)

		right := guest(ctx, "right", hold, "1", "80Mi", vf)
		burstable := guest(ctx, "burstable", hold, "", "80Mi")
		guests := []*corev1.Pod{
			right, burstable,
			guest(ctx, "shared", hold, "100m", "80Mi"),
			guest(ctx, "far", hold, "", "80Mi", over("guest-far", localcluster.ResourceVFFar)),
			guest(ctx, "other", hold, "", "80Mi", over("guest-other", here.VF.ResourceName)),
			guest(ctx, "throttled", "/program/occupant spin", "200m", "80Mi", program),
			guest(ctx, "user", "/program/occupant setuid", "", "80Mi", program, asRoot),
			guest(ctx, "root", "/program/occupant idle", "", "80Mi", program, asRoot),
			guest(ctx, "onload", hold, "", "80Mi", withVariable("LD_PRELOAD", "/opt/libonload.so")),
			guest(ctx, "full", "/program/occupant fill 40", "", "64Mi", program),
			guest(ctx, "half", "/program/occupant fill 24", "", "64Mi", program),
			guest(ctx, "small", hold, "", "24Mi"),
		}
		settle(ctx, guests...)

		By("a pod that has just started")
		code, all, said := inspectPods(ctx, "guest-right")
		Expect(code).To(Equal(3))
		Expect(said).To(And(ContainSubstring("--memory-free"), HaveSuffix("\n"), Not(MatchRegexp("\n.+"))))

		By("a pod without enough memory, which is refused at any time from its start")
		for began := time.Now(); time.Since(began) < 75*time.Second; time.Sleep(2 * time.Second) {
			code, all, _ = inspectPods(ctx, "guest-full")
			Expect(code).To(Equal(3))
			Expect(all).To(BeEmpty())
		}

		By("a pod that is placed right")
		code, all, _ = whenMeasured(ctx, "-l", "guest=right", "--require", "ThreadsOnCPUs,CPUsOnNUMANode,NUMALocal,Device,Function=VF,MTU=1500,CPUQuota,Link")
		Expect(code).To(BeZero())
		Expect(all).To(ConsistOf(HaveField("Outcome", v1alpha1.VerdictPass)))
		// All else of this machine may run on its CPU.
		Expect(all[0].states(v1alpha1.ProofCPUsExclusive)).To(ConsistOf(BeElementOf(proved, unknown)))

		for _, c := range []struct {
			name, args, check string
			want              v1alpha1.ProofState
			code              int
		}{
			{"right", "--require Function=PF", v1alpha1.ProofFunction, failed, 1},
			{"right", "--require MTU=9000", v1alpha1.ProofMTU, failed, 1},
			{"burstable", "--require CPUsExclusive", v1alpha1.ProofCPUsExclusive, failed, 1},
			{"burstable", "--require Device", v1alpha1.ProofDevice, noted, 2},
			{"shared", "--require CPUsExclusive", v1alpha1.ProofCPUsExclusive, failed, 1},
			{"far", "--require NUMALocal", v1alpha1.ProofNUMALocal, failed, 1},
			{"far", "--require CPUsOnNUMANode", v1alpha1.ProofCPUsOnNUMANode, failed, 1},
			{"far", "", v1alpha1.ProofDevice, proved, 0},
			{"other", "--require Device", v1alpha1.ProofDevice, failed, 1},
			{"other", "--require NUMALocal", v1alpha1.ProofNUMALocal, failed, 1},
			// All memory of the machine is on NUMA node 0, and its CPU on 1.
			{"right", "--require MemoryLocal", proof.MemoryLocal, failed, 1},
			{"throttled", "--require CPUQuota", v1alpha1.ProofCPUQuota, failed, 1},
			{"user", "--require CPUQuota", v1alpha1.ProofCPUQuota, unknown, 2},
			{"user", "--require ThreadsOnCPUs", proof.ThreadsOnCPUs, unknown, 2},
			{"user", "--require MemoryLocal", proof.MemoryLocal, unknown, 2},
			{"root", "--require CPUQuota", v1alpha1.ProofCPUQuota, proved, 0},
			{"onload", "", v1alpha1.ProofAcceleration, failed, 0},
			{"half", "--require ThreadsOnCPUs", proof.ThreadsOnCPUs, proved, 0},
			// From the node, nothing is simulated: there are no VFs and NUMA nodes (test/lab/devices has real ones).
			{"right", "--from node --require ThreadsOnCPUs,MTU=1500,CPUQuota,Link", v1alpha1.ProofMTU, proved, 0},
			{"right", "--from node --require Function=VF", v1alpha1.ProofFunction, failed, 1},
			{"burstable", "--from node --require CPUsExclusive", v1alpha1.ProofCPUsExclusive, failed, 1},
			{"throttled", "--from node --require CPUQuota", v1alpha1.ProofCPUQuota, failed, 1},
			// What an ephemeral container does not see, or has no room for.
			{"user", "--from node --require CPUQuota,ThreadsOnCPUs", proof.ThreadsOnCPUs, proved, 0},
			{"full", "--from node --require ThreadsOnCPUs", proof.ThreadsOnCPUs, proved, 0},
			{"onload", "--from node --require Acceleration", v1alpha1.ProofAcceleration, failed, 1},
		} {
			By(c.name + " " + c.args)
			code, all, _ := whenMeasured(ctx, append([]string{"guest-" + c.name}, strings.Fields(c.args)...)...)
			Expect(all).To(HaveLen(1))
			Expect(all[0].states(c.check)).To(ContainElement(c.want))
			if c.want != proved {
				Expect(all[0].states(c.check)).NotTo(ContainElement(proved))
			}
			if c.name != "right" {
				Expect(all[0].states(v1alpha1.ProofCPUsExclusive)).NotTo(ContainElement(proved))
			}
			Expect(code).To(Equal(c.code))
		}

		By("the conditions of a stored benchmark, which its client had, and a pod without its settings has not")
		code, all, _ = whenMeasured(ctx, "guest-right", "--like", "lbench/like")
		Expect(all).To(HaveLen(1))
		likeness := all[0].Lines[len(all[0].Lines)-1]
		Expect(likeness).To(And(HaveField("Check", proof.Like), HaveField("State", BeElementOf(proved, failed, unknown))))
		Expect(code).To(Equal(map[v1alpha1.ProofState]int{proved: 0, failed: 1, unknown: 2}[likeness.State]))

		By("what cannot be inspected")
		for args, want := range map[string]string{
			"guest-full":                     "MiB of memory, and the inspection needs",
			"guest-small":                    "its memory limit is 24Mi",
			"guest-right -c none":            `no container "none"; there are app`,
			"guest-none":                     `"guest-none" not found`,
			"guest-right --like lbench/none": "there is no LatencyBenchmark none",
			"-l guest=none":                  "has no running pod",
			"guest-shared --as system:serviceaccount:default:nobody --image x": "grant ClusterRole tailgate-inspect",
		} {
			code, all, said := inspectPods(ctx, strings.Fields(args)...)
			Expect(code).To(Equal(3), args)
			Expect(all).To(BeEmpty(), args)
			Expect(said).To(And(ContainSubstring(want), HaveSuffix("\n"), Not(MatchRegexp("\n.+"))), args)
		}

		By("a thread in another cgroup")
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", programOfGuest(right, "tailgate-agent")))
		Expect(err).NotTo(HaveOccurred())
		if _, err := os.Stat("/sys/fs/cgroup/cpuset/tasks"); err == nil { // of version 1: version 2 moves whole processes
			Expect(os.WriteFile("/sys/fs/cgroup/cpuset/tasks", []byte(filepath.Base(tasks[len(tasks)-1])), 0o644)).To(Succeed())
			code, all, _ = whenMeasured(ctx, "guest-right", "--require", "ThreadsOnCPUs")
			Expect(all[0].states(proof.ThreadsOnCPUs)).To(ConsistOf(failed))
			Expect(code).To(Equal(1))
		}

		By("the status of a gate that names the pods")
		gate := undemandingGate()
		gate.Spec.NodeSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpExists}}}
		gate.Spec.Enforcement, gate.Spec.Suspend = v1alpha1.Enforcement{Mode: v1alpha1.EnforcementObserve}, true
		for name, require := range map[string]string{"half": proof.ThreadsOnCPUs, "small": proof.ThreadsOnCPUs, "throttled": v1alpha1.ProofCPUQuota} {
			gate.Spec.Workloads = append(gate.Spec.Workloads, v1alpha1.GateWorkload{Name: name, Namespace: namespace, Selector: "guest=" + name, Require: require})
		}
		Expect(kube.Create(ctx, gate)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(kube.Delete(ctx, gate)).To(Succeed())
			eventuallyGone(ctx, gate)
			Expect(kube.DeleteAllOf(ctx, &v1alpha1.LatencyVerification{})).To(Succeed())
		})
		Eventually(func() []v1alpha1.WorkloadStatus {
			Expect(kube.Get(ctx, client.ObjectKeyFromObject(gate), gate)).To(Succeed())
			return gate.Status.Workloads
		}).WithTimeout(4 * soon).Should(ConsistOf(
			And(HaveField("Name", "half"), HaveField("Pods", BeEquivalentTo(1)), HaveField("Proved", BeEquivalentTo(1)), HaveField("Others", BeEmpty())),
			And(HaveField("Name", "small"), HaveField("Others", ConsistOf(HaveField("Message", ContainSubstring("no inspection"))))),
			And(HaveField("Name", "throttled"), HaveField("Others", ConsistOf(And(HaveField("NodeName", here.Server), HaveField("Failed", ConsistOf(v1alpha1.ProofCPUQuota)))))),
		))

		By("a network-status of another interface")
		var status []map[string]any
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(right), right)).To(Succeed())
		Expect(json.Unmarshal([]byte(right.Annotations[foreign.AnnotationNetworkStatus]), &status)).To(Succeed())
		for _, s := range status {
			if s["interface"] == "net1" {
				s["mac"] = "0a:58:00:00:00:01"
			}
		}
		stale, err := json.Marshal(status)
		Expect(err).NotTo(HaveOccurred())
		before := right.DeepCopy()
		right.Annotations[foreign.AnnotationNetworkStatus] = string(stale)
		Expect(kube.Patch(ctx, right, client.MergeFrom(before))).To(Succeed())
		code, all, _ = whenMeasured(ctx, "guest-right", "--require", "Device")
		Expect(all[0].states(v1alpha1.ProofDevice)).To(ConsistOf(failed))
		Expect(code).To(Equal(1))

		By("a namespace that forbids ephemeral containers of root since the pod runs")
		label := func(ctx context.Context, value *string) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
			patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{"pod-security.kubernetes.io/enforce": value}}})
			Expect(kube.Patch(ctx, ns, client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
		}
		label(ctx, ptr.To("restricted"))
		DeferCleanup(label, (*string)(nil))
		code, all, said = whenMeasured(ctx, "guest-root")
		Expect(code).To(Equal(3))
		Expect(said).To(And(ContainSubstring("violates PodSecurity"), Not(ContainSubstring("grant ClusterRole"))))
		code, all, _ = whenMeasured(ctx, "guest-burstable")
		Expect(code).To(BeZero())
		Expect(all).To(HaveLen(1))
		code, _, said = inspectPods(ctx, "guest-burstable", "--from", "node")
		Expect(code).To(Equal(3))
		Expect(said).To(ContainSubstring("namespace " + namespace + " allows no privileged pod; give another one"))
		code, all, _ = inspectPods(ctx, "guest-burstable", "--from", "node/default")
		Expect(code).To(BeZero())
		Expect(all).To(HaveLen(1))

		helpers := &corev1.PodList{}
		Expect(kube.List(ctx, helpers)).To(Succeed())
		Expect(slices.DeleteFunc(helpers.Items, func(p corev1.Pod) bool {
			return !strings.HasPrefix(p.Name, pods.InspectPrefix) || p.DeletionTimestamp != nil
		})).To(BeEmpty())
		undisturbed(ctx, guests...)
	})

	It("watches a pod in one ephemeral container, and shows what changes meanwhile", func(ctx context.Context) {
		p := guest(ctx, "watched", hold, "1", "80Mi")
		settle(ctx, p)
		watch := func(args ...string) (out, said *gbytes.Buffer, codes chan int) {
			out, said, codes = gbytes.NewBuffer(), gbytes.NewBuffer(), make(chan int, 1)
			args = append([]string{"inspect", "guest-watched", "-n", namespace, "--kubeconfig", kubeconfig, "--memory-free", "--timeout", "2m", "--watch=5s"}, args...)
			go func() {
				defer GinkgoRecover()
				codes <- cli.Run(ctx, args, io.MultiWriter(out, GinkgoWriter), io.MultiWriter(said, GinkgoWriter))
			}()
			return out, said, codes
		}
		out, said, codes := watch("--watch-for", "50s", "--require", "ThreadsOnCPUs")
		Eventually(out).WithTimeout(measured).Should(gbytes.Say(`Proved +ThreadsOnCPUs`))

		By("a thread that leaves the CPUs of its container, and comes back")
		if _, err := os.Stat("/sys/fs/cgroup/cpuset/tasks"); err == nil { // of version 1: version 2 moves whole processes
			process := programOfGuest(p, "tailgate-agent")
			own := cpusetOf(process)
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", process))
			Expect(err).NotTo(HaveOccurred())
			thread := []byte(filepath.Base(threads[len(threads)-1]))
			Expect(os.WriteFile("/sys/fs/cgroup/cpuset/tasks", thread, 0o644)).To(Succeed())
			Eventually(out).WithTimeout(soon).Should(gbytes.Say(`guest-watched ThreadsOnCPUs: Failed, was Proved: `))
			Expect(os.WriteFile(filepath.Join(own, "tasks"), thread, 0o644)).To(Succeed())
			Eventually(out).WithTimeout(soon).Should(gbytes.Say(`guest-watched ThreadsOnCPUs: Proved, was Failed: `))
			Eventually(codes).WithTimeout(measured).Should(Receive(Equal(1)))
		} else {
			Eventually(codes).WithTimeout(measured).Should(Receive(BeZero()))
		}
		Expect(said.Contents()).To(BeEmpty())
		undisturbed(ctx, p)
		Expect(p.Spec.EphemeralContainers).To(HaveLen(1))
		Expect(p.Status.EphemeralContainerStatuses).To(ConsistOf(HaveField("State.Terminated", HaveField("ExitCode", BeZero()))))

		By("a pod that is deleted")
		out, said, codes = watch("-o", "json")
		Eventually(out).WithTimeout(measured).Should(gbytes.Say(`(?s)"time":.*\n.*"time":`))
		Expect(kube.Delete(ctx, p)).To(Succeed())
		Eventually(codes).WithTimeout(measured).Should(Receive(Equal(3)))
		Expect(string(said.Contents())).To(MatchRegexp(`pod .*/guest-watched: (the pod (is being|was) deleted|container app ended or restarted)[^\n]*\n$`))
	})

	It("needs no other right than ClusterRole tailgate-inspect in the namespace, and refuses pods that do not run", func(ctx context.Context) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "inspector", Namespace: namespace}}
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "inspector", Namespace: namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tailgate-inspect"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: namespace}},
		}
		for _, o := range []client.Object{account, binding} {
			Expect(kube.Create(ctx, o)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(kube.Delete(ctx, o)).To(Succeed()) })
		}
		unlimited := guest(ctx, "unlimited", hold, "", "")
		settle(ctx, unlimited)
		as := []string{"--as", "system:serviceaccount:" + namespace + ":inspector", "--image", benchImage(ctx)}
		code, all, _ := whenMeasured(ctx, append(as, "guest-unlimited", "--require", "ThreadsOnCPUs")...)
		Expect(code).To(BeZero())
		Expect(all).To(HaveLen(1))
		Expect(all[0].states(v1alpha1.ProofCPUsExclusive)).To(ConsistOf(failed))

		crashing := guest(ctx, "crashing", "/usr/local/bin/tailgate-agent nonsense", "", "")
		pending := guest(ctx, "pending", hold, "", "", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"no": "node"} })
		ended := guest(ctx, "ended", "/usr/local/bin/tailgate-agent nonsense", "", "", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
		for _, p := range []*corev1.Pod{crashing, pending, ended} {
			Expect(kube.Create(ctx, p)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(kube.Delete(ctx, p))).To(Succeed()) })
		}
		// A container that crash-loops also runs now and then.
		Eventually(func() []corev1.ContainerStatus {
			Expect(kube.Get(ctx, client.ObjectKeyFromObject(crashing), crashing)).To(Succeed())
			return crashing.Status.ContainerStatuses
		}).WithTimeout(measured).Should(ContainElement(HaveField("State.Waiting", HaveField("Reason", "CrashLoopBackOff"))))
		Eventually(func() corev1.PodPhase {
			Expect(kube.Get(ctx, client.ObjectKeyFromObject(ended), ended)).To(Succeed())
			return ended.Status.Phase
		}).WithTimeout(measured).Should(Equal(corev1.PodFailed))
		for name, want := range map[string]string{"crashing": "restarts again and again", "pending": "does not run; wait", "ended": "has ended"} {
			code, _, said := inspectPods(ctx, "guest-"+name)
			Expect(code).To(Equal(3))
			Expect(said).To(And(ContainSubstring(want), HaveSuffix("\n"), Not(MatchRegexp("\n.+"))), name)
		}
		undisturbed(ctx, unlimited)
	})
})
