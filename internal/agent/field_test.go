package agent

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/doctor"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/field"
)

// TestField reads the machines of the corpus, and has the proof and the doctor judge what it read. The answer has the facts, the
// lines of the proof by check, the remedies of its warnings as "advice CHECK", and the doctor's lines as "doctor CHECK".
func TestField(t *testing.T) {
	field.Run(t, "nodes", "internal/agent", func(t *testing.T, c field.Case) map[string]string {
		h := host{root: c.Root(t), parent: c.Arguments["parent"]}
		cpus, allowed, err := h.cpusAllowed()
		if err != nil {
			return map[string]string{"error": err.Error()}
		}
		e := h.gather(cpus[0], cpus, net.Interface{Name: "net1", MTU: 1500}, strings.Fields(c.Arguments["environ"]))
		e.Node, e.CPUsAllowed, e.AgentCPU, e.Deltas = "a", allowed, int32(cpus[len(cpus)-1]), map[string]int64{}
		for word := range strings.FieldsSeq(c.Arguments["deltas"]) {
			name, value, _ := strings.Cut(word, "=")
			if e.Deltas[name], err = strconv.ParseInt(value, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		answer := maps.Clone(e.Facts)
		answer["pci"], answer["model"] = e.PCIAddress, e.CPUModel
		answer["cpu.hypervisor"] = e.Facts["cpu.hypervisor"]
		answer["numa.cpu"], answer["numa.device"] = strconv.Itoa(int(e.CPUNUMANode)), strconv.Itoa(int(e.DeviceNUMANode))
		var nics []string
		for _, nic := range h.nics() {
			nics = append(nics, nic.PCIAddress)
		}
		answer["nics"] = strings.Join(nics, " ")
		judge(c, e, answer)
		inspected(h, e, answer)
		return answer
	})
}

// judge adds the proof of evidence of an end that requested as many CPUs as it has.
func judge(c field.Case, e result.Evidence, answer map[string]string) {
	spec := v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{Network: v1alpha1.Network{Type: v1alpha1.NetworkVF}, Placement: v1alpha1.Placement{CPUs: 2, NUMAPolicy: v1alpha1.NUMARequired}}}
	if network := c.Arguments["network"]; network != "" {
		spec.Network.Type = v1alpha1.NetworkType(network)
	}
	if class := c.Arguments["runtimeClass"]; class != "" {
		spec.Pods = &v1alpha1.PodSettings{RuntimeClassName: class}
	}
	run := result.Stored{Client: result.Document{Evidence: e}, Server: result.Document{Evidence: e}, ClientSeen: result.Seen{NodeBootID: c.Arguments["nodeBootID"]}}
	run.Server.Evidence.BootID = "boot-b"
	lines, _ := proof.Endpoints(spec, plan.Variants(spec)[0], run)
	for _, l := range lines {
		answer[l.Check] = string(l.State) + ": " + l.Found
		for _, w := range proof.Warnings(spec, plan.Variants(spec)[0], run) {
			if strings.Contains(w.Message, l.Check+": ") {
				answer["advice "+l.Check] = w.Message
			}
		}
	}
}

// inspected adds what the doctor says about the machine.
func inspected(h host, e result.Evidence, answer map[string]string) {
	i := &result.Inspection{Version: result.InspectionVersion, Evidence: e, NUMA: h.numaCPUs(), NICs: h.nics()}
	n := doctor.Node{Node: corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	for _, kind := range []doctor.Kind{doctor.KindCPU, doctor.KindNetwork} {
		n.Looks = append(n.Looks, doctor.Look{Kind: kind, CPUs: 2, Network: map[doctor.Kind]string{doctor.KindNetwork: "perf/sf-vf"}[kind], Inspection: i})
	}
	for _, l := range slices.Backward(doctor.Diagnose(doctor.Observed{Nodes: []doctor.Node{n}}).Lines) {
		answer["doctor "+l.Check] = string(l.Level) + ": " + l.Found
	}
}
