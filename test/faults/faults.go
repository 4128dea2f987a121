// Package faults is the table of how a benchmark reacts to failures: twelve faults in six states. Each cell holds the
// expectation of its spec. The specs of test/driven, test/integration and test/e2e take their expectations from here, each suite
// fails if it has no spec for one of its cells, and the table in docs/internals/faults.md is printed from here.
package faults

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Fault is a failure of a component.
type Fault string

// The faults.
const (
	Manager      Fault = "manager killed"
	Agent        Fault = "agent killed"
	Tool         Fault = "tool killed"
	Pod          Fault = "pod deleted"
	Kubelet      Fault = "kubelet killed"
	Containerd   Fault = "containerd killed"
	APIServer    Fault = "API server fails"
	Etcd         Fault = "etcd fails"
	Node         Fault = "node cut off"
	Cable        Fault = "cable cut"
	DevicePlugin Fault = "device plugin killed"
	Store        Fault = "results cannot be stored"
)

// Faults holds all faults, in the order of the table.
var Faults = []Fault{Manager, Agent, Tool, Pod, Kubelet, Containerd, APIServer, Etcd, Node, Cable, DevicePlugin, Store}

// State is the progress of a benchmark.
type State string

// The states.
const (
	// Waiting is the state before the claim: another benchmark has the nodes.
	Waiting State = "before the claim"
	// Claimed: this benchmark has claimed the nodes, and the server's pod does not run yet.
	Claimed State = "claimed"
	// ServerUp: the server's pod runs, and the client's does not yet.
	ServerUp State = "server up"
	// Measuring: both pods run.
	Measuring State = "measuring"
	// HandingOver: the measurement is over, and the result is not stored yet.
	HandingOver State = "handing over"
	// Judging: every run is stored, and the verdict on them is not written yet.
	Judging State = "judging"
)

// States holds all states, in the order of the table.
var States = []State{Waiting, Claimed, ServerUp, Measuring, HandingOver, Judging}

// Suite is the test suite whose specs inject the fault.
type Suite string

// The suites.
const (
	// Driven is a world in which the test drives the reconcilers, and the time.
	Driven Suite = "D"
	// Integration has a real API server, and simulates the kubelets.
	Integration Suite = "I"
	// E2E kills the processes of the local cluster.
	E2E Suite = "E"
)

// Outcome is the expected result of the benchmark. Exactly one of Attempts, Verdict and Never is set.
type Outcome struct {
	// Attempts holds the outcomes of the attempts at the run, in order. The last one always measures: the benchmark has its
	// result after the fault is over. If the outcome depends on the kubelet, there are two, as "A or B"; see Ends.
	Attempts []string
	// Or holds the attempts in place of Attempts if the killed kubelet has not yet released the CPUs of an ended pod, and
	// the remaining CPUs are too few for the waiting pod. The spec reads that from the kubelet's checkpoint.
	Or []string
	// Verdict is the reason of condition Passed while the fault lasts. Afterwards the reason is the verdict on the results.
	Verdict string
	// Never is the reason why the fault cannot occur in this state. The spec checks that reason.
	Never string
}

// Cell is a fault in a state.
type Cell struct {
	Fault Fault
	State State
	Suite Suite
	Outcome
}

// Name returns the name of the cell's spec.
func (c Cell) Name() string { return fmt.Sprintf("%s, %s", c.Fault, c.State) }

// Kept is the Verdict of a fault that does not change it.
const Kept = "the verdict is kept"

var (
	once      = Outcome{Attempts: []string{v1alpha1.OutcomeMeasured}}
	kept      = Outcome{Verdict: Kept}
	noPod     = Outcome{Never: "no pod exists"}
	noProcess = Outcome{Never: "the process does not exist yet"}
	toolEnded = Outcome{Never: "the tool has ended"}
	// rejected is the outcome of a kubelet that has lost the device. Its node may or may not report that within the
	// operator's patience.
	rejected = again(v1alpha1.OutcomeTopologyAffinity + " or " + v1alpha1.OutcomeDevicePluginUnavailable)
	// restarted is the outcome of a kubelet that admits its first pod after the start according to its checkpoint. Until the
	// device plugins have registered again, its node has no devices, and the operator may observe that.
	restarted = Outcome{Attempts: once.Attempts, Or: rejected.Attempts}
)

