package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

func at(second int) metav1.MicroTime {
	return metav1.NewMicroTime(time.Date(2026, 3, 4, 5, 6, second, 0, time.UTC))
}

// newBusyCluster returns a cluster with perf/sweep, which has two finished attempts and an active one with two pods.
func newBusyCluster(t *testing.T) *apiServer {
	t.Helper()
	s := newCluster(t)
	b := s.benchmarks[sweep]
	b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Reason: v1alpha1.ReasonRunning, Message: "measuring round 2 of 2"}}
	b.Status.Attempts = []v1alpha1.Attempt{
		{Run: "sweep-r1", Attempt: 1, StartTime: at(0), Outcome: v1alpha1.Outcome{Reason: "OOMKilled", Message: "ask for more \x1b[31mmemory", CompletionTime: at(4)}},
		{Run: "sweep-r1", Attempt: 2, StartTime: at(9), MeasuredMilliseconds: 2345, Outcome: v1alpha1.Outcome{Reason: v1alpha1.OutcomeMeasured, CompletionTime: at(15)}},
	}
	b.Status.Active = &v1alpha1.ActiveAttempt{Run: "sweep-r2", Round: 2, Attempt: 1, StartTime: at(16), Pair: v1alpha1.Pair{ClientNode: "node-a", ServerNode: "node-b"}}
	s.pods, s.logs = map[types.NamespacedName]*corev1.Pod{}, map[types.NamespacedName]string{}
	for _, role := range []string{v1alpha1.RoleServer, v1alpha1.RoleClient} {
		pod := &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "sweep-r2-a1-" + role, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyBenchmark", Name: "sweep", UID: "u", Controller: new(true)},
			}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
				{Name: "agent", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			}},
		}
		s.pods[types.NamespacedName{Namespace: "perf", Name: pod.Name}] = pod
	}
	return s
}

