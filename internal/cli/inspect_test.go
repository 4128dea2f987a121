package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

var feed = types.NamespacedName{Namespace: "perf", Name: "feed"}

// withFeed is a cluster with a running pod that the log of a real inspection describes.
func withFeed(t *testing.T) *apiServer {
	t.Helper()
	one := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: feed.Namespace, Name: feed.Name, UID: "u", Labels: map[string]string{"app": "feed"}},
		Spec: corev1.PodSpec{NodeName: "node-a", Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: one, Limits: one}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSGuaranteed, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", ContainerID: "containerd://3ab0f1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			User: &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 1000, GID: 1001}},
		}}},
	}
	s := newCluster(t)
	s.managerArgs = []string{"--bench-image=bench"}
	s.pods = map[types.NamespacedName]*corev1.Pod{feed: pod}
	s.logs = map[types.NamespacedName]string{feed: resulttest.InspectionLog(resulttest.Workload())}
	s.kubeletSummary = summaryOf(2.6e6, time.Now())
	s.kubelet = endedAs(corev1.ContainerStateTerminated{})
	return s
}

func summaryOf(used int, at time.Time) string {
	return fmt.Sprintf(`{"pods":[{"podRef":{"uid":"other"}},{"podRef":{"uid":"u"},"memory":{"time":%q,"workingSetBytes":%d}}]}`, at.Format(time.RFC3339), used)
}

// endedAs returns a kubelet that runs an ephemeral container or a helper pod to its end.
func endedAs(how corev1.ContainerStateTerminated) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Spec.HostPID {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: &how}}}
		}
		for _, c := range p.Spec.EphemeralContainers {
			p.Status.EphemeralContainerStatuses = append(p.Status.EphemeralContainerStatuses, corev1.ContainerStatus{
				Name: c.Name, State: corev1.ContainerState{Terminated: &how},
			})
		}
	}
}

func TestInspect(t *testing.T) {
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"pod/feed": {exitPass, "Proved   CPUsExclusive   1 of the node's 0-1"},
		"feed --require CPUsExclusive,ThreadsOnCPUs":  {exitPass, "  Pass\n"},
		"feed --require CPUsOnNUMANode,MemoryLocal":   {exitFail, "  Fail\n"},
		"feed --require CPUsExclusive,SMTSiblings":    {exitInconclusive, "  Inconclusive\n"},
		"feed --require Function=PF --interface net1": {exitFail, "VF of"},
		"deploy/feed":           {exitPass, "Proved   CPUsExclusive   1 of the node's 0-1"},
		"StatefulSet.apps/feed": {exitPass, "pod perf/feed, container app"},
		"-l app=feed":           {exitPass, "pod perf/feed, container app"},
		"feed -o json":          {exitPass, `"poolCPUs": "0"`},
	} {
		t.Run(args, func(t *testing.T) {
			s := withFeed(t)
			code, stdout, stderr := run(append([]string{"inspect", "--kubeconfig", s.serve(t)}, strings.Fields(args)...)...)
			if code != want.code || !strings.Contains(stdout, want.says) || stderr != "" {
				t.Errorf("exit code %d, want %d; it printed %s%s", code, want.code, stdout, stderr)
			}
			c := s.pods[feed].Spec.EphemeralContainers[0]
			if c.TargetContainerName != "app" || c.Image != "bench" || *c.SecurityContext.RunAsUser != 1000 || *c.SecurityContext.RunAsGroup != 1001 ||
				!slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) || *c.SecurityContext.AllowPrivilegeEscalation ||
				!slices.Contains(c.Env, corev1.EnvVar{Name: "TAILGATE_CONTAINER", Value: "3ab0f1"}) {
				t.Errorf("%+v", c)
			}
		})
	}
}

