package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/observe"
	tools "github.com/tailgate-dev/tailgate/internal/tool/all"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// On a full fleet, a scheduled turn begins only where both nodes have room, and a node that waits gets a peer with room if there is one.
func TestPlace(t *testing.T) {
	cases := map[string]struct {
		// waiting are Unverified, all other nodes of a to e are verified and due; full are the nodes without a free CPU.
		waiting, full string
		parallel      int32
		starts, due   string
		unplaced      []string
		broken        bool
	}{
		"all have room":                              {parallel: 2, due: "a-b c-d"},
		"all are full":                               {parallel: 2, full: "abcde", unplaced: []string{"a", "b", "c", "d", "e"}},
		"all but one":                                {parallel: 2, full: "abcd", unplaced: []string{"a", "b", "c", "d", "e"}},
		"the peers of the first two are full":        {parallel: 1, full: "b", due: "a-c", unplaced: nil},
		"a node that waits in a full fleet":          {parallel: 1, waiting: "a", full: "bcde", starts: "a-b"},
		"one that waits, and one peer that has room": {parallel: 1, waiting: "a", full: "bce", starts: "a-d"},
		"a full node that waits says so itself":      {parallel: 1, waiting: "a", full: "a", starts: "a-b"},
		"what decides cannot be read":                {parallel: 1, broken: true, unplaced: []string{"a", "b", "c", "d", "e"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := makeGate(func(g *v1alpha1.LatencyGate) {
				g.Spec.MaxParallel = new(intstr.FromInt32(c.parallel))
				g.Spec.Template.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkPod}
				g.Spec.Template.Spec.Workload = v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{64}, Duration: metav1.Duration{Duration: time.Second}, Warmup: metav1.Duration{}}
				g.Spec.Template.Spec.Placement.CPUs, g.Spec.Template.Spec.Placement.Memory = 1, resource.MustParse("256Mi")
			})
			var verifications []*v1alpha1.LatencyVerification
			for _, node := range strings.Split("abcde", "") {
				v := makeVerification(node, func(v *v1alpha1.LatencyVerification) { v.Status.Accepted.Peer = "" })
				if strings.Contains(c.waiting, node) {
					unverified(v1alpha1.ReasonIdentityChanged)(v)
				}
				verifications = append(verifications, v)
			}
			s := makeSnapshot(g, verifications...)
			s.Schedule.Fired = ago(time.Minute)
			if c.waiting != "" {
				s.Schedule.Fired = time.Time{}
			}
			reads := 0
			api := interceptor.NewClient(nil, interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				switch list := list.(type) {
				case *corev1.NodeList:
					reads++
					for _, n := range s.Nodes {
						n := *n.DeepCopy()
						n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")}
						list.Items = append(list.Items, n)
					}
					if c.broken {
						return errors.New("the API server is away")
					}
				case *corev1.PodList:
					for _, node := range strings.Split(c.full, "") {
						busy := corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("4")}}}
						list.Items = append(list.Items, corev1.Pod{Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{busy}}})
					}
				case *unstructured.UnstructuredList:
					return &meta.NoKindMatchError{}
				}
				return nil
			}})
			r := &Gates{Memory: &Memory{}, Cluster: &observe.Cluster{Cache: api, Live: api, Clock: clocktesting.NewFakePassiveClock(noon), Tools: tools.Registry()}}
			var chosen turns.Choice
			for range 3 { // One reconcile looks at a few pairs, and the next continues.
				chosen = r.place(t.Context(), s)
			}
			pairs := func(all []turns.Start) string {
				var texts []string
				for _, p := range all {
					texts = append(texts, fmt.Sprintf("%s-%s", p.Verification.Spec.NodeName, p.Peer))
				}
				return strings.Join(texts, " ")
			}
			if pairs(chosen.Starts) != c.starts || pairs(chosen.Due) != c.due {
				t.Errorf("starts %q, due %q, unplaced %v", pairs(chosen.Starts), pairs(chosen.Due), chosen.Unplaced)
			}
			if got := slices.Sorted(maps.Keys(chosen.Unplaced)); !slices.Equal(got, c.unplaced) || len(got) > 0 && chosen.Again == 0 {
				t.Errorf("unplaced are %v, again in %s", got, chosen.Again)
			}
			before := reads
			if r.place(t.Context(), s); len(c.unplaced) > 0 && reads != before {
				t.Error("it reads again what it has just found")
			}
			if len(c.unplaced) == 0 {
				return
			}
			var looks []time.Duration
			for passed := time.Duration(0); passed < 21*time.Minute; passed += 5 * time.Second {
				before, s.Now = reads, noon.Add(passed)
				for range 3 {
					r.place(t.Context(), s)
				}
				if reads != before {
					looks = append(looks, passed)
				}
			}
			if got := fmt.Sprint(looks); got != "[5s 10s 20s 40s 1m20s 2m40s 5m20s 10m20s 15m20s 20m20s]" {
				t.Errorf("it looks again after %s", got)
			}
		})
	}
}
