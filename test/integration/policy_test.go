package integration

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clientrecord "k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// The policies of config/policy are installed for the whole suite, so that every spec of a gate or benchmark shows that they let the
// manager do its work. The specs here have the user of the manager with all rights: what is refused is refused by the policies.
var _ = Describe("The policies of config/policy", func() {
	patch := func(ctx context.Context, o client.Object, kind types.PatchType, data string, options ...client.PatchOption) error {
		return as(managerUser).Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(kind, []byte(data)), options...)
	}
	patchStatus := func(ctx context.Context, o client.Object, kind types.PatchType, data string) error {
		return as(managerUser).Status().Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(kind, []byte(data)))
	}

	patchAs := func(ctx context.Context, c client.Client, o client.Object, data string) error {
		return c.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(data)))
	}

	It("let the manager write its marks of a Node, and nothing else", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		build := MakeNode(namespace + "-a")
		build.Annotations, build.Labels["own"] = map[string]string{"any": "note"}, "label"
		node := (&World{Place: Place{Namespace: namespace}}).AddNode(ctx, build)
		const foreignTaint = `{"key":"other","effect":"NoSchedule"}`
		own := fmt.Sprintf(`{"key":%q,"effect":"NoSchedule"}`, v1alpha1.NodeTaintUnverified)
		Expect(k8s.Patch(ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":[`+foreignTaint+`]}}`)))).To(Succeed())
		refused := MatchError(ContainSubstring("of a node, the manager writes only"))
		cordon := func() error {
			return patch(ctx, node, types.MergePatchType, `{"spec":{"unschedulable":true}}`, client.DryRunAll)
		}
		Eventually(cordon).Should(refused)
		for _, data := range []string{
			`{"spec":{"taints":null}}`, `{"spec":{"taints":[` + own + `]}}`, `{"spec":{"taints":[` + foreignTaint + `,{"key":"more","effect":"NoExecute"}]}}`,
			`{"spec":{"providerID":"other"}}`, `{"metadata":{"labels":{"any":"label"}}}`, `{"metadata":{"labels":{"own":null}}}`,
			`{"metadata":{"labels":{"own":"other"}}}`, `{"metadata":{"annotations":{"other":"note"}}}`, `{"metadata":{"annotations":null}}`,
			`{"metadata":{"finalizers":["any.example/finalizer"]}}`,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"x","uid":"y"}]}}`,
		} {
			Expect(patch(ctx, node, types.MergePatchType, data)).To(refused, data)
		}
		for _, data := range []string{
			`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, `{"status":{"conditions":[{"type":"Other","status":"True"}]}}`,
			`{"status":{"conditions":[{"type":"Ready","$patch":"delete"}]}}`, `{"status":{"capacity":{"cpu":"1"}}}`, `{"status":{"allocatable":{"cpu":"1"}}}`,
			`{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`, `{"status":{"nodeInfo":{"bootID":"other"}}}`,
			`{"metadata":{"labels":{"any":"label"}}}`, `{"metadata":{"annotations":{"other":"note"}}}`,
		} {
			Expect(patchStatus(ctx, node, types.StrategicMergePatchType, data)).To(refused, data)
		}
		By("its marks")
		Expect(patch(ctx, node, types.MergePatchType, `{"metadata":{"labels":{"tailgate.dev/latency-verified":"false"}},"spec":{"taints":[`+foreignTaint+`,`+own+`]}}`)).To(Succeed())
		for _, kind := range []string{"tailgate.dev/LatencyVerified", "tailgate.dev/LatencyRegressed"} {
			for _, change := range []string{`"status":"False"`, `"status":"True","message":"m"`, `"$patch":"delete"`} {
				Expect(patchStatus(ctx, node, types.StrategicMergePatchType, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,%s}]}}`, kind, change))).To(Succeed())
			}
		}
		Expect(patch(ctx, node, types.MergePatchType, `{"metadata":{"labels":{"tailgate.dev/latency-verified":null}},"spec":{"taints":[`+foreignTaint+`]}}`)).To(Succeed())
		By("other users")
		Expect(k8s.Patch(ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null,"unschedulable":true}}`)))).To(Succeed())
	})

	It("let the manager create and delete its pods alone, and write one condition of hold pods", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		b := MakeBenchmark(namespace, "b").Obj()
		b.UID = uuid.NewUUID()
		pod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
			e := pods.Endpoint{Benchmark: b, Image: "i", Node: "n", Variant: plan.Variants(b.Spec)[0], Task: plan.Task{Run: "b-r1", Role: v1alpha1.RoleServer}, ServiceAccount: "default", Name: name, Scratch: true}
			e.Variant.Capture = v1alpha1.CaptureServer
			p, err := pods.Build(e)
			Expect(err).NotTo(HaveOccurred())
			if change != nil {
				change(p)
			}
			return p
		}
		volume := func(source corev1.VolumeSource) func(*corev1.Pod) {
			return func(p *corev1.Pod) { p.Spec.Volumes[0].VolumeSource = source }
		}
		secret := corev1.LocalObjectReference{Name: "other"}
		refused := MatchError(MatchRegexp("the manager creates only the pods|(pods|containers) of the manager "))
		Eventually(func() error {
			return as(managerUser).Create(ctx, pod("b-r1-a1-server", func(p *corev1.Pod) { p.Labels = nil }), client.DryRunAll)
		}).Should(refused)
		for name, change := range map[string]func(*corev1.Pod){
			"of another program": func(p *corev1.Pod) { p.Labels[v1alpha1.LabelManagedBy] = "other" },
			"with a token":       func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil },
			"hostPID":            func(p *corev1.Pod) { p.Spec.ShareProcessNamespace, p.Spec.HostPID = nil, true },
			"hostIPC":            func(p *corev1.Pod) { p.Spec.HostIPC = true },
			"hostPath":           volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
			"a Secret":           volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "other"}}),
			"a token": volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "a"}},
			}}}),
			"a Secret by CSI":        volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets-store.csi.k8s.io", NodePublishSecretRef: &secret}}),
			"a Secret of Azure":      volume(corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "other", ShareName: "s"}}),
			"the volume of a tenant": volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "db"}}),
			"envFrom": func(p *corev1.Pod) {
				p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: secret}}}
			},
			"another key": func(p *corev1.Pod) { p.OwnerReferences[0].UID = uuid.NewUUID() },
			"SELinux":     func(p *corev1.Pod) { p.Spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"} },
			"AppArmor": func(p *corev1.Pod) {
				p.Annotations["container.apparmor.security.beta.kubernetes.io/agent"] = "unconfined"
			},
			"a priority": func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" },
			"another capability": func(p *corev1.Pod) {
				p.Spec.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"}
			},
			"a MAC address": func(p *corev1.Pod) {
				p.Annotations["k8s.v1.cni.cncf.io/networks"] = `[{"name":"x","namespace":"y","interface":"net1","mac":"02:00:00:00:00:01"}]`
			},
			"no deadline":        func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil },
			"a year of grace":    func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(365 * 24 * 3600)) },
			"restarts":           func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways },
			"service links":      func(p *corev1.Pod) { p.Spec.EnableServiceLinks = nil },
			"a container before": func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "i"}} },
		} {
			Expect(as(managerUser).Create(ctx, pod("b-r1-a1-server", change), client.DryRunAll)).To(refused, name)
		}
		plain := pod("b-r1-a1-server", nil)
		Expect(as(managerUser).Create(ctx, plain)).To(Succeed())
		held := pod("g-n-0123abcd-hold", func(p *corev1.Pod) {
			p.Spec.Containers[0].Command, p.Spec.Containers[0].Args = []string{pods.Agent, "hold"}, nil
		})
		Expect(k8s.Create(ctx, held)).To(Succeed())
		stranger := pod("stranger", func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"sh"} })
		Expect(k8s.Create(ctx, stranger)).To(Succeed())
		ours := `{"status":{"conditions":[{"type":"tailgate.dev/LatencyVerified","status":"True"}]}}`
		refused = MatchError(ContainSubstring("of the status of pods, the manager writes only"))
		Expect(patchStatus(ctx, plain, types.StrategicMergePatchType, ours)).To(refused)
		Expect(patchStatus(ctx, held, types.StrategicMergePatchType, ours)).To(Succeed())
		for _, data := range []string{
			`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, `{"status":{"podIP":"192.0.2.1","podIPs":[{"ip":"192.0.2.1"}]}}`, `{"status":{"phase":"Running"}}`,
			`{"metadata":{"labels":{"any":"label"}}}`, `{"metadata":{"annotations":{"any":"note"}}}`,
		} {
			Expect(patchStatus(ctx, held, types.StrategicMergePatchType, data)).To(refused, data)
		}
		Expect(as(managerUser).Delete(ctx, stranger)).To(MatchError(ContainSubstring("deletes only pods that run the agent")))
		Expect(as(managerUser).Delete(ctx, plain)).To(Succeed())
	})

	It("let the manager create the Secrets of benchmarks", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		b := MakeBenchmark(namespace, "b").Obj()
		b.UID = uuid.NewUUID()
		secret := func(change func(*corev1.Secret)) *corev1.Secret {
			s := pods.Secret(b, "key")
			change(s)
			return s
		}
		refused := MatchError(ContainSubstring("the manager creates only the Secrets of benchmarks"))
		Eventually(func() error {
			return as(managerUser).Create(ctx, secret(func(s *corev1.Secret) { s.OwnerReferences = nil }), client.DryRunAll)
		}).Should(refused)
		// An admission plugin of this suite's API server refuses owners of unknown kinds that block the owner's deletion.
		owned := func(group, kind string) func(*corev1.Secret) {
			return func(s *corev1.Secret) {
				o := &s.OwnerReferences[0]
				o.APIVersion, o.Kind, o.BlockOwnerDeletion = group, kind, nil
			}
		}
		for name, change := range map[string]func(*corev1.Secret){
			"another name":  func(s *corev1.Secret) { s.Name = "bootstrap-token-abcdef" },
			"another owner": func(s *corev1.Secret) { s.OwnerReferences[0].UID = "0b" },
			"another kind":  owned(v1alpha1.GroupVersion.String(), "Node"),
			"another group": owned("v1", "LatencyBenchmark"),
			"another type":  func(s *corev1.Secret) { s.Type, s.StringData["username"] = corev1.SecretTypeBasicAuth, "u" },
		} {
			Expect(as(managerUser).Create(ctx, secret(change), client.DryRunAll)).To(refused, name)
		}
		Expect(as(managerUser).Create(ctx, secret(func(*corev1.Secret) {}), client.DryRunAll)).To(Succeed())
	})

	It("let the manager elect a leader and write its events, and no other Lease and event", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "all"}}
		role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io", "events.k8s.io", ""}, Resources: []string{"leases", "events"}, Verbs: []string{"*"}}}
		Expect(k8s.Create(ctx, role)).To(Succeed())
		Expect(k8s.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role.Name}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: managerUser}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		})).To(Succeed())
		own := rest.CopyConfig(config)
		own.Impersonate = rest.ImpersonationConfig{UserName: managerUser, Groups: []string{writers}}
		clients, err := kubernetes.NewForConfig(own)
		Expect(err).NotTo(HaveOccurred())
		id := "manager_" + string(uuid.NewUUID())
		election, broadcaster := clientrecord.NewBroadcaster(), events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.EventsV1()})
		DeferCleanup(election.Shutdown)
		DeferCleanup(broadcaster.Shutdown)
		election.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")})
		Expect(broadcaster.StartRecordingToSinkWithContext(ctx)).To(Succeed())
		lock := &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "manager.tailgate.dev"}, Client: clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: id, EventRecorder: election.NewRecorder(scheme, corev1.EventSource{Component: id})},
		}
		Expect(lock.Create(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: id, LeaseDurationSeconds: 15})).To(Succeed())
		lease := &coordinationv1.Lease{ObjectMeta: lock.LeaseMeta}
		note := func(o client.Object) {
			Expect(k8s.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"any":"label"},"annotations":{"any":"note"},"finalizers":["example.com/any"]}}`)))).To(Succeed())
		}
		note(lease)
		DeferCleanup(func(ctx SpecContext) {
			Expect(k8s.Patch(ctx, lease, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		})
		_, _, err = lock.Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(lock.Update(ctx, resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1, LeaderTransitions: 1})).To(Succeed(), "whatever a user wrote before")
		for _, data := range []string{`{"metadata":{"labels":{"any":"other"}}}`, `{"metadata":{"finalizers":null}}`, `{"spec":{"leaseDurationSeconds":3600}}`} {
			Expect(patch(ctx, lease, types.MergePatchType, data, client.DryRunAll)).To(MatchError(MatchRegexp("(no Lease|only the Lease)")), data)
		}
		lock.RecordEvent("became leader")
		recorder := broadcaster.NewRecorder(scheme, "tailgate")
		b, v := MakeBenchmark(namespace, "b").Obj(), &v1alpha1.LatencyVerification{ObjectMeta: metav1.ObjectMeta{Name: "g-n"}}
		for range 3 { // a series
			recorder.Eventf(b, v, corev1.EventTypeNormal, "Any", "Measure", "note")
		}
		written := &eventsv1.EventList{}
		Eventually(func(g Gomega) {
			g.Expect(k8s.List(ctx, written, client.InNamespace(namespace))).To(Succeed())
			g.Expect(written.Items).To(ConsistOf(HaveField("Reason", "LeaderElection"), And(HaveField("Reason", "Any"), HaveField("Series", Not(BeNil())))))
		}).Should(Succeed())
		for _, e := range written.Items {
			note(&e)
			if e.Reason == "Any" {
				Expect(patch(ctx, &e, types.MergePatchType, `{"series":{"count":9,"lastObservedTime":"2026-05-04T12:00:00.000000Z"}}`)).To(Succeed(), "whatever a user wrote before")
			}
			Expect(patch(ctx, &e, types.MergePatchType, `{"note":"other"}`)).NotTo(Succeed())
			Expect(k8s.Patch(ctx, &e, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		}
		other := &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}, EventTime: metav1.NowMicro(), ReportingController: "tailgate", ReportingInstance: "tailgate-a", Action: "A",
			Reason: "R", Type: corev1.EventTypeNormal, Regarding: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: "d"},
		}
		Expect(as(managerUser).Create(ctx, other)).To(MatchError(ContainSubstring("the manager writes only events about its own kinds and Nodes")))
	})

	It("let the manager restore a budget and create verifications, whatever users and webhooks write", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "tailgate-hold-g", OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyGate", Name: "g", UID: uuid.NewUUID(), Controller: new(true)}},
		}}
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelHold: "true", v1alpha1.LabelGate: "g"}}
		budget.Spec.MinAvailable = new(intstr.FromInt32(2))
		Expect(as(managerUser).Create(ctx, budget)).To(Succeed())
		Expect(k8s.Patch(ctx, budget, client.RawPatch(types.MergePatchType, []byte(
			`{"metadata":{"labels":{"any":"label"},"annotations":{"any":"note"},"finalizers":["example.com/any"]},"spec":{"minAvailable":0}}`)))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(k8s.Patch(ctx, budget, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		})
		budget.Spec.MinAvailable = new(intstr.FromInt32(2))
		Expect(as(managerUser).Update(ctx, budget)).To(Succeed())
		for _, data := range []string{`{"metadata":{"finalizers":null}}`, `{"metadata":{"labels":null}}`, `{"metadata":{"ownerReferences":null}}`} {
			Expect(patch(ctx, budget, types.MergePatchType, data)).To(MatchError(ContainSubstring("of the metadata of a budget, the manager changes nothing")), data)
		}
		Expect(as(managerUser).Delete(ctx, budget, client.DryRunAll)).To(Succeed())
		v := &v1alpha1.LatencyVerification{ObjectMeta: metav1.ObjectMeta{Name: namespace, Finalizers: []string{v1alpha1.FinalizerNode}}, Spec: v1alpha1.LatencyVerificationSpec{GateName: "g", NodeName: "n"}}
		v.Labels, v.Annotations = map[string]string{"company.example/team": "perf"}, map[string]string{"policies.kyverno.io/last-applied-patches": "x"}
		Expect(as(managerUser).Create(ctx, v, client.DryRunAll)).To(Succeed())
		v.Labels["argocd.argoproj.io/instance"], v.ResourceVersion = "x", ""
		Expect(as(managerUser).Create(ctx, v, client.DryRunAll)).To(MatchError(ContainSubstring("no labels on which other controllers act")))
	})

	It("let only the manager create Secrets with the names of keys", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		b := MakeBenchmark(namespace, "b").Obj()
		b.UID = uuid.NewUUID()
		create := func(c client.Client, name string) error {
			s := pods.Secret(b, "key")
			s.Name = name
			return c.Create(ctx, s, client.DryRunAll)
		}
		Eventually(create).WithArguments(k8s, pods.SecretName(b)).Should(MatchError(ContainSubstring("are the manager's to create")))
		Expect(create(k8s, "tailgate-serving-cert")).To(Succeed())
		Expect(create(as(managerUser), pods.SecretName(b))).To(Succeed())
	})

	It("refuse to delete or evict the operator's pods with a grace period of more than ten minutes", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		pod := func(name, command string) *corev1.Pod {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Command: []string{command}}, {Name: "d", Image: "i"}}
			p.Spec.NodeName = "node-of-" + name // A pod without a node ends at once, whatever its grace period is.
			Expect(k8s.Create(ctx, p)).To(Succeed())
			return p
		}
		remove := func(p *corev1.Pod, seconds int64) error {
			return k8s.Delete(ctx, p, client.DryRunAll, client.GracePeriodSeconds(seconds))
		}
		evict := func(p *corev1.Pod, seconds int64) error {
			return k8s.SubResource("eviction").Create(ctx, p, &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: &seconds, DryRun: []string{metav1.DryRunAll}}})
		}
		refused := MatchError(ContainSubstring("delete or evict them with a grace period of at most 600 seconds"))
		own, hold := pod("b-r1-a1-server", "/usr/local/bin/tailgate-agent"), pod("g-n-0123abcd-hold", "/usr/local/bin/tailgate-agent")
		Eventually(remove).WithArguments(own, int64(601)).Should(refused)
		Expect(k8s.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.DryRunAll, client.GracePeriodSeconds(601))).NotTo(Succeed())
		retried := pod("b-r1-a2-server-0a1b2c3d4e", "/usr/local/bin/tailgate-agent") // after another pod had taken the name
		for _, p := range []*corev1.Pod{own, retried, hold} {
			Expect(remove(p, 365*24*3600)).To(refused)
			Expect(evict(p, 601)).To(refused)
			Expect(remove(p, 600)).To(Succeed())
			Expect(evict(p, 600)).To(Succeed())
			Expect(k8s.Delete(ctx, p, client.DryRunAll)).To(Succeed(), "with its own")
			Expect(k8s.SubResource("eviction").Create(ctx, p, &policyv1.Eviction{})).To(Succeed())
		}
		other := pod("other", "/bin/sh")
		Expect(remove(other, 365*24*3600)).To(Succeed(), "pods of others")
		Expect(evict(other, 365*24*3600)).To(Succeed())
	})

	It("refuse what would make a benchmark, or a pod of the operator, too large to be written", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		b := MakeBenchmark(namespace, "b").Obj()
		Expect(k8s.Create(ctx, b)).To(Succeed())
		hold := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "g-n-0123abcd-hold", Labels: map[string]string{v1alpha1.LabelHold: "true"}}}
		hold.Spec.Containers = []corev1.Container{{Name: "hold", Image: "i", Command: []string{"/usr/local/bin/tailgate-agent", "hold"}}}
		other := hold.DeepCopy()
		other.Name, other.Spec.Containers[0].Command = "other", []string{"/bin/sh"}
		Expect(k8s.Create(ctx, hold)).To(Succeed())
		Expect(k8s.Create(ctx, other)).To(Succeed())
		texts := func(n int) map[string]string {
			all := map[string]string{}
			for i := range n {
				all[fmt.Sprintf("x%d", i)] = ""
			}
			return all
		}
		fill := map[string]func(o client.Object, n int){
			"labels": func(o client.Object, n int) {
				all := texts(n)
				maps.Copy(all, o.GetLabels())
				o.SetLabels(all)
			},
			"annotations": func(o client.Object, n int) { o.SetAnnotations(texts(n)) },
			"finalizers": func(o client.Object, n int) {
				var all []string
				for i := range n / 4 {
					all = append(all, fmt.Sprintf("example.com/%d", i))
				}
				o.SetFinalizers(all)
			},
			"owners": func(o client.Object, n int) {
				o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", UID: "u", Name: strings.Repeat("n", 12*n)}})
			},
		}
		refused := MatchError(ContainSubstring("at most 64 labels"))
		for what, with := range fill {
			update := func(o client.Object, n int, subresource string) error {
				o = o.DeepCopyObject().(client.Object)
				Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
				if with(o, n); subresource == "status" {
					return k8s.Status().Update(ctx, o, client.DryRunAll)
				}
				return k8s.Update(ctx, o, client.DryRunAll)
			}
			Eventually(update).WithArguments(hold, 100, "").Should(refused, what)
			Expect(update(b, 100, "")).To(refused, what)
			if what != "owners" { // A write of a pod's status changes none.
				Expect(update(hold, 200, "status")).To(refused, what)
			}
			for _, o := range []client.Object{b, hold} {
				Expect(update(o, 60, "")).To(Succeed(), what)
			}
			Expect(update(other, 100, "")).To(Succeed(), "pods of others: "+what)
		}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(hold), hold)).To(Succeed())
		hold.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Image: "i"}}}
		Expect(k8s.SubResource("ephemeralcontainers").Update(ctx, hold, client.DryRunAll)).To(MatchError(ContainSubstring("get no ephemeral containers")))
		hold.Spec.EphemeralContainers = nil
		relabelled := func(o client.Object, value string) error {
			return k8s.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tailgate.dev/hold":`+value+`}}}`)), client.DryRunAll)
		}
		for _, value := range []string{`null`, `"false"`} {
			Expect(relabelled(hold, value)).To(MatchError(ContainSubstring("stay as they are")))
			Expect(relabelled(other, value)).To(Succeed(), "a pod of others")
		}
		apply := func(i int) error {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
				"namespace": namespace, "name": hold.Name, "labels": map[string]any{fmt.Sprintf("m%d", i): ""}}}}
			return k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fmt.Sprint("m", i)))
		}
		n := 0
		for apply(n) == nil && n < 30 {
			n++
		}
		Expect(n).To(And(BeNumerically(">", 8), BeNumerically("<", 20)), "field managers")
		By("a network plugin, which has its own user, after users filled the pod")
		for i := range 64 {
			_ = patchAs(ctx, k8s, hold, fmt.Sprintf(`{"metadata":{"annotations":{"x%d":""}}}`, i))
		}
		Expect(patchAs(ctx, k8s, hold, `{"metadata":{"annotations":{"one.more":""}}}`)).To(refused)
		for i := range 4 {
			status := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/n%d":"x"}}}`, i))
			Expect(k8s.Status().Patch(ctx, hold.DeepCopy(), status, client.FieldOwner(fmt.Sprint("plugin", i)))).To(Succeed())
		}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(hold), hold)).To(Succeed())
		hold.Status.Conditions = append(hold.Status.Conditions, corev1.PodCondition{Type: v1alpha1.NodeConditionVerified, Status: corev1.ConditionFalse})
		Expect(as(managerUser).Status().Update(ctx, hold)).To(Succeed(), "the manager still says that the node is not verified")
	})

	It("let users of tailgate-gate-operate write the two requests of verifications, in their own names", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		role := clusterRoles("users.yaml")["tailgate-gate-operate"]
		// An admission plugin of this suite's API server refuses changes of owners to users who may not delete the object.
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"latencyverifications"}, Verbs: []string{"delete"}})
		Expect(k8s.Create(ctx, role)).To(Succeed())
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: namespace}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		}
		Expect(k8s.Create(ctx, binding)).To(Succeed())
		v := &v1alpha1.LatencyVerification{
			ObjectMeta: metav1.ObjectMeta{
				Name: namespace, Labels: map[string]string{"any": "label"}, Annotations: map[string]string{"any": "note"}, Finalizers: []string{v1alpha1.FinalizerNode},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyGate", Name: "g", UID: "0a"}},
			},
			Spec: v1alpha1.LatencyVerificationSpec{GateName: "g", NodeName: "n"},
		}
		Expect(k8s.Create(ctx, v)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(k8s.Delete(ctx, binding)).To(Succeed())
			Expect(k8s.Delete(ctx, role)).To(Succeed())
			Expect(k8s.Patch(ctx, v.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed(), "who may update is free")
			Expect(client.IgnoreNotFound(k8s.Delete(ctx, v))).To(Succeed())
		})
		own := rest.CopyConfig(config)
		own.Impersonate = rest.ImpersonationConfig{UserName: namespace}
		operator, err := client.New(own, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		write := func(data string, options ...client.PatchOption) error {
			return operator.Patch(ctx, v.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(data)), options...)
		}
		refused := MatchError(ContainSubstring("role tailgate-gate-operate allows only spec.verify and spec.accept"))
		Eventually(func() error { return write(`{"metadata":{"finalizers":null}}`, client.DryRunAll) }).Should(refused)
		for _, data := range []string{
			`{"metadata":{"ownerReferences":null}}`, `{"metadata":{"labels":{"any":"other"}}}`, `{"metadata":{"labels":null}}`,
			`{"metadata":{"annotations":{"any":"other"}}}`, `{"metadata":{"annotations":{"any":null}}}`, `{"metadata":{"annotations":{"other":"note"}}}`,
		} {
			Expect(write(data)).To(refused, data)
		}
		for _, data := range []string{
			`{"spec":{"verify":{"requestedBy":"USER","requestTime":"2026-05-04T12:00:00Z"}}}`,
			`{"spec":{"accept":{"benchmark":"b","requestedBy":"USER","requestTime":"2026-05-04T12:00:00Z"}}}`,
			`{"spec":{"verify":null,"accept":null}}`,
		} {
			Expect(write(strings.ReplaceAll(data, "USER", namespace))).To(Succeed(), data)
		}

		other := MatchError(ContainSubstring("requestedBy of spec.verify and spec.accept is the user who writes it: " + namespace))
		request := func(user, benchmark string) string {
			return fmt.Sprintf(`{"spec":{"accept":{"benchmark":%q,"requestedBy":%q,"requestTime":"2026-05-04T12:00:00Z"}}}`, benchmark, user)
		}
		Expect(write(request("other", "b"))).To(other)
		Expect(write(`{"spec":{"verify":{"requestedBy":"other","requestTime":"2026-05-04T12:00:00Z"}}}`)).To(other)
		administrator := username(ctx)
		admin := func(data string) error {
			return k8s.Patch(ctx, v.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(data)))
		}
		Expect(admin(request(namespace, "b"))).To(MatchError(ContainSubstring("is the user who writes it: "+administrator)), "whatever the rights are")
		Expect(admin(request(administrator, "b"))).To(Succeed())
		Expect(write(request(administrator, "c"))).To(other, "another benchmark in the name of who requested the first")
		Expect(write(`{"spec":{"verify":{"requestedBy":"USER","requestTime":"2026-05-04T12:00:00Z"}}}`)).To(other)
		Expect(write(fmt.Sprintf(`{"spec":{"verify":{"requestedBy":%q,"requestTime":"2026-05-04T12:00:00Z"}}}`, namespace))).To(Succeed(), "beside another user's request")
		created := &v1alpha1.LatencyVerification{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-2"}, Spec: v.Spec}
		created.Spec.Verify = new(RequestBy("other"))
		Expect(k8s.Create(ctx, created)).To(MatchError(ContainSubstring("is the user who writes it")))
	})
})