// A helper pod inspects from the node, also a pod that takes no ephemeral container, and is deleted, whatever it found.
func TestInspectFromNode(t *testing.T) {
	failing := func(how corev1.ContainerStateTerminated) func(*apiServer) {
		return func(s *apiServer) { s.kubelet = endedAs(how) }
	}
	for name, c := range map[string]struct {
		change    func(*apiServer)
		args      string
		code      int
		says      string
		namespace string // of the helper pod; empty: there is none
	}{
		"placed right":   {args: "--require CPUsExclusive,ThreadsOnCPUs", code: exitPass, says: "inspected by a pod on the node, which is deleted", namespace: "perf"},
		"by namespace":   {args: "--from node/tools", code: exitPass, says: "Proved   CPUsExclusive", namespace: "tools"},
		"without Onload": {args: "--require Acceleration", code: exitInconclusive, says: "Onload is not loaded", namespace: "perf"},
		"a full pod":     {change: func(s *apiServer) { s.kubeletSummary = summaryOf(4e7, time.Now()) }, code: exitPass, says: "Proved   CPUsExclusive", namespace: "perf"},
		"a static pod": {change: func(s *apiServer) {
			s.pods[feed].Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}, code: exitPass, says: "Proved   CPUsExclusive", namespace: "perf"},
		"a watch":          {args: "--watch", code: exitError, says: "--watch and --from exclude each other"},
		"another place":    {args: "--from nodes", code: exitError, says: "--from nodes: give node or node/NAMESPACE"},
		"no right":         {change: func(s *apiServer) { s.forbidden = []string{"POST /api/v1/namespaces/perf/pods"} }, code: exitError, says: "kubectl create rolebinding inspect-node -n perf --clusterrole=tailgate-inspect-node --user=USER"},
		"no right to look": {change: func(s *apiServer) { s.forbidden = []string{"GET /api/v1/namespaces/perf/pods/feed"} }, code: exitError, says: "grant ClusterRole tailgate-inspect (kubectl create rolebinding inspect -n NAMESPACE"},
		"a namespace that forbids it": {change: func(s *apiServer) {
			s.forbiddenPatch = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "feed", fmt.Errorf("violates PodSecurity \"baseline:latest\""))
		}, code: exitError, says: "namespace perf allows no privileged pod; give another one with --from node/NAMESPACE"},
		"a node that is full": {change: func(s *apiServer) {
			s.kubelet = func(p *corev1.Pod) {
				p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods", Message: "too many pods"}
			}
		}, code: exitError, says: "the helper pod ended: OutOfpods: too many pods", namespace: "perf"},
		"a sandbox": {
			change: failing(corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "agent: no process of the container is visible"}),
			code:   exitError, says: "no process of the container is visible", namespace: "perf",
		},
		"a pod that is deleted": {change: func(s *apiServer) {
			end := s.kubelet
			s.kubelet = func(p *corev1.Pod) { end(p); s.gone = true }
		}, code: exitError, says: "the pod cannot be read any more", namespace: "perf"},
		"a webhook that gives CPUs": {change: func(s *apiServer) {
			s.kubelet = func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1")
			}
		}, code: exitError, says: "a webhook changed the helper pod (", namespace: "perf"},
		"a quota": {change: func(s *apiServer) {
			s.forbiddenPatch = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "feed", fmt.Errorf("exceeded quota: q"))
		}, code: exitError, says: "creating a helper pod in namespace perf: pods \"feed\" is forbidden: exceeded quota: q\n"},
		"a target that restarts": {change: func(s *apiServer) {
			end := s.kubelet
			s.kubelet = func(p *corev1.Pod) { end(p); s.pods[feed].Status.ContainerStatuses[0].RestartCount++ }
		}, code: exitError, says: "restarted during the inspection", namespace: "perf"},
	} {
		t.Run(name, func(t *testing.T) {
			s := withFeed(t)
			w := resulttest.Workload()
			w.FromNode = true
			s.logs[feed] = resulttest.InspectionLog(w)
			if c.change != nil {
				c.change(s)
			}
			args := append([]string{"inspect", "feed", "--kubeconfig", s.serve(t), "--from", "node"}, strings.Fields(c.args)...)
			code, stdout, stderr := run(args...)
			if code != c.code || !strings.Contains(stdout+stderr, c.says) || code == exitError && strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, want %d; it printed %s%s", code, c.code, stdout, stderr)
			}
			if len(s.pods) != 1 || len(s.pods[feed].Spec.EphemeralContainers) != 0 {
				t.Errorf("%d pods remain; ephemeral containers: %v", len(s.pods), s.pods[feed].Spec.EphemeralContainers)
			}
			if c.namespace == "" {
				if len(s.created) != 0 {
					t.Errorf("it created %v", s.created)
				}
				return
			}
			helper := s.created[0]
			agent := helper.Spec.Containers[0]
			owned := len(helper.OwnerReferences) == 1 && helper.OwnerReferences[0].UID == s.pods[feed].UID
			if len(s.created) != 1 || helper.Namespace != c.namespace || owned != (c.namespace == feed.Namespace) || !helper.Spec.HostPID || !*agent.SecurityContext.Privileged ||
				*helper.Spec.AutomountServiceAccountToken || helper.Spec.NodeName != "node-a" || *helper.Spec.ActiveDeadlineSeconds != 60 || len(helper.Spec.Volumes) != 0 ||
				!slices.Contains(agent.Env, corev1.EnvVar{Name: "TAILGATE_CONTAINER", Value: "3ab0f1"}) || !slices.Contains(agent.Env, corev1.EnvVar{Name: "TAILGATE_VIEW", Value: "node"}) {
				t.Errorf("%+v", helper)
			}
		})
	}
}

