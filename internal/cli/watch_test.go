package cli

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// looks is the log of an agent that repeats its inspection. Each change is that of a look.
func looks(t *testing.T, changes ...func(*result.Workload)) string {
	var all []*result.Workload
	for n, change := range changes {
		w := resulttest.Workload()
		w.Number, w.Time = n+1, time.Date(2026, 11, 29, 9, 0, 10*n, 0, time.UTC)
		change(w)
		all = append(all, w)
	}
	return resulttest.InspectionLog(all...)
}

func TestInspectWatch(t *testing.T) {
	same := func(*result.Workload) {}
	moved := func(w *result.Workload) { w.Threads[0].CPUs = "0-1" }
	shared := func(w *result.Workload) { w.PoolCPUs = "0-1" }
	replaced := func(w *result.Workload) {
		for n := range w.Interfaces {
			if own := &w.Interfaces[n]; own.Interface == "net1" {
				own.Interface, own.Facts["nic.carrier"] = "net2", "0"
			}
		}
	}
	early := func(w *result.Workload) { w.Time = time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC) }
	running := func(p *corev1.Pod) {
		for _, c := range p.Spec.EphemeralContainers {
			p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: c.Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		}
	}
	ended := func(p *corev1.Pod) {
		p.Status.EphemeralContainerStatuses = nil
		endedAs(corev1.ContainerStateTerminated{})(p)
	}
	broken := func() func(*corev1.Pod) {
		connections := 0
		return func(p *corev1.Pod) {
			if connections++; connections > 1 {
				ended(p)
			}
		}
	}
	for name, c := range map[string]struct {
		args     string
		changes  []func(*result.Workload)
		followed func(*corev1.Pod)
		code     int
		says     []string // in this order
		never    string
		stderr   string
	}{
		"nothing changes": {
			args: "--require ThreadsOnCPUs,CPUsExclusive", changes: []func(*result.Workload){same, same}, followed: ended,
			says: []string{"pod perf/feed, container app", "Proved   CPUsExclusive", "  Pass\n"}, never: ", was ",
		},
		"a thread leaves its CPUs and comes back": {
			args: "--require ThreadsOnCPUs", changes: []func(*result.Workload){same, moved, moved, same}, followed: ended, code: exitFail,
			says: []string{"ThreadsOnCPUs: Failed, was Proved: ", "ThreadsOnCPUs: Proved, was Failed: "}, never: "CPUsExclusive: ",
		},
		"the CPUs of the pod are shared later": {
			args: "--require CPUsExclusive", changes: []func(*result.Workload){same, shared}, followed: ended, code: exitFail,
			says: []string{"CPUsExclusive: Failed, was Proved: "},
		},
		"a later look alone proves no exclusive CPUs": {
			args: "--require CPUsExclusive", changes: []func(*result.Workload){shared, same}, followed: ended, code: exitFail,
			says: []string{"Failed   CPUsExclusive"}, never: ", was ",
		},
		"another interface replaces one": {
			changes: []func(*result.Workload){same, replaced}, followed: ended,
			says: []string{"Link: Failed, was not there: net2: down"}, never: ", was Proved", // of net1, which is not there any more
		},
		"without requirements": {changes: []func(*result.Workload){same, moved}, followed: ended, says: []string{"ThreadsOnCPUs: Failed, was Proved"}},
		"JSON": {
			args: "-o json", changes: []func(*result.Workload){same, moved}, followed: ended,
			says: []string{`"CPUsExclusive","state":"Proved"`, `"time":"2026-11-29T09:00:00Z"`, "\n{", `"time":"2026-11-29T09:00:10Z"`},
		},
		"a connection that breaks": {
			args: "-o json", changes: []func(*result.Workload){same, moved}, says: []string{`09:00:00Z"`, `09:00:10Z"`},
			followed: broken(),
		},
		"a clock that steps back, and a connection that breaks": {
			args: "-o json", changes: []func(*result.Workload){same, early}, says: []string{`09:00:00Z"`, `08:00:00Z"`},
			followed: broken(),
		},
		"a log that has only an end": {
			args: "-o json", changes: []func(*result.Workload){same, func(w *result.Workload) { w.Number = 4 }}, followed: ended, code: exitError,
			says: []string{`09:00:00Z"`}, stderr: "inspections 2 to 3 are no longer in the log: watch again",
		},
		"a container that restarts": {
			args: "--require ThreadsOnCPUs", changes: []func(*result.Workload){same}, code: exitError, says: []string{"  Pass\n"}, stderr: "container app ended or restarted during the inspection",
			followed: func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].RestartCount++
				endedAs(corev1.ContainerStateTerminated{ExitCode: 137})(p)
			},
		},
		"a container that ends": {
			changes: []func(*result.Workload){same}, code: exitError, stderr: "ended or restarted",
			followed: func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
			},
		},
		"a pod that is deleted": {
			changes: []func(*result.Workload){same}, code: exitError, stderr: "the pod is being deleted",
			followed: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
		},
		"a pod that fills up": {
			changes: []func(*result.Workload){same}, code: exitError, stderr: "only 12 MiB left",
			followed: func(p *corev1.Pod) {
				p.Status.EphemeralContainerStatuses = nil
				endedAs(corev1.ContainerStateTerminated{ExitCode: 1, Message: `{"reason":"AgentFailed","message":"only 12 MiB left"}`})(p)
			},
		},
		"an agent that writes nothing": {followed: ended, code: exitError, stderr: "reading the inspection: no result"},
	} {
		t.Run(name, func(t *testing.T) {
			s := withFeed(t)
			s.logs[feed], s.kubelet, s.followed = looks(t, c.changes...), running, c.followed
			code, stdout, stderr := run(append([]string{"inspect", "feed", "--watch", "--kubeconfig", s.serve(t)}, strings.Fields(c.args)...)...)
			if code != c.code || !strings.Contains(stderr, c.stderr) || (c.stderr == "") != (stderr == "") || c.never != "" && strings.Contains(stdout, c.never) {
				t.Errorf("exit code %d, want %d; it printed %s%s", code, c.code, stdout, stderr)
			}
			rest := stdout
			for _, want := range c.says {
				_, after, found := strings.Cut(rest, want)
				if rest = after; !found {
					t.Fatalf("no %q in order: %s", want, stdout)
				}
			}
			for _, once := range []string{"09:00:00Z", ", container app", `"check":"CPUsExclusive"`} {
				if strings.Count(stdout, once) > 1 {
					t.Errorf("%s more than once: %s", once, stdout)
				}
			}
			all := s.pods[feed].Spec.EphemeralContainers
			if len(all) != 1 || !slices.Equal(all[0].Command[1:], []string{"inspect", "10s", "10m0s"}) {
				t.Errorf("%d ephemeral containers: %+v", len(all), all)
			}
		})
	}
}

