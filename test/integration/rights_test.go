package integration

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/endpoints/request"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/pods"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// The managers of this suite have only the rights of config/rbac: if a right is missing, the specs that need it fail with Forbidden.
// Conversely, the suite fails if no manager has used a right of the roles in any spec. Without any of the rights, a request of some
// spec would fail.

// writers is a group that may write all objects of Kubernetes itself: with it, the manager's user shows what policies refuse.
const writers = "tests-writers"

// managerUser is the manager's service account.
const managerUser = "system:serviceaccount:tailgate-system:manager"

// checkedByAdmission lists rights that requests do not show: the admission plugin OwnerReferencesPermissionEnforcement, which this
// suite's API server runs, checks them when an object gets an owner reference that blocks the owner's deletion, and the policies
// recognize the manager by the last one.
var checkedByAdmission = []string{
	"update latencybenchmarks/finalizers.tailgate.dev", "update latencymatrices/finalizers.tailgate.dev",
	"update latencyverifications/finalizers.tailgate.dev", "act managers.tailgate.dev",
}

// cachedByNamespace lists rights that a manager of all namespaces uses everywhere, and a manager of named ones only there.
var cachedByNamespace = []string{"list configmaps", "watch configmaps"}

// everywhere ends the entry of a right that a request used in no namespace: all of them, or an object that is in none.
const everywhere = " everywhere"

// rights holds the rights that managers of this process have used since the last report.
var rights = struct {
	sync.Mutex
	used sets.Set[string]
}{used: sets.New[string]()}

func usedRights() sets.Set[string] {
	rights.Lock()
	defer rights.Unlock()
	return rights.used.Clone()
}

// right returns the name of a right: "get pods/log".
func right(verb, group, resource, subresource string) string {
	if subresource != "" {
		resource += "/" + subresource
	}
	if group != "" {
		resource += "." + group
	}
	return verb + " " + resource
}

// recorder records the rights that requests use.
func recorder(next http.RoundTripper) http.RoundTripper {
	factory := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || response.StatusCode == http.StatusForbidden {
			return response, err
		}
		if info, infoErr := factory.NewRequestInfo(r); infoErr == nil && info.IsResourceRequest {
			rights.Lock()
			defer rights.Unlock()
			used := right(info.Verb, info.APIGroup, info.Resource, info.Subresource)
			rights.used.Insert(used)
			if info.Namespace == "" {
				rights.used.Insert(used + everywhere)
			}
		}
		return response, nil
	})
}

// managerRoles lists the files with the manager's rights.
var managerRoles = [][]string{
	{"rbac", "role.yaml"}, {"rbac", "role_binding.yaml"}, {"rbac", "gates", "role.yaml"}, {"rbac", "gates", "role_binding.yaml"},
	{"rbac", "leader_election.yaml"}, {"rbac", "metrics.yaml"}, {"rbac", "identity.yaml"},
}

// policyFiles are the files of config/policy.
var policyFiles = []string{"manager.yaml", "users.yaml"}

// clusterRolesOfNamed lists the files with what a manager of named namespaces may do outside of them, and authentication, which no
// namespace bounds.
var clusterRolesOfNamed = [][]string{
	{"named-namespaces", "cluster.yaml"}, {"named-namespaces", "gates", "cluster.yaml"}, {"rbac", "metrics.yaml"}, {"rbac", "identity.yaml"},
}

// granted returns the rights in the roles of files.
func granted(files [][]string) sets.Set[string] {
	GinkgoHelper()
	all := sets.New[string]()
	for _, path := range files {
		for _, o := range objectsOf(readConfig(path...)) {
			if !slices.Contains([]string{"Role", "ClusterRole"}, o.GetKind()) {
				continue
			}
			if o.GetNamespace() == metav1.NamespaceDefault {
				continue // events, which are in a namespace
			}
			role := &rbacv1.ClusterRole{}
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role)).To(Succeed())
			for _, rule := range role.Rules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						resource, subresource, _ := strings.Cut(resource, "/")
						for _, verb := range rule.Verbs {
							all.Insert(right(verb, group, resource, subresource))
						}
					}
				}
			}
		}
	}
	return all
}

