// Package faults is the table of what becomes of a benchmark when something fails: twelve faults in six states. Each cell
// says what its spec expects. The specs of test/integration and test/e2e take their expectations from here, each suite fails
// if it has no spec for one of its cells, and the table in docs/faults.md is printed from here.
package faults

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Fault is what fails.
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

// Faults are all faults, in the order of the table.
var Faults = []Fault{Manager, Agent, Tool, Pod, Kubelet, Containerd, APIServer, Etcd, Node, Cable, DevicePlugin, Store}

// State is how far a benchmark is.
type State string

// The states.
const (
	// Waiting is before the claim: another benchmark has the nodes.
	Waiting State = "before the claim"
	// Claimed: the nodes are this benchmark's, and the server's pod does not run yet.
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

// States are all states, in the order of the table.
var States = []State{Waiting, Claimed, ServerUp, Measuring, HandingOver, Judging}

// Suite is whose specs inject the fault.
type Suite string

// The suites.
const (
	// Integration has a real API server, and plays the kubelets.
	Integration Suite = "I"
	// E2E kills the processes of the local cluster.
	E2E Suite = "E"
)

// Outcome is what becomes of the benchmark: exactly one field is set.
type Outcome struct {
	// Attempts are how the attempts at the run end, in order. The last one always measures: the benchmark has its result
	// when the fault has passed. Where it is for the kubelet to choose, there are two, as "A or B"; see Ends.
	Attempts []string
	// Or are the attempts instead if the kubelet that is killed has not released the CPUs of an ended pod yet, and the others
	// are too few for the pod that waits. The spec reads that from the kubelet's checkpoint.
	Or []string
	// Verdict is the reason of condition Passed while the fault lasts. Afterwards it is the verdict on the results.
	Verdict string
	// Never is why the fault cannot occur in this state. The spec checks that it is so.
	Never string
}

// Cell is a fault in a state.
type Cell struct {
	Fault Fault
	State State
	Suite Suite
	Outcome
}

// Name names the cell's spec.
func (c Cell) Name() string { return fmt.Sprintf("%s, %s", c.Fault, c.State) }

// Kept is the Verdict of a fault that does not change it.
const Kept = "the verdict is kept"

var (
	once      = Outcome{Attempts: []string{v1alpha1.OutcomeMeasured}}
	kept      = Outcome{Verdict: Kept}
	noPod     = Outcome{Never: "no pod exists"}
	noProcess = Outcome{Never: "the process does not exist yet"}
	toolEnded = Outcome{Never: "the tool has ended"}
	// rejected is by a kubelet that has lost the device, whose node says so within the operator's patience or not.
	rejected = again(v1alpha1.OutcomeTopologyAffinity + " or " + v1alpha1.OutcomeDevicePluginUnavailable)
	// restarted is a kubelet that admits its first pod after the start with what its checkpoint says. Until the device plugins
	// have registered again its node has no devices, which may be what the operator sees.
	restarted = Outcome{Attempts: once.Attempts, Or: rejected.Attempts}
)

// again is an attempt that fails, and a second one that measures.
func again(reason string) Outcome {
	return Outcome{Attempts: []string{reason, v1alpha1.OutcomeMeasured}}
}

var table = []struct {
	fault    Fault
	suite    Suite
	outcomes [6]Outcome // in the order of States
}{
	{Manager, Integration, [6]Outcome{once, once, once, once, once, kept}},
	{Agent, E2E, [6]Outcome{noPod, noProcess, again(v1alpha1.OutcomeAgentFailed), again(v1alpha1.OutcomeAgentFailed), again(v1alpha1.OutcomeAgentFailed), noPod}},
	{Tool, E2E, [6]Outcome{noPod, noProcess, noProcess, again(v1alpha1.OutcomeToolFailed), toolEnded, noPod}},
	{Pod, Integration, [6]Outcome{noPod, again(v1alpha1.OutcomePodLost), again(v1alpha1.OutcomePodLost), again(v1alpha1.OutcomePodLost), again(v1alpha1.OutcomePodLost), noPod}},
	{Kubelet, E2E, [6]Outcome{once, restarted, restarted, once, once, kept}},
	{Containerd, E2E, [6]Outcome{once, once, once, once, once, kept}},
	{APIServer, Integration, [6]Outcome{once, once, once, once, once, kept}},
	{Etcd, Integration, [6]Outcome{once, once, once, once, once, kept}},
	{Node, Integration, [6]Outcome{once, again(v1alpha1.OutcomeNodeLost), again(v1alpha1.OutcomeNodeLost), again(v1alpha1.OutcomeNodeLost), again(v1alpha1.OutcomeAgentFailed), kept}},
	{Cable, E2E, [6]Outcome{once, once, once, once, once, kept}},
	{DevicePlugin, E2E, [6]Outcome{once, rejected, rejected, once, once, kept}},
	{Store, Integration, [6]Outcome{once, once, once, once, again(v1alpha1.OutcomeStoreRefused), {Verdict: v1alpha1.ReasonResultsMissing}}},
}

// Ends says whether an attempt that ended for a reason is what the table says of it.
func Ends(want, reason string) bool { return slices.Contains(strings.Split(want, " or "), reason) }

// Cells are all cells of the table, row by row.
func Cells() []Cell {
	var all []Cell
	for _, row := range table {
		for i, outcome := range row.outcomes {
			all = append(all, Cell{row.fault, States[i], row.suite, outcome})
		}
	}
	return all
}

// Find is a cell.
func Find(fault Fault, state State) Cell {
	for _, c := range Cells() {
		if c.Fault == fault && c.State == state {
			return c
		}
	}
	panic(fmt.Sprintf("the table has no cell %q, %q", fault, state))
}

// Markdown is the table as docs/faults.md has it.
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