func TestAttempts(t *testing.T) {
	server, client := types.NamespacedName{Namespace: "perf", Name: "sweep-r2-a1-server"}, types.NamespacedName{Namespace: "perf", Name: "sweep-r2-a1-client"}
	const past = `perf/sweep: Running (measuring round 2 of 2)

RUN       ATTEMPT  BEGAN                 TOOK  MEASURED  ENDED AS   MESSAGE
sweep-r1  1        2026-03-04T05:06:00Z  4s    -         OOMKilled  ask for more �[31mmemory
sweep-r1  2        2026-03-04T05:06:09Z  6s    2.3s      Measured   -
`
	var frame strings.Builder
	if err := result.WriteFrame(&frame, result.Document{Run: "sweep-r2"}); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		change func(*apiServer)
		want   string
	}{
		"the last lines of both logs, without the result": {
			change: func(s *apiServer) {
				s.logs[server] = strings.Repeat("an old line\n", 20) + "listening\n"
				s.logs[client] = "measured tcp-1\n" + frame.String() + "the end"
			},
			want: past + `
now: sweep-r2, attempt 1, since 2026-03-04T05:06:16Z

server on node-b, pod sweep-r2-a1-server: Running
` + strings.Repeat("  | an old line\n", 7) + `  | listening

client on node-a, pod sweep-r2-a1-client: Running
  | measured tcp-1
  | the end
`,
		},
		"logs that are long": {
			change: func(s *apiServer) {
				s.logs[server] = strings.Repeat("an old line\n", 1<<20) + "listening\n"
				s.logs[client] = strings.Repeat(strings.Repeat("x", 9<<10)+"\n", 1000)
			},
			want: past + `
now: sweep-r2, attempt 1, since 2026-03-04T05:06:16Z

server on node-b, pod sweep-r2-a1-server: Running
` + strings.Repeat("  | an old line\n", 7) + `  | listening

client on node-a, pod sweep-r2-a1-client: Running
  its log cannot be read: it has more than 8 MiB
`,
		},
		"a pod that does not start, and one that does not exist": {
			change: func(s *apiServer) {
				delete(s.pods, client)
				s.pods[server].Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
					{Name: "agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off\npulling"}}},
				}}
			},
			want: past + `
now: sweep-r2, attempt 1, since 2026-03-04T05:06:16Z

server on node-b, pod sweep-r2-a1-server: Pending, ImagePullBackOff, Back-off pulling

client on node-a, pod sweep-r2-a1-client: it does not exist
`,
		},
		"a log that may not be read, and a pod of another owner": {
			change: func(s *apiServer) { s.pods[client].OwnerReferences = nil },
			want: past + `
now: sweep-r2, attempt 1, since 2026-03-04T05:06:16Z

server on node-b, pod sweep-r2-a1-server: Running
  its log cannot be read: pods/log "sweep-r2-a1-server" is forbidden: <nil>

client on node-a, pod sweep-r2-a1-client: it exists and does not belong to this benchmark
`,
		},
		"an attempt that has ended, of which a pod is still there": {
			change: func(s *apiServer) {
				delete(s.pods, server)
				s.benchmarks[sweep].Status.Active.Outcome = &v1alpha1.Outcome{Reason: "Evicted", Message: "the node is full"}
				pod := s.pods[client]
				pod.DeletionTimestamp = &metav1.Time{Time: at(20).Time}
				pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", ContainerStatuses: []corev1.ContainerStatus{
					{Name: "agent", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}}},
				}}
				s.logs[client] = ""
			},
			want: past + `
now: sweep-r2, attempt 1, since 2026-03-04T05:06:16Z
it has ended as Evicted, and its pods are being removed: the node is full

server on node-b, pod sweep-r2-a1-server: it does not exist

client on node-a, pod sweep-r2-a1-client: Failed, Evicted, exit code 137, Error, being removed
`,
		},
		"no active attempt": {change: func(s *apiServer) { s.benchmarks[sweep].Status.Active = nil }, want: past},
		"no attempt yet": {
			change: func(s *apiServer) {
				s.benchmarks[sweep].Status = v1alpha1.LatencyBenchmarkStatus{Conditions: []metav1.Condition{
					{Type: v1alpha1.ConditionSucceeded, Reason: v1alpha1.ReasonQueued, Message: "waiting for other/first"},
				}}
			},
			want: "perf/sweep: Queued (waiting for other/first)\n",
		},
		"more than are kept": {
			change: func(s *apiServer) {
				b := s.benchmarks[sweep]
				b.Status.Active = nil
				for len(b.Status.Attempts) < 300 {
					b.Status.Attempts = append(b.Status.Attempts, b.Status.Attempts[1])
				}
			},
			want: strings.Replace(past, "\n\n", "\n\nthe last 300 attempts; earlier ones are not kept\n", 1) +
				strings.Repeat("sweep-r1  2        2026-03-04T05:06:09Z  6s    2.3s      Measured   -\n", 298),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newBusyCluster(t)
			c.change(s)
			code, stdout, stderr := run("attempts", "sweep", "--kubeconfig", s.serve(t))
			if code != 0 || stderr != "" {
				t.Fatalf("exit code %d, it said %q", code, stderr)
			}
			if diff := cmp.Diff(c.want, stdout); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Each verb that prints a table prints JSON, too.
func TestJSON(t *testing.T) {
	s := newGatedCluster(t, passes, nil)
	s.gates = map[string]*v1alpha1.LatencyGate{"upgrade": {ObjectMeta: metav1.ObjectMeta{Name: "upgrade"}}}
	config := s.serve(t)
	for verb, want := range map[string]string{
		"attempts sweep":    `"attempts"`,
		"calibrate upgrade": `[`,
		"explain nodebusy":  `"remedy"`,
		"get":               `"lbench/sweep"`,
		"gate sweep":        `"verdict": "Pass"`,
		"published":         `"source"`,
		"status":            `[`,
		"version":           `"client"`,
	} {
		code, stdout, stderr := run(append(strings.Fields(verb), "--kubeconfig", config, "-o", "json")...)
		if code != 0 || !json.Valid([]byte(stdout)) || !strings.Contains(stdout, want) {
			t.Errorf("%s: exit code %d: %s%.400s", verb, code, stderr, stdout)
		}
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{1520 * time.Millisecond: "1.5s", -3 * time.Minute: "-"} {
		if got := seconds(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