// newManagerUser gives the manager's user its rights, and returns the configuration of its client.
func newManagerUser(ctx context.Context) *rest.Config {
	GinkgoHelper()
	Expect(k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tailgate-system"}})).To(Succeed())
	for _, path := range managerRoles {
		for _, o := range objectsOf(readConfig(path...)) {
			Expect(k8s.Create(ctx, o)).To(Succeed())
		}
	}
	// All specs run with what the API server refuses to the manager's user.
	for _, file := range policyFiles {
		for _, o := range objectsOf(readConfig("policy", file)) {
			Expect(k8s.Create(ctx, o, client.FieldValidation("Strict"))).To(Succeed())
		}
	}
	Expect(k8s.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: writers}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "apps", "policy"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	}})).To(Succeed())
	Expect(k8s.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: writers},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: writers},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: writers}},
	})).To(Succeed())
	own := rest.CopyConfig(config)
	own.BearerToken = managerToken
	own.Wrap(recorder)
	return own
}

var _ = Describe("The manager's rights", func() {
	It("are enough to elect a leader, to review tokens and rights, and to read logs", func(ctx SpecContext) {
		mgr, err := ctrl.NewManager(managerConfig, ctrl.Options{
			Scheme: scheme, HealthProbeBindAddress: "0", Metrics: metricsserver.Options{BindAddress: "0"},
			LeaderElection: true, LeaderElectionID: "manager.tailgate.dev", LeaderElectionNamespace: "tailgate-system", LeaderElectionReleaseOnCancel: true,
		})
		Expect(err).NotTo(HaveOccurred())
		own, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(own) }()
		Eventually(mgr.Elected()).Should(BeClosed())
		Eventually(usedRights).Should(HaveKey("create events"), "an event says which manager leads")
		// The recorder counts a repeated event in the first one, which is a patch.
		about := MakeBenchmark("tailgate-system", "about").Obj()
		recorder := mgr.GetEventRecorder("tailgate")
		Eventually(func() sets.Set[string] {
			recorder.Eventf(about, nil, corev1.EventTypeNormal, "Repeated", "Repeat", "an event that is repeated")
			return usedRights()
		}).Should(HaveKey("patch events.events.k8s.io"))
		stop()
		Expect(<-ended).To(Succeed())

		Expect(controllers.NewProtection(ctx, mgr.GetAPIReader(), mgr.GetClient()).Problem()).To(BeEmpty(), "the policies apply to the manager")

		reader, base := NewReader(ctx, newNamespace(ctx)), Verdicts()
		code, _, err := call(http.MethodGet, base+"/verdict/latencygates/none", reader.Token)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(http.StatusForbidden), "the review of its rights says so, and needs the manager's")

		clientset, err := kubernetes.NewForConfig(managerConfig)
		Expect(err).NotTo(HaveOccurred())
		_, err = clientset.CoreV1().Pods("default").GetLogs("none", &corev1.PodLogOptions{}).DoRaw(ctx)
		Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
	})

	It("are enough for an API server that cannot stream lists", func(ctx SpecContext) {
		clientfeaturestesting.SetFeatureDuringTest(GinkgoTB(), clientfeatures.WatchListClient, false)
		w := NewWorld(ctx)
		w.Start()
		for right := range granted(managerRoles) {
			if strings.HasPrefix(right, "watch ") {
				Eventually(usedRights).Should(HaveKey(strings.Replace(right, "watch", "list", 1)))
			}
		}
	})

	It("are enough in named namespaces, for a manager that may write only there", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Group(ctx, "1", "2")
		user := "manager-" + w.Namespace
		for _, path := range [][]string{
			{"named-namespaces", "cluster.yaml"}, {"named-namespaces", "namespace.yaml"},
			{"named-namespaces", "gates", "cluster.yaml"}, {"named-namespaces", "gates", "namespace.yaml"},
		} {
			for _, o := range objectsOf(readConfig(path...)) {
				o.SetName(o.GetName() + "-" + w.Namespace)
				if o.GetNamespace() == "perf" {
					o.SetNamespace(w.Namespace)
				}
				if role, bound, _ := unstructured.NestedString(o.Object, "roleRef", "name"); bound {
					if role != "tailgate-manager" && role != "tailgate-manager-gates" {
						Expect(unstructured.SetNestedField(o.Object, role+"-"+w.Namespace, "roleRef", "name")).To(Succeed())
					}
					o.Object["subjects"] = []any{map[string]any{"kind": "User", "apiGroup": rbacv1.GroupName, "name": user}}
				}
				create(ctx, o)
			}
		}
		w.Settings.Namespaces = controllers.Named{w.Namespace}
		w.Config = rest.CopyConfig(config)
		w.Config.Impersonate = rest.ImpersonationConfig{UserName: user}
		By("being the manager for the policy of the names of Secrets")
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "tailgate-secrets"}}
		exempt := func(ctx context.Context, users string) {
			Edit(ctx, policy, func(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
				p.Spec.MatchConditions[0].Expression = "!(request.userInfo.username in [" + users + "])"
			})
		}
		exempt(ctx, `"`+managerUser+`", "`+user+`"`)
		DeferCleanup(func(ctx SpecContext) { exempt(ctx, `"`+managerUser+`"`) })
		secret := pods.Secret(&v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "b", UID: uuid.NewUUID()}}, "key")
		Eventually(func() error { return as(user).Create(ctx, secret.DeepCopy(), client.DryRunAll) }).Should(Succeed())
		By("a benchmark outside, which is older")
		elsewhere := MakeBenchmark(newNamespace(ctx), "elsewhere").On(w.A, w.B).Obj()
		Expect(k8s.Create(ctx, elsewhere)).To(Succeed())
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
		m := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "m").AllPairs(1))
		ExpectSucceeded(ctx, b, "^True Complete")
		ExpectSucceeded(ctx, m, "^True Complete")
		Expect(Get(ctx, elsewhere).Status).To(Equal(v1alpha1.LatencyBenchmarkStatus{ObservedGeneration: -1}))
		By("a gate, with everything that it may write")
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{} }))
		w.Expect(ctx, w.A, IsVerified)
		Eventually(func() *v1alpha1.StepFailure { return w.Verification(ctx, w.A).Status.HoldPodFailure }).Should(BeNil())
		By("a gate of another namespace, which cannot measure, and says so")
		outside := MakeGate(w.Namespace).Alone(w.B, w.A).With(func(s *v1alpha1.LatencyGateSpec) { s.Namespace = elsewhere.Namespace })
		outside.Name += "-outside"
		refused := w.Gate(ctx, outside)
		Eventually(func() string { return GateSays(ctx, refused, v1alpha1.ConditionOperational) }).Should(MatchRegexp(`^False BenchmarkRefused: .*cannot create resource "latencybenchmarks"`))
	})

	It("are enough to look for the classes that a template names", func(ctx SpecContext) {
		w := NewWorld(ctx)
		w.Start()
		for name, template := range map[string]v1alpha1.PodSettings{
			"runtime": {RuntimeClassName: "none"}, "priority": {PriorityClassName: "none"},
		} {
			b := MakeBenchmark(w.Namespace, name).On(w.A, w.B).Obj()
			b.Spec.Pods = &template
			Expect(k8s.Create(ctx, b)).To(Succeed())
			ExpectSucceeded(ctx, b, "^Unknown NotAccepted: spec.pods."+name+"ClassName: .* none does not exist")
		}
	})
})