// again returns the outcome of an attempt that fails, followed by one that measures.
func again(reason string) Outcome {
	return Outcome{Attempts: []string{reason, v1alpha1.OutcomeMeasured}}
}

var table = []struct {
	fault    Fault
	suite    Suite
	outcomes [6]Outcome // in the order of States
}{
	{Manager, Driven, [6]Outcome{once, once, once, once, once, kept}},
	{Agent, E2E, [6]Outcome{noPod, noProcess, again(v1alpha1.OutcomeAgentFailed), again(v1alpha1.OutcomeAgentFailed), again(v1alpha1.OutcomeAgentFailed), noPod}},
	{Tool, E2E, [6]Outcome{noPod, noProcess, noProcess, again(v1alpha1.OutcomeToolFailed), toolEnded, noPod}},
	{Pod, Driven, [6]Outcome{noPod, again(v1alpha1.OutcomePodLost), again(v1alpha1.OutcomePodLost), again(v1alpha1.OutcomePodLost), again(v1alpha1.OutcomePodLost), noPod}},
	{Kubelet, E2E, [6]Outcome{once, restarted, restarted, once, once, kept}},
	{Containerd, E2E, [6]Outcome{once, once, once, once, once, kept}},
	{APIServer, Integration, [6]Outcome{once, once, once, once, once, kept}},
	{Etcd, Integration, [6]Outcome{once, once, once, once, once, kept}},
	{Node, Driven, [6]Outcome{once, again(v1alpha1.OutcomeNodeLost), again(v1alpha1.OutcomeNodeLost), again(v1alpha1.OutcomeNodeLost), again(v1alpha1.OutcomeAgentFailed), kept}},
	{Cable, E2E, [6]Outcome{once, once, once, once, once, kept}},
	{DevicePlugin, E2E, [6]Outcome{once, rejected, rejected, once, once, kept}},
	{Store, Driven, [6]Outcome{once, once, once, once, again(v1alpha1.OutcomeStoreRefused), {Verdict: v1alpha1.ReasonResultsMissing}}},
}

// Ends reports whether the reason for which an attempt ended is the one in the table, or one of two.
func Ends(want, reason string) bool { return slices.Contains(strings.Split(want, " or "), reason) }

// Cells returns all cells of the table, row by row.
func Cells() []Cell {
	var all []Cell
	for _, row := range table {
		for i, outcome := range row.outcomes {
			all = append(all, Cell{row.fault, States[i], row.suite, outcome})
		}
	}
	return all
}

// Find returns a cell.
func Find(fault Fault, state State) Cell {
	for _, c := range Cells() {
		if c.Fault == fault && c.State == state {
			return c
		}
	}
	panic(fmt.Sprintf("the table has no cell %q, %q", fault, state))
}

// Markdown returns the table as in docs/internals/faults.md.
func Markdown() string {
	var text strings.Builder
	text.WriteString("| fault |")
	for _, s := range States {
		fmt.Fprintf(&text, " %s |", s)
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(States)))
	for i, c := range Cells() {
		if i%len(States) == 0 {
			fmt.Fprintf(&text, "\n| %s |", c.Fault)
		}
		fmt.Fprintf(&text, " %s |", c.markdown())
	}
	return text.String() + "\n"
}

func (c Cell) markdown() string {
	switch {
	case c.Never != "":
		return fmt.Sprintf("%s: *%s*", c.Suite, c.Never)
	case c.Verdict == Kept:
		return fmt.Sprintf("%s: %s", c.Suite, c.Verdict)
	case c.Verdict != "":
		return fmt.Sprintf("%s: `%s`", c.Suite, c.Verdict)
	default:
		text := fmt.Sprintf("%s: `%s`", c.Suite, strings.Join(c.Attempts, "`, `"))
		if c.Or != nil {
			text += fmt.Sprintf("; with CPUs not released: `%s`", strings.Join(c.Or, "`, `"))
		}
		return strings.ReplaceAll(text, " or ", "` or `")
	}
}
