//go:build e2e

package onload

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// end is one end of a run: its agent, and the agent's termination message.
type end struct {
	role, address, accelerated, cpu string
	*lab.Running
	word result.Termination
}

// outcome is the result of a run.
type outcome struct {
	ends []*end
	// stored and proofs, the lines of client and server, are set if both ends succeeded.
	stored *result.Stored
	proofs [2][]v1alpha1.ProofLine
	took   time.Duration
}

// benchmark returns a case's benchmark with the defaults that the API server would set.
func (c testCase) benchmark() *v1alpha1.LatencyBenchmark {
	b := &v1alpha1.LatencyBenchmark{
		ObjectMeta: metav1.ObjectMeta{Name: "onload", Namespace: "perf", UID: "b"},
		Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
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
		}},
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

// run measures a case's benchmark once. It calls during when both ends run.
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
		e.Running = lab.Agent{
			Endpoint: pods.Endpoint{Benchmark: b, Image: "bench", Node: "node-" + e.role, Variant: run.Variant, Task: task},
			PodIP:    e.address, Space: spaces[e.role], CPUs: e.cpu, Devices: c.devices(), Binds: c.binds,
			Env: append([]string{"SFNT_AVOID_FORK=1", "EF_INTERFACE_WHITELIST=" + e.accelerated}, c.container...),
		}.Start(t)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if during != nil {
			during(o)
		}
	}()
	for _, e := range o.ends {
		e.word = e.Wait(t, patience)
	}
	<-done
	o.took = time.Since(began)
	if o.ends[0].word.Reason == "" && o.ends[1].word.Reason == "" {
		stored := lab.Store(t, o.ends[0].Running, o.ends[1].Running)
		o.stored = &stored
		if c.host {
			run.Variant.Network = &v1alpha1.Network{Type: v1alpha1.NetworkHost}
		}
		o.proofs[0], o.proofs[1] = proof.Endpoints(b.Spec, run.Variant, stored)
	}
	return o
}

// acceleration returns the proof's line about acceleration.
func acceleration(lines []v1alpha1.ProofLine) v1alpha1.ProofLine {
	for _, l := range lines {
		if l.Check == v1alpha1.ProofAcceleration {
			return l
		}
	}
	return v1alpha1.ProofLine{}
}

// failure returns the reason and message of the run's failure: those of the end that failed for another reason than the loss of its
// peer, or else of the client, with the message of the server.
func (o *outcome) failure() (reason, message string) {
	client, server := o.ends[0].word, o.ends[1].word
	switch {
	case client.Reason == "":
		return server.Reason, server.Message
	case client.Reason != v1alpha1.OutcomePeerUnreachable || server.Reason == "":
		return client.Reason, client.Message
	case server.Reason != v1alpha1.OutcomePeerUnreachable:
		return server.Reason, server.Message
	}
	return client.Reason, client.Message + "; " + server.Message
}
