package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
)

func TestTimeline(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }
	seen := &transit{seen: map[string]time.Time{}}
	see := func(seconds float64, run, role string, gone bool, changes ...func(*corev1.Pod)) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelRun: run, v1alpha1.LabelRole: role}}}
		for _, change := range changes {
			change(p)
		}
		seen.see(at(seconds), p, gone)
	}
	state := func(s corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: s}} }
	}
	running := state(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	terminated := state(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
	see(-9, "r1", v1alpha1.RoleServer, false)
	see(-8, "r1", v1alpha1.RoleClient, false)
	see(1, "r1", v1alpha1.RoleClient, false, terminated)
	see(0.5, "r1", v1alpha1.RoleServer, false, terminated)
	see(1.5, "r1", v1alpha1.RoleServer, false, terminated) // seen again
	see(2, "r1", v1alpha1.RoleServer, true)
	see(2.25, "r1", v1alpha1.RoleClient, true)
	see(2.5, "r2", v1alpha1.RoleServer, false)
	see(3, "r2", v1alpha1.RoleServer, false, func(p *corev1.Pod) { p.Annotations = map[string]string{foreign.AnnotationNetworkStatus: "[]"} })
	see(3.25, "r2", v1alpha1.RoleClient, false)
	see(4, "r2", v1alpha1.RoleClient, false, running)
	cells := map[string][2]time.Time{"r1": {at(-5), at(0)}, "r2": {at(4.5), at(9)}}
	var b strings.Builder
	if err := printSteps(&b, []timeline{seen.between("r1", "r2", cells)}); err != nil {
		t.Fatal(err)
	}
	want := `seconds after the last cell of a run              median of 1  min   max
both containers are reported as terminated        1.00         1.00  1.00
both pods have given their CPUs and devices back  2.25         2.25  2.25
the next server's pod is created                  2.50         2.50  2.50
its address is known                              3.00         3.00  3.00
the client's pod is created                       3.25         3.25  3.25
both containers are reported as running           not seen           
the first cell starts                             4.50         4.50  4.50
`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
}
