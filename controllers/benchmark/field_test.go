package benchmark

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/test/field"
)

// fieldOfStates returns what counts of the SriovNetworkNodeStates of the input. An argument "written in NAMESPACE" is the time of
// the last write to the states of a namespace.
func fieldOfStates(t *testing.T, c field.Case) map[string]string {
	var list []map[string]any
	if err := yaml.Unmarshal(c.Read(t), &list); err != nil {
		t.Fatal(err)
	}
	clients := fake.NewClientBuilder().WithScheme(testScheme(t))
	for _, o := range list {
		u := &unstructured.Unstructured{Object: o}
		if at := c.Arguments["written in "+u.GetNamespace()]; at != "" {
			_ = unstructured.SetNestedField(u.Object, at, "metadata", "creationTimestamp")
		}
		clients = clients.WithObjects(u)
	}
	cluster := observe.Cluster{Live: clients.Build(), Clock: clocktesting.NewFakePassiveClock(time.Now())}
	o := makeWorld(notAccepted, withNodes(append(manyNodes(16), readyNode("node-a"), readyNode("node-b"))...)).accepted
	if err := cluster.Read(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	answer := map[string]string{}
	for name, s := range o.NodeStates {
		namespaces := append([]string{s.Namespace}, s.Others...)
		if len(namespaces) == 2 && namespaces[0] > namespaces[1] {
			namespaces[0], namespaces[1] = namespaces[1], namespaces[0]
		}
		answer[name+" drains"], answer[name+" sync"], answer[name+" namespaces"] = s.Drains(), s.Status.SyncStatus, strings.Join(namespaces, " ")
	}
	return answer
}

// fieldOfEvent returns what an attempt says about an event of its pod.
func fieldOfEvent(t *testing.T, c field.Case) map[string]string {
	for l := range strings.Lines(string(c.Read(t))) {
		name, said, _ := strings.Cut(strings.TrimSpace(l), "\t")
		if name != c.Arguments["event"] {
			continue
		}
		trouble := pods.NetworkTrouble(corev1.Event{Reason: "FailedCreatePodSandBox", Message: strings.ReplaceAll(said, `\n'`, "\n'")}, "node-a")
		return map[string]string{"reason": trouble.Outcome, "message": trouble.Message()}
	}
	t.Fatalf("%s has no event %q", c.Input, c.Arguments["event"])
	return nil
}

// fieldOfPull returns what an attempt says about an image that cannot be pulled.
func fieldOfPull(c field.Case) map[string]string {
	waiting := &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: c.Arguments["pull"]}
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node-a"}, Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Image: "registry.example.com/tailgate/bench:v0", State: corev1.ContainerState{Waiting: waiting},
	}}}}
	trouble := pods.StartTrouble(pod, nil)
	return map[string]string{"reason": trouble.Outcome, "message": trouble.Message()}
}

// fieldOfRefusal returns how the refusal of a pod by the API server counts.
func fieldOfRefusal(t *testing.T, c field.Case) map[string]string {
	kind := schema.GroupResource{Resource: "pods"}
	err := refusedBy(apierrors.NewForbidden(kind, "x-r1-a1-server", errors.New(c.Arguments["refused"])), v1alpha1.OutcomePodRefused, "the server's pod", "perf")
	var refused *refusal
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	return map[string]string{"passing": fmt.Sprint(refused.passing), "message": refused.message}
}

// Cases of other projects' objects on real clusters (test/field).
func TestFieldNeighbours(t *testing.T) {
	field.Run(t, "neighbours", "controllers/benchmark", func(t *testing.T, c field.Case) map[string]string {
		switch {
		case c.Arguments["event"] != "":
			return fieldOfEvent(t, c)
		case c.Arguments["pull"] != "":
			return fieldOfPull(c)
		case c.Arguments["refused"] != "":
			return fieldOfRefusal(t, c)
		}
		return fieldOfStates(t, c)
	})
}
