package lab

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/netpair"
)

// Agent is one end of a run: a pod as the controller creates it, with the additions of kubelet, device plugin and Multus.
type Agent struct {
	Endpoint pods.Endpoint
	// PodIP is the pod's address.
	PodIP string
	// Annotations are added to the pod, and Env to the environment of its container.
	Annotations map[string]string
	Env         []string
	// Space, CPUs, Devices and Binds are the pod's.
	Space   *netpair.Namespace
	CPUs    string
	Devices []string
	Binds   map[string]string
}

// Running is an agent that was started.
type Running struct {
	Pod         *corev1.Pod
	Process     *Process
	agent       Agent
	termination string
	output      []byte
	ended       chan struct{}
}

// Start starts the agent.
func (a Agent) Start(t testing.TB) *Running {
	t.Helper()
	pod, err := pods.Build(a.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	role := a.Endpoint.Task.Role
	pod.UID, pod.Status.PodIP = types.UID("uid-"+role), a.PodIP
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pods.Container, ImageID: "sha256:bench"}}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, a.Annotations)
	container := pod.Spec.Containers[0]
	env := Env(pod, a.Endpoint.Node)
	dir := t.TempDir()
	r := &Running{Pod: pod, agent: a, termination: filepath.Join(dir, "termination"), ended: make(chan struct{})}
	scratch := filepath.Join(dir, "scratch")
	user := 65532
	if root := pod.Spec.SecurityContext.RunAsUser; root != nil {
		user = int(*root)
	}
	err = errors.Join(os.WriteFile(r.termination, nil, 0o600), os.Mkdir(scratch, 0o700), os.Chown(r.termination, user, user),
		os.Chown(scratch, user, user), os.MkdirAll(plan.Scratch, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	binds := map[string]string{"/dev/termination-log": r.termination, plan.Scratch: scratch}
	maps.Copy(binds, a.Binds)
	r.Process, err = Pod{
		Name: role, Space: a.Space, CPUs: a.CPUs, UID: user, MemoryMax: strconv.FormatInt(container.Resources.Limits.Memory().Value(), 10),
		Args: slices.Concat(container.Command, container.Args), Env: append(env, a.Env...), Binds: binds, Devices: a.Devices,
	}.Start()
	if err != nil {
		t.Fatalf("starting the %s: %v", role, err)
	}
	go func() {
		defer close(r.ended)
		r.output, _ = r.Process.Wait() // its termination message has the reason of an error
	}()
	return r
}

// Wait waits until the agent has ended by itself, and returns its termination message.
func (r *Running) Wait(t testing.TB, patience time.Duration) result.Termination {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		t.Errorf("the %s did not end in %s", r.agent.Endpoint.Task.Role, patience)
		_ = r.Process.Kill()
		<-r.ended
	}
	return r.word(t)
}

// Ended reports whether the agent has ended.
func (r *Running) Ended() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// word returns the termination message of an agent that has ended. It is empty if the agent left none, which fails the test.
func (r *Running) word(t testing.TB) result.Termination {
	t.Helper()
	text, err := os.ReadFile(r.termination)
	if err != nil {
		t.Fatal(err)
	}
	word, err := result.ParseTermination(string(text))
	if err != nil {
		t.Errorf("the %s left no word: %v; it wrote %q", r.agent.Endpoint.Task.Role, err, r.output)
	}
	return word
}

// Terminate sends SIGTERM to the agent, as the kubelet does when the controller has deleted the pod.
func (r *Running) Terminate() error { return r.Process.cmd.Process.Signal(syscall.SIGTERM) }

// Output returns the output of an agent that has ended.
func (r *Running) Output() string { return string(r.output) }

// Tools returns the number of processes in the pod besides the agent.
func (r *Running) Tools() int {
	pids, err := r.Process.PIDs()
	if err != nil {
		return 0
	}
	return len(pids) - 1
}

// Store returns the result of a run in which both ends succeeded, as the controller stores it.
func Store(t testing.TB, client, server *Running) result.Stored {
	t.Helper()
	var framed [2]result.Framed
	var seen [2]result.Seen
	for i, r := range []*Running{client, server} {
		<-r.ended
		word := r.word(t)
		var err error
		if framed[i], err = result.ReadFrame(strings.NewReader(r.Output())); err != nil {
			t.Fatalf("reading the result of the %s: %v: %s: %s", r.agent.Endpoint.Task.Role, err, word.Reason, word.Message)
		}
		if seen[i], err = pods.Seen(r.agent.Endpoint, r.Pod); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := result.NewStored(framed[0], framed[1], seen[0], seen[1])
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// Proof returns the lines of a run's proof, by role and check.
func Proof(spec v1alpha1.LatencyBenchmarkSpec, v v1alpha1.Variant, run result.Stored) map[string]v1alpha1.ProofLine {
	lines := map[string]v1alpha1.ProofLine{}
	client, server := proof.Endpoints(spec, v, run)
	for role, list := range map[string][]v1alpha1.ProofLine{v1alpha1.RoleClient: client, v1alpha1.RoleServer: server} {
		for _, l := range list {
			lines[fmt.Sprintf("%s %s", role, l.Check)] = l
		}
	}
	return lines
}

// Disturbed reports whether a line only notes that an end waited for a CPU of its own, or shared it: emulated CPUs wait for those of
// the host, which says nothing about what is tested. A quota, or CPUs of others, are Failed.
func Disturbed(l v1alpha1.ProofLine) bool {
	return l.State == v1alpha1.ProofNoted && (strings.Contains(l.Found, "the tool waited") || strings.Contains(l.Found, "but other threads ran"))
}

// Undisturbed executes a run, and again, at most four times, if an end of it was disturbed. Any other line that is not as it should be
// is no reason to repeat.
func Undisturbed(t testing.TB, run func() (spec v1alpha1.LatencyBenchmarkSpec, v v1alpha1.Variant, stored *result.Stored)) {
	t.Helper()
	for range 5 {
		spec, v, stored := run()
		if stored == nil {
			return
		}
		disturbed := false
		for name, l := range Proof(spec, v, *stored) {
			if Disturbed(l) {
				t.Logf("%s: %s", name, l.Found)
				disturbed = true
			}
		}
		if !disturbed {
			return
		}
	}
}

// Env returns the environment that a kubelet gives the container of a pod on a node.
func Env(pod *corev1.Pod, node string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, v := range pod.Spec.Containers[0].Env {
		value := v.Value
		switch {
		case v.Name == plan.EnvKey:
			value = "the key of both pods"
		case v.ValueFrom != nil:
			value = map[string]string{"spec.nodeName": node, "status.podIP": pod.Status.PodIP, "metadata.uid": string(pod.UID)}[v.ValueFrom.FieldRef.FieldPath]
		}
		env = append(env, v.Name+"="+value)
	}
	return env
}
