package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/driven"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// answersTo returns what a client's API server answers to a sequence of requests: an error's reason, and what is stored then.
func answersTo(ctx context.Context, c client.Client, namespace string) (all []string) {
	GinkgoHelper()
	note := func(what string, err error, more ...any) {
		said := "done"
		if err != nil {
			said = string(apierrors.ReasonForError(err))
		}
		all = append(all, fmt.Sprintf("%s: %s %v", what, said, more))
	}
	refresh := func(o client.Object) error { return c.Get(ctx, client.ObjectKeyFromObject(o), o) }

	b := MakeBenchmark(namespace, "b").On("a", "b").Obj()
	b.Finalizers, b.Spec.Rounds, b.Spec.MaxRounds = []string{"test.tailgate.dev/x"}, 0, 0
	b.Status.Progress = &v1alpha1.Progress{Runs: "1/2"}
	note("create", c.Create(ctx, b), b.Generation, b.Status.Progress, b.Spec.Rounds, b.UID != "", b.CreationTimestamp.IsZero())
	note("create again", c.Create(ctx, MakeBenchmark(namespace, "b").On("a", "b").Obj()))
	note("create elsewhere", c.Create(ctx, MakeBenchmark("there-is-none", "b").On("a", "b").Obj()))
	note("create nonsense", c.Create(ctx, MakeBenchmark(namespace, "c").On("a", "b").Sizes(-1).Obj()))
	old := b.DeepCopy()
	b.Spec.Suspend, b.Status.Progress = true, &v1alpha1.Progress{Runs: "1/2"}
	note("update", c.Update(ctx, b), b.Generation, b.Status.Progress)
	note("update an old version", c.Update(ctx, old))
	b.Spec.Suspend, b.Status.Progress = false, &v1alpha1.Progress{Runs: "1/2"}
	note("update the status", c.Status().Update(ctx, b), b.Generation, b.Spec.Suspend, b.Status.Progress.Runs)
	note("update an old status", c.Status().Update(ctx, old))
	version := b.ResourceVersion
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`))
	note("patch", c.Patch(ctx, b, label), b.Labels, b.Generation, b.ResourceVersion != version)
	version = b.ResourceVersion
	note("patch nothing", c.Patch(ctx, b, label), b.ResourceVersion != version)
	note("patch an old version", c.Patch(ctx, b, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"`+old.ResourceVersion+`","labels":{"x":"z"}}}`))))
	note("dry run", c.Create(ctx, MakeBenchmark(namespace, "dry").On("a", "b").Obj(), client.DryRunAll))
	note("get it", c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "dry"}, &v1alpha1.LatencyBenchmark{}))
	list := &v1alpha1.LatencyBenchmarkList{}
	note("select by a field", c.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{"status.completionTime": ""}), len(list.Items))
	note("select by another field", c.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{"spec.tool": "sockperf"}))
	other := types.UID("another")
	note("delete another", c.Delete(ctx, b, client.Preconditions{UID: &other}))
	note("delete", c.Delete(ctx, b), refresh(b), b.DeletionTimestamp.IsZero(), b.Generation)
	b.Finalizers = nil
	note("the last finalizer", c.Update(ctx, b), apierrors.IsNotFound(refresh(b)))
	note("delete again", c.Delete(ctx, b))

	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	}
	bind := func(p *corev1.Pod) error {
		return c.SubResource("binding").Create(ctx, p, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n"}})
	}
	waits := pod("waits")
	note("create a pod", c.Create(ctx, waits), waits.Status.Phase)
	note("delete a pod that waits", c.Delete(ctx, waits), apierrors.IsNotFound(refresh(waits)))
	runs := pod("runs")
	note("create a pod", c.Create(ctx, runs))
	note("bind", bind(runs), refresh(runs), runs.Spec.NodeName)
	note("bind again", bind(runs))
	note("delete a pod that runs", c.Delete(ctx, runs), refresh(runs), runs.DeletionTimestamp.IsZero(), *runs.DeletionGracePeriodSeconds)
	note("delete at once", c.Delete(ctx, runs, client.GracePeriodSeconds(0)), apierrors.IsNotFound(refresh(runs)))
	ended := pod("ended")
	note("create a pod", c.Create(ctx, ended))
	note("bind", bind(ended), refresh(ended))
	ended.Status.Phase = corev1.PodSucceeded
	note("end", c.Status().Update(ctx, ended))
	note("delete a pod that has ended", c.Delete(ctx, ended), apierrors.IsNotFound(refresh(ended)))

	node := MakeNode(namespace + "-of-driven").Obj()
	note("create a node", c.Create(ctx, node))
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(c.Delete(ctx, node))).To(Succeed()) })
	note("get it", refresh(node))
	node.Spec.Taints = []corev1.Taint{{Key: v1alpha1.NodeTaintUnverified, Effect: corev1.TaintEffectNoSchedule}}
	note("taint it", c.Update(ctx, node, client.FieldOwner("srcdst")))
	owner := slices.IndexFunc(node.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "srcdst" })
	note("its field manager", nil, owner >= 0 && strings.Contains(node.ManagedFields[owner].FieldsV1.GetRawString(), `"f:taints"`))
	note("a condition", c.Status().Patch(ctx, node, client.RawPatch(types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"X","status":"True"}]}}`))), len(node.Status.Conditions))
	return all
}

var _ = Describe("The driven world", func() {
	It("answers as this API server does", func(ctx SpecContext) {
		const namespace = "of-driven"
		store := driven.NewStore(driven.NewScheme(), &clock{})
		c := store.Client("user")
		Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		Expect(answersTo(ctx, c, namespace)).To(Equal(answersTo(ctx, k8s, newNamespace(ctx))))
	})
})
