//go:build e2e

package onload

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
	"github.com/tailgate-dev/tailgate/test/lab"
)

var roles = []string{v1alpha1.RoleClient, v1alpha1.RoleServer}

// end is a side of a run: its pod, and what came of it.
type end struct {
	role, address, accelerated, cpu string
	endpoint                        pods.Endpoint
	pod                             *corev1.Pod
	process                         *lab.Process
	termination                     string
	output                          []byte
	ended                           chan struct{}
}

// outcome is what came of a run.
type outcome struct {
	ends []*end
	// stored is complete if both ends succeeded, and proofs are then the lines of client and server.
	stored *result.Stored
	proofs [2][]v1alpha1.ProofLine
	took   time.Duration
}

// failure is how an end failed: its reason and message.
func (e *end) failure() (result.Termination, error) {
	text, err := os.ReadFile(e.termination)
	if err != nil {
		return result.Termination{}, err
	}
	return result.ParseTermination(string(text))
}

// benchmark is a case's benchmark, complete as the API server would default it.
func (c testCase) benchmark() *v1alpha1.LatencyBenchmark {
	b := &v1alpha1.LatencyBenchmark{
		ObjectMeta: metav1.ObjectMeta{Name: "onload", Namespace: "perf", UID: "b"},
		Spec: v1alpha1.LatencyBenchmarkSpec{
			Tool: c.program, Rounds: 1, LatencyType: v1alpha1.LatencyHalfRTT, Capture: c.capture,
			Workload: v1alpha1.Workload{
				Protocols: c.protocols, MessageSizes: c.sizes, RatesPerSecond: c.rates, Streams: c.streams,
				Duration: metav1.Duration{Duration: cmp.Or(c.duration, seconds)}, Warmup: metav1.Duration{Duration: 300 * time.Millisecond},
				Wait: c.wait, MulticastGroup: "239.1.2.3",
			},
			Placement:    v1alpha1.Placement{CPUs: max(1, c.cpus), Memory: resource.MustParse("512Mi")},
			Network:      v1alpha1.Network{Type: v1alpha1.NetworkPod},
			Acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{Profile: c.profile}},
			Pods:         &v1alpha1.PodSettings{},
		},
	}
	if len(c.sizes) == 0 && len(c.streams) == 0 {
		b.Spec.Workload.MessageSizes = []int32{64}
	}
	if c.kernel {
		b.Spec.Acceleration = nil
	}
	for _, setting := range c.settings {
		name, value, _ := strings.Cut(setting, "=")
		b.Spec.Pods.Env = append(b.Spec.Pods.Env, v1alpha1.EnvVar{Name: name, Value: value})
	}
	return b
}

// run measures a case's benchmark once. During is called when both ends run.
func (c testCase) run(t *testing.T, during func(*outcome)) *outcome {
	t.Helper()
	b := c.benchmark()
	return c.measure(t, b, plan.Runs(b)[0], during)
}

// measure measures a run of a benchmark with the pods of a case.
func (c testCase) measure(t *testing.T, b *v1alpha1.LatencyBenchmark, run plan.Run, during func(*outcome)) *outcome {
	t.Helper()
	driver, err := all.Registry().Get(c.program)
	if err != nil {
		t.Fatal(err)
	}
	env, err := onload.Environment(run.Variant, nil)
	if err != nil {
		t.Fatal(err)
	}
	task := plan.Task{
		Run: run.Name, Variant: run.Variant.Name, Attempt: 1, Tool: c.program, Cells: run.Cells,
		Acceleration: run.Variant.Acceleration.Type, Library: onload.Library(*run.Variant.Acceleration), Env: env,
		Deadline: plan.Deadline(driver, run.Cells),
	}
	o := &outcome{ends: []*end{
		{role: v1alpha1.RoleClient, address: clientAddress, accelerated: "eth0", cpu: endCPU[0]},
		{role: v1alpha1.RoleServer, address: serverAddress, accelerated: "eth1", cpu: endCPU[1]},
	}}
	if c.cpus == 2 {
		o.ends[0].cpu, o.ends[1].cpu = "0-1", "2-3"
	}
	if c.unregistered {
		o.ends[0].address = otherClientAddress
		o.ends[1].address = otherServerAddress
	}
	began := time.Now()
	for _, i := range []int{1, 0} {
		e := o.ends[i]
		task := task
		task.Role = e.role
		if e.role == v1alpha1.RoleServer {
			task.Deadline += time.Minute
			task.Capture = c.capture == v1alpha1.CaptureServer
		} else {
			task.ServerAddress = o.ends[1].address
		}
		e.start(t, c, pods.Endpoint{Benchmark: b, Image: "bench", Node: "node-" + e.role, Variant: run.Variant, Task: task})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if during != nil {
			during(o)
		}
	}()
	for _, e := range o.ends {
		select {
		case <-e.ended:
		case <-time.After(patience):
			t.Errorf("the %s did not end", e.role)
			_ = e.process.Kill()
			<-e.ended
		}
	}
	<-done
	o.took = time.Since(began)
	o.read(t, b, run.Variant)
	return o
}