func TestInspectRefuses(t *testing.T) {
	waiting := func(reason string) func(*apiServer) {
		return func(s *apiServer) {
			status := &s.pods[feed].Status.ContainerStatuses[0]
			status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
			if reason == "CrashLoopBackOff" {
				status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2}
			}
		}
	}
	uses := func(used int, at time.Time) func(*apiServer) {
		return func(s *apiServer) { s.kubeletSummary = summaryOf(used, at) }
	}
	for name, c := range map[string]struct {
		change func(*apiServer)
		args   string
		want   string
	}{
		"no names":                           {args: "-o table", want: "names of pods"},
		"names and a selector":               {args: "feed -l a=b", want: "exclude each other"},
		"another kind":                       {args: "job/feed", want: "neither pod/NAME"},
		"an unknown check":                   {args: "feed --require Speed", want: `"Speed"`},
		"an unknown format":                  {args: "feed -o yaml", want: "--output"},
		"no such pod":                        {args: "pod/none", want: `"none" not found`},
		"no such container":                  {args: "feed -c db", want: `no container "db"; there are app`},
		"a pod that does not run":            {change: waiting("ContainerCreating"), want: "does not run (ContainerCreating); wait"},
		"a pod that crashes":                 {change: waiting("CrashLoopBackOff"), want: "restarts again and again (CrashLoopBackOff, last exit code 2): repair"},
		"a pod that ended":                   {change: func(s *apiServer) { s.pods[feed].Status.Phase = corev1.PodSucceeded }, want: "has ended"},
		"a static pod":                       {change: func(s *apiServer) { s.pods[feed].Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, want: "static pod"},
		"Windows":                            {change: func(s *apiServer) { s.pods[feed].Spec.OS = &corev1.PodOS{Name: corev1.Windows} }, want: "Windows"},
		"a pod that was inspected too often": {change: func(s *apiServer) { s.pods[feed].Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 200) }, want: "start the pod again"},
		"a pod that is deleted":              {change: func(s *apiServer) { s.pods[feed].DeletionTimestamp = &metav1.Time{Time: time.Now()} }, want: "being deleted"},
		"the image of an imposter":           {change: func(s *apiServer) { s.imposter = true }, want: "has the labels of Tailgate's manager and not its rights"},
		"no image":                           {change: func(s *apiServer) { s.managerArgs = nil }, want: "--image"},
		"a full pod":                         {change: uses(4e7, time.Now()), want: "it uses 38 of 64 MiB of memory, and the inspection needs 32Mi"},
		"an old measurement":                 {change: uses(2e6, time.Now().Add(-time.Hour)), want: "--memory-free"},
		"a pod that was just begun":          {change: uses(0, time.Now()), want: "--memory-free"},
		"a container that was not measured yet": {change: func(s *apiServer) {
			s.kubeletSummary = ""
			s.pods[feed].Status.ContainerStatuses[0].State.Running.StartedAt = metav1.Now()
		}, want: "container app started less than 45s ago, and was not measured; try again in 45s"},
		"no right to read the kubelet's report": {change: func(s *apiServer) { s.forbidden = []string{"/proxy/stats/summary"} }, want: "for whose report nodes/proxy is needed"},
		"an interval that looks like a name":    {args: "--watch 30s", want: "30s is not the name of a pod; write --watch=30s"},
		"an unknown use of memory":              {change: func(s *apiServer) { s.kubeletSummary = "" }, want: "--memory-free"},
		"a full pod, by metrics-server": {change: func(s *apiServer) {
			s.podMetrics = fmt.Sprintf(`{"timestamp":%q,"containers":[{"usage":{"memory":"20Mi"}},{"usage":{"memory":"18Mi"}}]}`, time.Now().Format(time.RFC3339))
		}, want: "it uses 38 of 64 MiB of memory"},
		"an old measurement of metrics-server": {change: func(s *apiServer) {
			s.podMetrics = fmt.Sprintf(`{"timestamp":%q,"containers":[{"usage":{"memory":"2Mi"}}]}`, time.Now().Add(-time.Hour).Format(time.RFC3339))
		}, want: "its last measurement is of"},
		"a Deployment without pods": {args: "deploy/idle", want: "deploy/idle has no running pod"},
		"no such StatefulSet":       {args: "sts/none", want: `"none" not found`},
		"a container that just started": {change: func(s *apiServer) {
			s.pods[feed].Status.ContainerStatuses[0].State.Running.StartedAt = metav1.Now()
		}, want: "started less than 30s before its last measurement"},
		"a container that was ended for its memory": {change: func(s *apiServer) {
			s.pods[feed].Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled"}
		}, want: "has used up its limit before (OOMKilled)"},
		"a measurement from before the start": {change: func(s *apiServer) {
			s.pods[feed].Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(time.Now().Add(-40 * time.Second))
			s.kubeletSummary = summaryOf(2e6, time.Now().Add(-20*time.Second))
		}, want: "started less than 30s before its last measurement"},
		"another inspection that just started": {change: func(s *apiServer) {
			s.pods[feed].Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{
				Name: "tailgate-inspect-other", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
			}}
		}, want: "container tailgate-inspect-other started less than 30s before its last measurement"},
		"a pod that the kubelet refused": {change: func(s *apiServer) {
			s.pods[feed].Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "TopologyAffinityError"}
		}, want: "has ended (TopologyAffinityError)"},
		"a small limit": {change: func(s *apiServer) {
			s.pods[feed].Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("24Mi")
		}, args: "feed --memory-free", want: "its memory limit is 24Mi"},
		"no right": {change: func(s *apiServer) { s.forbidden = []string{"/ephemeralcontainers"} }, want: "grant ClusterRole tailgate-inspect"},
		"a namespace that forbids it": {change: func(s *apiServer) {
			s.kubelet = nil
			s.forbiddenPatch = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "feed", fmt.Errorf("violates PodSecurity \"restricted:latest\""))
		}, want: `inspect it with --from node/NAMESPACE: pods "feed" is forbidden: violates PodSecurity "restricted:latest"`},
		"an agent that fails": {change: func(s *apiServer) {
			s.kubelet = endedAs(corev1.ContainerStateTerminated{ExitCode: 1, Message: `{"reason":"AgentFailed","message":"no process of the container is visible"}`})
		}, want: "no process of the container is visible"},
		"a target that restarts and takes the agent with it": {change: func(s *apiServer) {
			end := endedAs(corev1.ContainerStateTerminated{ExitCode: 137})
			s.kubelet = func(p *corev1.Pod) { end(p); p.Status.ContainerStatuses[0].RestartCount++ }
		}, want: "restarted during the inspection"},
		"an agent of another version": {change: func(s *apiServer) {
			var log bytes.Buffer
			_ = result.Inspection{Version: result.InspectionVersion}.Write(&log)
			s.logs[feed] = log.String()
		}, want: "another version"},
		"a target that restarts": {change: func(s *apiServer) {
			end := s.kubelet
			s.kubelet = func(p *corev1.Pod) { end(p); p.Status.ContainerStatuses[0].RestartCount++ }
		}, want: "restarted during the inspection"},
		"an image that cannot be pulled": {change: func(s *apiServer) {
			s.kubelet = func(p *corev1.Pod) {
				p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{
					Name: p.Spec.EphemeralContainers[0].Name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}},
				}}
			}
		}, want: "imagePullSecrets"},
	} {
		t.Run(name, func(t *testing.T) {
			s := withFeed(t)
			if c.change != nil {
				c.change(s)
			}
			if c.args == "" {
				c.args = "pod/feed"
			}
			code, _, stderr := run(append([]string{"inspect", "--kubeconfig", s.serve(t)}, strings.Fields(c.args)...)...)
			if code != exitError || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d; it said %q, want one line with %q", code, stderr, c.want)
			}
		})
	}
}