func TestInspectWatchIsInterrupted(t *testing.T) {
	s := withFeed(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.logs[feed] = looks(t, func(*result.Workload) {})
	s.kubelet = func(p *corev1.Pod) {
		p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.EphemeralContainers[0].Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	}
	s.followed = func(*corev1.Pod) { cancel() }
	var stdout, stderr bytes.Buffer
	code := Run(ctx, []string{"inspect", "feed", "--watch", "--require", "ThreadsOnCPUs", "--kubeconfig", s.serve(t)}, &stdout, &stderr)
	if code != exitError || stderr.String() != "kubectl tailgate: pod perf/feed: interrupted; what inspects the pod ends by itself\n" {
		t.Errorf("exit code %d; it said %q", code, &stderr)
	}
}

func TestInspectWatchRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--watch=1s":                    "give an interval of 5s or more, and 1h0m0s or less as a whole",
		"--watch=-1s":                   "interval",
		"--watch --watch-for 2h":        "1h0m0s or less",
		"--watch=1m --watch-for 30s":    "interval",
		"--watch-for 1m":                "belongs to --watch",
		"--watch --watch-for -1m":       "interval",
		"--watch --timeout 10s -c none": `no container "none"`,
	} {
		t.Run(args, func(t *testing.T) {
			s := withFeed(t)
			code, _, stderr := run(append([]string{"inspect", "feed", "--kubeconfig", s.serve(t)}, strings.Fields(args)...)...)
			if code != exitError || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) || len(s.pods[feed].Spec.EphemeralContainers) > 0 {
				t.Errorf("exit code %d; it said %q, want one line with %q", code, stderr, want)
			}
		})
	}
	s := withFeed(t)
	s.pods[feed].Spec.Resources = &corev1.ResourceRequirements{Limits: s.pods[feed].Spec.Containers[0].Resources.Limits}
	if code, _, stderr := run("inspect", "feed", "--watch", "--kubeconfig", s.serve(t)); code != exitError || !strings.Contains(stderr, "without --watch") {
		t.Errorf("exit code %d; it said %q", code, stderr)
	}
	s = withFeed(t)
	for n := range 50 {
		other := s.pods[feed].DeepCopy()
		other.Name = fmt.Sprintf("feed-%d", n)
		s.pods[client.ObjectKeyFromObject(other)] = other
	}
	if code, _, stderr := run("inspect", "-l", "app=feed", "--watch", "--kubeconfig", s.serve(t)); code != exitError || !strings.Contains(stderr, "these are 51 pods, and one watch takes at most 50") {
		t.Errorf("exit code %d; it said %q", code, stderr)
	}
}

// An inspection that takes too long is not one that the kubelet has not started.
func TestInspectTakesTooLong(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &inspectCall{timeout: time.Minute}
	for want, state := range map[string]corev1.ContainerState{
		"no inspection within 1m0s (the agent still runs":            {Running: &corev1.ContainerStateRunning{}},
		"no inspection within 1m0s (the kubelet has not started it)": {},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{EphemeralContainerStatuses: []corev1.ContainerStatus{{Name: "own", State: state}}}}
		if _, err := c.await(ctx, pod, "own"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}