// start starts an end's agent as the kubelet would.
func (e *end) start(t *testing.T, c testCase, endpoint pods.Endpoint) {
	t.Helper()
	pod, err := pods.Build(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	pod.UID, pod.Status.PodIP = types.UID("uid-"+e.role), e.address
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pods.Container, ImageID: "sha256:bench"}}
	e.endpoint, e.pod = endpoint, pod
	container := pod.Spec.Containers[0]
	env := append([]string{"SFNT_AVOID_FORK=1", "EF_INTERFACE_WHITELIST=" + e.accelerated}, lab.Env(pod, endpoint.Node)...)
	env = append(env, c.container...)
	dir := t.TempDir()
	e.termination = dir + "/termination"
	for _, f := range []string{e.termination, dir + "/scratch"} {
		if strings.HasSuffix(f, "scratch") {
			err = os.Mkdir(f, 0o777)
		} else {
			err = os.WriteFile(f, nil, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(f, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	binds := map[string]string{"/dev/termination-log": e.termination, plan.Scratch: dir + "/scratch"}
	maps.Copy(binds, c.binds)
	uid := 65532
	if c.capture == v1alpha1.CaptureServer && e.role == v1alpha1.RoleServer {
		uid = 0
	}
	e.process, err = lab.Pod{
		Name: e.role, Space: spaces[e.role], CPUs: e.cpu, UID: uid, MemoryMax: "512M",
		Args: slices.Concat(container.Command, container.Args), Env: env, Binds: binds, Devices: c.devices(),
	}.Start()
	if err != nil {
		t.Fatalf("starting the %s: %v", e.role, err)
	}
	e.ended = make(chan struct{})
	go func() {
		defer close(e.ended)
		e.output, _ = e.process.Wait()
	}()
}

// read reads the results and judges them as the controller does.
func (o *outcome) read(t *testing.T, b *v1alpha1.LatencyBenchmark, v v1alpha1.Variant) {
	t.Helper()
	var framed [2]result.Framed
	var seen [2]result.Seen
	for i, e := range o.ends {
		end, err := e.failure()
		if err != nil {
			t.Errorf("the %s left no word: %v; it wrote %q", e.role, err, e.output)
			return
		}
		if end.Reason != "" {
			return
		}
		if framed[i], err = result.ReadFrame(strings.NewReader(string(e.output))); err != nil {
			t.Fatalf("reading the result of the %s: %v", e.role, err)
		}
		if seen[i], err = pods.Seen(e.endpoint, e.pod); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := result.NewStored(framed[0], framed[1], seen[0], seen[1])
	if err != nil {
		t.Fatal(err)
	}
	o.stored = &stored
	o.proofs[0], o.proofs[1] = proof.Endpoints(b.Spec, v, stored)
}

// acceleration is the proof's line about it.
func acceleration(lines []v1alpha1.ProofLine) v1alpha1.ProofLine {
	for _, l := range lines {
		if l.Check == v1alpha1.ProofAcceleration {
			return l
		}
	}
	return v1alpha1.ProofLine{}
}

// failure is why the run failed: what the end says that did not only lose its peer.
func (o *outcome) failure(t *testing.T) (reason, message string) {
	t.Helper()
	for _, e := range o.ends {
		end, err := e.failure()
		if err != nil {
			t.Error(err)
		}
		if reason == "" || reason == v1alpha1.OutcomePeerUnreachable {
			reason, message = end.Reason, end.Message
		}
	}
	return reason, message
}