var _ = Describe("A status", func() {
	It("is written although eight users change an annotation and the spec all the time", func(ctx SpecContext) {
		b := MakeBenchmark(newNamespace(ctx), "b").Obj()
		Expect(k8s.Create(ctx, b)).To(Succeed())
		read := b.DeepCopy()
		var writes, conflicts atomic.Int32
		until, stop := context.WithCancel(ctx)
		var users sync.WaitGroup
		DeferCleanup(func() { stop(); users.Wait() })
		for range 8 {
			users.Go(func() {
				for until.Err() == nil {
					n := writes.Add(1)
					note := fmt.Appendf(nil, `{"metadata":{"annotations":{"note":"%d"}},"spec":{"suspend":%t}}`, n, n%2 == 0)
					_ = k8s.Patch(until, b.DeepCopy(), client.RawPatch(types.MergePatchType, note))
				}
			})
		}
		Eventually(writes.Load).Should(BeNumerically(">", 100))
		manager, err := client.NewWithWatch(managerConfig, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		counted := interceptor.NewClient(manager, interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, name string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				err := c.SubResource(name).Update(ctx, o, opts...)
				if apierrors.IsConflict(err) {
					conflicts.Add(1)
				}
				return err
			},
		})
		api := controllers.API{Client: counted, Live: manager, Clock: &clock{}}
		for i := range 20 {
			old := read.DeepCopy()
			read.Status.LeftPods = []v1alpha1.LeftPod{{Name: fmt.Sprint(i), UID: "u"}}
			Expect(api.WriteStatus(ctx, old, read)).To(BeTrue(), "%d: %d writes, %d conflicts", i, writes.Load(), conflicts.Load())
		}
		Expect(conflicts.Load()).To(BeNumerically(">", 10))
		stale := read.DeepCopy()
		stale.Status.LeftPods = nil // Another manager wrote meanwhile.
		now := stale.DeepCopy()
		now.Status.LeftPods = []v1alpha1.LeftPod{{Name: "of another status", UID: "u"}}
		_, err = api.WriteStatus(ctx, stale, now)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		AddReportEntry("writes of others, and conflicts", fmt.Sprint(writes.Load(), ", ", conflicts.Load()))
	})
})