var _ = AfterEach(func() {
	rights.Lock()
	defer rights.Unlock()
	if len(rights.used) > 0 {
		AddReportEntry("rights", strings.Join(sets.List(rights.used), "\n"), ReportEntryVisibilityNever)
		rights.used = sets.New[string]()
	}
})

var _ = ReportAfterSuite("every right of the manager is used", func(report Report) {
	c := report.SuiteConfig
	if !report.SuiteSucceeded || len(c.FocusStrings)+len(c.SkipStrings)+len(c.FocusFiles)+len(c.SkipFiles) > 0 || c.LabelFilter != "" || c.DryRun {
		return
	}
	used := sets.New(checkedByAdmission...)
	for _, spec := range report.SpecReports {
		for _, entry := range spec.ReportEntries {
			if entry.Name == "rights" {
				used.Insert(strings.Split(entry.StringRepresentation(), "\n")...)
			}
		}
	}
	Expect(sets.List(granted(managerRoles).Difference(used))).To(BeEmpty(), "these are granted in config/rbac, and no manager used them in any spec")
	wide := sets.New[string]()
	for right := range used {
		if right, ok := strings.CutSuffix(right, everywhere); ok {
			wide.Insert(right)
		}
	}
	needed := granted(clusterRolesOfNamed).Insert(cachedByNamespace...).Delete(checkedByAdmission...)
	Expect(sets.List(needed)).To(Equal(sets.List(wide)), "config/named-namespaces grants everywhere what managers use outside of a namespace, and no more")
})
