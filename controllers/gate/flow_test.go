package gate

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/turns"
	"github.com/tailgate-dev/tailgate/test/gatetest"
)

// all returns a change that applies several changes.
func all(changes ...func(*world)) func(*world) {
	return func(w *world) {
		for _, change := range changes {
			change(w)
		}
	}
}

func status(change func(*v1alpha1.LatencyVerificationStatus)) func(*world) {
	return func(w *world) { change(&w.verification.Status) }
}

// by is a request of a user before noon.
var by = v1alpha1.UserRequest{RequestedBy: "alice", RequestTime: "2026-05-04T11:59:00Z"}

// asksAccept requests that a result is accepted.
func asksAccept(benchmark string) func(*world) {
	return func(w *world) {
		w.verification.Spec.Accept = &v1alpha1.AcceptRequest{Benchmark: benchmark, UserRequest: by}
	}
}

// asksVerify requests a new measurement.
func asksVerify(w *world) { w.verification.Spec.Verify = new(by) }

func booted(w *world) { w.node.Status.NodeInfo.BootID = "boot-2" }

func peerNotVerified(w *world) { w.verification.Status.Benchmark.PeerVerified = false }

func suspected(w *world) { w.verification.Status.SuspectPeer = "c" }

// warm makes the first rounds of the gate's sessions slower, longer gives each session of the reference rounds after them, and onlyWarmUp
// leaves those that have none.
func warm(w *world) { w.gate.Status.Spread[0].WarmUp = "1.0210" }
func longer(w *world) {
	for i := range w.verification.Status.Reference {
		w.verification.Status.Reference[i].Rounds = w.verification.Status.Reference[0].Rounds
	}
}
func onlyWarmUp(w *world) { w.verification.Status.Reference = w.verification.Status.Reference[1:] }

// oneBoot leaves one session in the reference, otherPeer makes its peer another one.
func oneBoot(w *world) { w.verification.Status.Reference = w.verification.Status.Reference[:1] }

func otherPeer(w *world) {
	for i := range w.verification.Status.Reference {
		w.verification.Status.Reference[i].Peer = "c"
	}
}

func noReference(w *world) {
	w.verification.Status.Accepted, w.verification.Status.Reference = nil, nil
}

// kin gives the gate other nodes of the same kind whose first sessions have a level.
func kin(n int, levels ...int64) func(*world) {
	return func(w *world) {
		v := makeVerification("c")
		v.Status.Reference[0].Rounds = gatetest.Rounds(levels...)
		w.others = slices.Repeat([]sessions.Node{sessions.OfNode(v)}, n)
	}
}

// began sets how long before noon the current benchmark started.
func began(since time.Duration) func(*world) {
	return func(w *world) {
		if w.verification.Status.Benchmark == nil {
			running(w)
		}
		w.verification.Status.Benchmark.StartTime = *at(since)
	}
}

// attempt gives the current benchmark an active attempt; it has ended unless ended is negative.
func attempt(claimed, ended time.Duration) func(*world) {
	return func(w *world) {
		w.benchmark.Status.Active = &v1alpha1.ActiveAttempt{StartTime: metav1.NewMicroTime(ago(claimed))}
		if ended >= 0 {
			w.benchmark.Status.Active.Outcome = &v1alpha1.Outcome{CompletionTime: metav1.NewMicroTime(ago(ended))}
		}
	}
}

func notSelected(w *world) { w.owner = nil }

func taken(w *world) { w.owner = makeGate(func(g *v1alpha1.LatencyGate) { g.Name = "older" }) }

func retained(since time.Duration) func(*world) {
	return status(func(s *v1alpha1.LatencyVerificationStatus) { s.Retained = &v1alpha1.Retention{StartTime: *at(since)} })
}

// lookedAt makes the first look that found the end of the retention one that long ago.
func lookedAt(since time.Duration) func(*world) {
	return func(w *world) { w.verification.Status.Retained.DueTime = at(since) }
}

// gone59 and gone60 make the Node one that was deleted that many minutes ago.
func gone59(w *world) { wasGone(w, 59*time.Minute) }
func gone60(w *world) { wasGone(w, time.Hour) }

func wasGone(w *world, since time.Duration) {
	unverified(v1alpha1.ReasonNodeDeleted)(w.verification)
	w.verification.Status.Retained = &v1alpha1.Retention{Reason: v1alpha1.ReasonNodeDeleted, StartTime: *at(since), DueTime: at(lookAgain)}
}

func machines(w *world, was, is string) {
	w.verification.Status.SystemUUID, w.node.Status.NodeInfo.SystemUUID = was, is
}

func away(w *world) { w.node.Status.Conditions[0].Status = corev1.ConditionUnknown }

func noDevices(w *world) { w.node.Status.Allocatable["amd.com/sf_vf"] = resource.MustParse("0") }

func noPlugin(w *world) {
	w.benchmark.Status.Conditions[0].Reason = v1alpha1.ReasonDevicePluginUnavailable
}

// absent notes in the status since when the node does not report a key.
func absent(key string, since time.Duration) func(*world) {
	return status(func(s *v1alpha1.LatencyVerificationStatus) {
		limit := identity.AbsenceLimit
		if strings.HasPrefix(key, "Devices/") {
			limit = plan.PluginPatience
		}
		s.Absent = []v1alpha1.AbsentKey{{Key: key, StartTime: *at(since), EndTime: *at(since - limit)}}
	})
}

func TestDecide(t *testing.T) {
	const unverifiedState, measuringState = v1alpha1.VerificationUnverified, v1alpha1.VerificationMeasuring
	const verifiedState, failedState, inconclusiveState = v1alpha1.VerificationVerified, v1alpha1.VerificationFailed, v1alpha1.VerificationInconclusive
	passed, failed, unknown := measured(metav1.ConditionTrue, v1alpha1.ReasonPass), measured(metav1.ConditionFalse, v1alpha1.ReasonFail), measured(metav1.ConditionUnknown, v1alpha1.ReasonInconclusive)
	notAccepted := func(since time.Duration) func(*world) {
		return all(running, func(w *world) {
			c := v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInsufficientCPU, "no whole CPU")
			c.LastTransitionTime = *at(since)
			w.benchmark.Status.Conditions = []metav1.Condition{c}
		})
	}
	cases := map[string]struct {
		change func(*world)
		event  nodeEvent
		state  v1alpha1.VerificationState
		reason string
		// message is a part of the message of the step.
		message string
	}{
		"nothing happened":                        {func(*world) {}, eventNothing, verifiedState, v1alpha1.ReasonPassed, ""},
		"the node is gone":                        {func(w *world) { w.node = nil }, eventAway, unverifiedState, v1alpha1.ReasonNodeDeleted, ""},
		"the node is gone while it is measured":   {all(running, func(w *world) { w.node = nil }), eventAway, unverifiedState, v1alpha1.ReasonNodeDeleted, ""},
		"the node failed and is gone":             {func(w *world) { w.node = nil; in(failedState)(w.verification) }, eventAway, unverifiedState, v1alpha1.ReasonNodeDeleted, ""},
		"the node is still gone":                  {all(gone59, func(w *world) { w.node = nil }), eventNothing, unverifiedState, v1alpha1.ReasonNodeDeleted, ""},
		"the node has been gone for long enough":  {all(gone60, func(w *world) { w.node = nil }), eventGone, unverifiedState, v1alpha1.ReasonNodeDeleted, ""},
		"a node that was never looked at is gone": {func(w *world) { w.node, w.verification.Status = nil, v1alpha1.LatencyVerificationStatus{} }, eventGone, "", "", ""},
		"a node that is back":                     {all(gone59, func(w *world) { w.node.UID = "uid-other" }), eventReturned, unverifiedState, v1alpha1.ReasonNodeReplaced, "results of its machine are kept"},
		"a node that is back without its label":   {all(gone59, notSelected, func(w *world) { w.node.UID = "uid-other" }), eventReturned, unverifiedState, v1alpha1.ReasonNodeReplaced, ""},
		"another machine of its name":             {func(w *world) { w.node.UID = "uid-other"; machines(w, "uuid-1", "uuid-2") }, eventReplaced, unverifiedState, v1alpha1.ReasonNodeReplaced, `was "uuid-1" and is "uuid-2"`},
		"the same machine":                        {func(w *world) { w.node.UID = "uid-other"; machines(w, "uuid-1", "uuid-1") }, eventReturned, unverifiedState, v1alpha1.ReasonNodeReplaced, "are kept"},
		"a machine that does not report its UUID": {func(w *world) { w.node.UID = "uid-other"; machines(w, "uuid-1", "") }, eventReturned, unverifiedState, v1alpha1.ReasonNodeReplaced, "are kept"},
		"a gate that was made again":              {func(w *world) { w.gate.UID = "uid-again" }, eventAdopted, unverifiedState, v1alpha1.ReasonGateReplaced, "are kept"},
		"a verified node that is away":            {away, eventNothing, v1alpha1.VerificationAway, v1alpha1.ReasonNodeNotReady, ""},
		"a failed node that is away":              {all(away, func(w *world) { in(failedState)(w.verification) }), eventNothing, failedState, v1alpha1.ReasonPassed, ""},
		"a boot of one that is away":              {all(away, booted), eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, ""},
		"one that was away": {status(func(s *v1alpha1.LatencyVerificationStatus) {
			s.State, s.Conditions[0].Status, s.Conditions[0].Reason = v1alpha1.VerificationAway, metav1.ConditionUnknown, v1alpha1.ReasonNodeNotReady
		}), eventNothing, verifiedState, v1alpha1.ReasonPassed, ""},
		"a node that the gate sees for the first time": {status(func(s *v1alpha1.LatencyVerificationStatus) { *s = v1alpha1.LatencyVerificationStatus{} }), eventChanged, unverifiedState, v1alpha1.ReasonNewNode, ""},
		"a node made again under its name":             {func(w *world) { w.node.UID = "uid-other" }, eventReturned, unverifiedState, v1alpha1.ReasonNodeReplaced, ""},
		"a boot":                                       {booted, eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, "it was booted"},
		"another kernel":                               {func(w *world) { w.node.Status.NodeInfo.KernelVersion = "6.2.0" }, eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, `Kernel was "6.1.0" and is "6.2.0"`},
		"fewer devices":                                {func(w *world) { w.node.Status.Allocatable["amd.com/sf_vf"] = resource.MustParse("7") }, eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, `Devices/amd.com/sf_vf was "8" and is "7"`},
		"another value of a label":                     {func(w *world) { w.node.Labels["onload"] = "9.1" }, eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, `Label/onload was "9.0" and is "9.1"`},
		"a label that is gone":                         {func(w *world) { delete(w.node.Labels, "onload") }, eventNothing, verifiedState, v1alpha1.ReasonPassed, ""},
		"a label that is gone for 10 minutes":          {all(func(w *world) { delete(w.node.Labels, "onload") }, absent("Label/onload", 10*time.Minute)), eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, `and is ""`},
		"no device for a while":                        {all(noDevices, absent("Devices/amd.com/sf_vf", 9*time.Minute)), eventNothing, verifiedState, v1alpha1.ReasonPassed, ""},
		"no device for 30 minutes":                     {all(noDevices, absent("Devices/amd.com/sf_vf", 30*time.Minute)), eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, `was "8" and is "0"`},
		"no device at a boot":                          {all(noDevices, booted), eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, "it was booted"},
		"no device while it is measured":               {all(running, noDevices), eventNothing, measuringState, v1alpha1.ReasonMeasuring, ""},
		"the first devices of a node that waits": {func(w *world) {
			unverified(v1alpha1.ReasonNewNode)(w.verification)
			w.verification.Status.Identity["Devices/amd.com/sf_vf"] = "0"
		}, eventNothing, unverifiedState, v1alpha1.ReasonNewNode, ""},
		"the first label of a node that waits": {func(w *world) {
			unverified(v1alpha1.ReasonNewNode)(w.verification)
			w.verification.Status.Identity["Label/onload"] = ""
		}, eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, `was "" and is "9.0"`},
		"another label":                         {func(w *world) { w.node.Labels["zone"] = "1" }, eventNothing, verifiedState, v1alpha1.ReasonPassed, ""},
		"another kubelet, which does not count": {func(w *world) { w.node.Status.NodeInfo.KubeletVersion = "v1.37.0" }, eventNothing, verifiedState, v1alpha1.ReasonPassed, ""},
		"a key that the gate did not have": {func(w *world) {
			w.gate.Spec.Identity.Keys = append(w.gate.Spec.Identity.Keys, v1alpha1.IdentityKubelet)
			w.node.Status.NodeInfo.KubeletVersion = "v1.37.0"
		}, eventNothing, verifiedState, v1alpha1.ReasonPassed, ""},
		"a request":                     {asksVerify, eventAsked, verifiedState, v1alpha1.ReasonPassed, ""},
		"a request during its turn":     {all(inTurn, asksVerify), eventAsked, measuringState, v1alpha1.ReasonMeasuring, ""},
		"a request at a boot":           {all(booted, asksVerify), eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, ""},
		"a boot of a node that waits":   {all(booted, func(w *world) { unverified(v1alpha1.ReasonNewNode)(w.verification) }), eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, ""},
		"a node that waits":             {func(w *world) { unverified(v1alpha1.ReasonNewNode)(w.verification) }, eventNothing, unverifiedState, v1alpha1.ReasonNewNode, ""},
		"a boot of a node that failed":  {all(booted, func(w *world) { in(failedState)(w.verification) }), eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, ""},
		"a node that failed":            {func(w *world) { in(failedState)(w.verification) }, eventNothing, failedState, v1alpha1.ReasonPassed, ""},
		"a request for one that failed": {all(asksVerify, func(w *world) { in(failedState)(w.verification) }), eventChanged, unverifiedState, v1alpha1.ReasonVerifyRequested, ""},

		"a benchmark that runs":                  {running, eventNothing, measuringState, v1alpha1.ReasonMeasuring, ""},
		"a boot while it runs":                   {all(running, booted), eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, ""},
		"a boot when it has passed":              {all(passed, booted), eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, ""},
		"a request while it runs":                {all(running, asksVerify), eventChanged, unverifiedState, v1alpha1.ReasonVerifyRequested, ""},
		"a benchmark that waits in vain":         {notAccepted(5 * time.Minute), eventHeldUp, unverifiedState, v1alpha1.ReasonNotAccepted, "no whole CPU"},
		"a benchmark that waits a while":         {notAccepted(4 * time.Minute), eventNothing, measuringState, v1alpha1.ReasonMeasuring, ""},
		"one that waits for a device plugin":     {all(notAccepted(29*time.Minute), noPlugin), eventNothing, measuringState, v1alpha1.ReasonMeasuring, ""},
		"one that waits in vain for a plugin":    {all(notAccepted(30*time.Minute), noPlugin), eventHeldUp, unverifiedState, v1alpha1.ReasonNotAccepted, "DevicePluginUnavailable"},
		"one that waits when clocks go back":     {notAccepted(-time.Hour), eventNothing, measuringState, v1alpha1.ReasonMeasuring, ""},
		"one that waits in the queue":            {began(29 * time.Minute), eventNothing, measuringState, v1alpha1.ReasonMeasuring, ""},
		"one that waits in the queue forever":    {began(30 * time.Minute), eventHeldUp, unverifiedState, v1alpha1.ReasonNoProgress, "round 3 of 10"},
		"one that is not looked at":              {all(began(5*time.Minute), func(w *world) { w.benchmark.Status.Conditions = nil }), eventHeldUp, unverifiedState, v1alpha1.ReasonNoProgress, "no condition yet"},
		"a benchmark whose pods are not deleted": {all(began(time.Hour), attempt(time.Hour, 5*time.Minute)), eventHeldUp, unverifiedState, v1alpha1.ReasonNoProgress, "with peer b"},
		"a benchmark whose pods are deleted":     {all(began(time.Hour), attempt(time.Hour, 4*time.Minute)), eventNothing, measuringState, v1alpha1.ReasonMeasuring, ""},
		"one that measures for an hour": {all(began(2*time.Hour), attempt(time.Hour, -1), func(w *world) {
			w.benchmark.Spec.Workload = v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, Duration: metav1.Duration{Duration: time.Hour}}
		}), eventNothing, measuringState, v1alpha1.ReasonMeasuring, ""},
		"one that measures longer than it can": {all(began(2*time.Hour), attempt(time.Hour, -1)), eventHeldUp, unverifiedState, v1alpha1.ReasonNoProgress, "without progress"},
		"one that has just ended an attempt": {all(began(2*time.Hour), func(w *world) {
			w.benchmark.Status.Attempts = []v1alpha1.Attempt{{Outcome: v1alpha1.Outcome{CompletionTime: metav1.NewMicroTime(ago(time.Minute))}}}
		}), eventNothing, measuringState, v1alpha1.ReasonMeasuring, ""},
		"a verdict that does not come": {all(measured(metav1.ConditionUnknown, v1alpha1.ReasonNotJudged), began(time.Hour), func(w *world) { w.benchmark.Status.CompletionTime = at(5 * time.Minute) }), eventHeldUp, unverifiedState, v1alpha1.ReasonNoProgress, "without a verdict"},

		"a node that the gate does not select":                    {notSelected, eventNothing, verifiedState, v1alpha1.ReasonPassed, ""},
		"one that is retained":                                    {all(notSelected, retained(59*time.Minute)), eventNothing, verifiedState, v1alpha1.ReasonPassed, ""},
		"one that was retained long enough":                       {all(notSelected, retained(time.Hour), lookedAt(lookAgain)), eventReleased, verifiedState, v1alpha1.ReasonPassed, "spec.releaseAfter"},
		"one whose retention has just ended":                      {all(notSelected, retained(time.Hour)), eventNothing, verifiedState, v1alpha1.ReasonPassed, ""},
		"one whose retention had ended by a clock that went back": {all(notSelected, retained(61*time.Minute), lookedAt(-time.Hour)), eventNothing, verifiedState, v1alpha1.ReasonPassed, ""},
		"one that is selected again after that":                   {retained(2 * time.Hour), eventNothing, verifiedState, v1alpha1.ReasonPassed, ""},
		"one that is retained when clocks go back":                {all(notSelected, retained(-time.Hour)), eventNothing, verifiedState, v1alpha1.ReasonPassed, ""},
		"a boot of one that is retained":                          {all(notSelected, retained(time.Minute), booted), eventChanged, unverifiedState, v1alpha1.ReasonIdentityChanged, ""},
		"one that is retained and was made again":                 {all(notSelected, func(w *world) { w.node.UID = "uid-other" }), eventReturned, unverifiedState, v1alpha1.ReasonNodeReplaced, ""},
		"one that another gate has":                               {all(taken, retained(time.Minute)), eventNothing, verifiedState, v1alpha1.ReasonPassed, ""},
		"one that another gate has had for long enough":           {all(taken, retained(time.Hour), lookedAt(lookAgain)), eventReleased, verifiedState, v1alpha1.ReasonPassed, ""},
		"one that failed and was retained long enough":            {all(notSelected, retained(time.Hour), lookedAt(lookAgain), func(w *world) { in(failedState)(w.verification) }), eventReleased, failedState, v1alpha1.ReasonPassed, ""},
		"a benchmark that was deleted":                            {all(running, func(w *world) { w.benchmark = nil }), eventDiscarded, unverifiedState, v1alpha1.ReasonBenchmarkDeleted, "measured again"},
		"one that is being deleted, passed":                       {all(passed, func(w *world) { w.benchmark.DeletionTimestamp = at(0) }), eventDiscarded, unverifiedState, v1alpha1.ReasonBenchmarkDeleted, ""},
		"another one of its name, passed":                         {all(passed, func(w *world) { w.benchmark.UID = "uid-forged" }), eventDiscarded, unverifiedState, v1alpha1.ReasonBenchmarkDeleted, ""},
		"one that was edited, passed":                             {all(passed, func(w *world) { w.edited = true }), eventDiscarded, unverifiedState, v1alpha1.ReasonBenchmarkEdited, ""},
		"one that was deleted for the third time":                 {all(running, func(w *world) { w.benchmark = nil; w.verification.Status.Discarded = 2 }), eventUndecided, inconclusiveState, v1alpha1.ReasonBenchmarkDeleted, "repeatedly"},
		"one that failed to measure": {all(running, func(w *world) {
			w.benchmark.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed, "ToolFailed"))
		}), eventUndecided, inconclusiveState, v1alpha1.ReasonBenchmarkFailed, "ToolFailed"},

		"a pass":                             {passed, eventPassed, verifiedState, v1alpha1.ReasonPassed, "p99 says so"},
		"a pass of an earlier edit of rules": {all(passed, func(w *world) { w.benchmark.Generation = 3 }), eventNothing, measuringState, v1alpha1.ReasonMeasuring, ""},
		"a verdict to come":                  {measured(metav1.ConditionUnknown, v1alpha1.ReasonNotJudged), eventNothing, measuringState, v1alpha1.ReasonMeasuring, ""},
		"no verdict":                         {all(passed, func(w *world) { w.benchmark.Status.Conditions = w.benchmark.Status.Conditions[:2] }), eventNothing, measuringState, v1alpha1.ReasonMeasuring, ""},
		"a pass with a peer that is not verified":    {all(passed, peerNotVerified), eventPassed, verifiedState, v1alpha1.ReasonProvisional, "peer b was not verified itself from begin to end"},
		"a pass against several boots":               {passed, eventPassed, verifiedState, v1alpha1.ReasonPassed, "compared with 2 accepted boots with peer b: p99 says so"},
		"a pass against one boot":                    {all(passed, oneBoot), eventPassed, verifiedState, v1alpha1.ReasonProvisional, "its reference is one boot"},
		"a pass against the same boot":               {all(passed, oneBoot, func(w *world) { w.benchmark.Status.Session.BootID = "boot-0" }), eventPassed, verifiedState, v1alpha1.ReasonProvisional, "its reference is one boot"},
		"a pass against another peer":                {all(passed, otherPeer), eventPassed, verifiedState, v1alpha1.ReasonProvisional, "its reference is with peer c"},
		"a pass in a gate of few nodes":              {all(passed, func(w *world) { w.gate.Status.Spread[0].Nodes = 3 }), eventPassed, verifiedState, v1alpha1.ReasonProvisional, "3 of 8 nodes show how much boots differ"},
		"a pass while first rounds are slower":       {all(passed, warm, longer), eventPassed, verifiedState, v1alpha1.ReasonPassed, "compared with 2 accepted boots with peer b, each without its first 6 rounds, which in this gate are 1.0210 times as much"},
		"the same, and the reference has no others":  {all(passed, warm, onlyWarmUp), eventPassed, verifiedState, v1alpha1.ReasonProvisional, "1.0210 times as much as later ones"},
		"a pass against a result without a session":  {all(passed, func(w *world) { w.verification.Status.Reference = nil }), eventPassed, verifiedState, v1alpha1.ReasonProvisional, "how much boots differ is assumed"},
		"a pass of a gate that compares nothing":     {all(passed, oneBoot, func(w *world) { w.gate.Spec.Template.Spec.Criteria.Baseline = nil }), eventPassed, verifiedState, v1alpha1.ReasonPassed, "p99 says so"},
		"the first session, and few others":          {all(passed, noReference), eventPassed, verifiedState, v1alpha1.ReasonPassed, "too few nodes of its group are known"},
		"the first session, like those of its group": {all(passed, noReference, kin(8, 1000, 1010)), eventPassed, verifiedState, v1alpha1.ReasonPassed, "becomes the reference of the node: p99 says so"},
		"the first session, slower than its group":   {all(passed, noReference, kin(8, 800, 810)), eventUndecided, inconclusiveState, v1alpha1.ReasonSlowerThanGroup, "25 % slower than those of 8 nodes of its group"},
		"the first session of another kind": {all(passed, noReference, kin(8, 800, 810), func(w *world) {
			w.node.Labels["onload"] = "9.1"
			w.verification.Status.Identity["Label/onload"] = "9.1"
		}), eventPassed, verifiedState, v1alpha1.ReasonPassed, "too few"},

		"a fail with a verified peer":                    {failed, eventOtherPeer, unverifiedState, v1alpha1.ReasonSecondPeer, "it failed with peer b; a measurement with another peer"},
		"a fail with two verified peers":                 {all(failed, suspected), eventFailed, failedState, v1alpha1.ReasonFail, "with peer b, as with c: p99 says so"},
		"a fail with a peer without a reference":         {all(failed, otherPeer), eventOtherPeer, unverifiedState, v1alpha1.ReasonSecondPeer, "with which the node has no reference"},
		"a fail with the only peer, which is verified":   {all(failed, func(w *world) { w.otherPeer = false }), eventFailed, failedState, v1alpha1.ReasonFail, "with peer b, and there is no other to show which of them is slow: p99 says so"},
		"a fail with a peer that is not verified":        {all(failed, peerNotVerified), eventOtherPeer, unverifiedState, v1alpha1.ReasonSecondPeer, "b, which was not verified itself"},
		"a fail with the only peer":                      {all(failed, peerNotVerified, func(w *world) { w.otherPeer = false }), eventFailed, failedState, v1alpha1.ReasonFail, "there is no other"},
		"a fail with a second peer, not verified either": {all(failed, peerNotVerified, suspected), eventFailed, failedState, v1alpha1.ReasonFail, "with peer b, as with c"},
		"a pass with a second peer":                      {all(passed, peerNotVerified, suspected), eventPassed, verifiedState, v1alpha1.ReasonProvisional, ""},

		"an inconclusive result":                       {unknown, eventUndecided, inconclusiveState, v1alpha1.ReasonInconclusive, "p99 says so"},
		"results that a user deleted":                  {measured(metav1.ConditionUnknown, v1alpha1.ReasonResultsMissing), eventUndecided, inconclusiveState, v1alpha1.ReasonResultsMissing, ""},
		"a baseline that a user deleted":               {measured(metav1.ConditionUnknown, v1alpha1.ReasonBaselineMissing), eventUndecided, inconclusiveState, v1alpha1.ReasonBaselineMissing, ""},
		"no rule that a first result could be held to": {all(passed, func(w *world) { w.benchmark.Spec.Criteria = nil }), eventUndecided, inconclusiveState, v1alpha1.ReasonNothingToCompare, "kubectl tailgate accept up.a up-a-4"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(c.change)
			s := decide(w)
			got, err := w.next(s)
			if err != nil {
				t.Fatal(err)
			}
			if s.event != c.event || got.State != c.state || got.Verified().Reason != c.reason {
				t.Fatalf("got %s to %s (%s), want %s to %s (%s): %s", s.event, got.State, got.Verified().Reason, c.event, c.state, c.reason, s.message)
			}
			if !strings.Contains(s.message, c.message) {
				t.Errorf("%q does not say %q", s.message, c.message)
			}
			if got.State != measuringState && got.Benchmark != nil {
				t.Errorf("%s and still measured by %s", got.State, got.Benchmark.Name)
			}
			if before := w.verification.Status; got.State == before.State && !got.LastTransitionTime.Equal(before.LastTransitionTime) || got.State != before.State && !got.LastTransitionTime.Time.Equal(noon) {
				t.Errorf("%s since %s, before %s since %s", got.State, got.LastTransitionTime, before.State, before.LastTransitionTime)
			}
			if accepts := got.Accepted != nil && got.Accepted.Benchmark != "up-a-3"; accepts != (s.event == eventPassed) {
				t.Errorf("accepted %v", got.Accepted)
			}
		})
	}
}

// A wait that only time ends is checked when it ends, and no later if a clock went back.
func TestDecideLooksAgain(t *testing.T) {
	cases := map[string]struct {
		change func(*world)
		again  time.Duration
	}{
		"nothing ends":                        {func(*world) {}, 0},
		"a device plugin that is not there":   {all(noDevices, absent("Devices/amd.com/sf_vf", 4*time.Minute)), 26 * time.Minute},
		"a label that has just gone":          {func(w *world) { delete(w.node.Labels, "onload") }, identity.AbsenceLimit},
		"a Node that is gone":                 {all(gone59, func(w *world) { w.node = nil }), time.Minute},
		"one that is retained":                {all(notSelected, retained(59*time.Minute)), time.Minute},
		"one that was lost a moment ago":      {notSelected, time.Hour},
		"one that is retained, clocks back":   {all(notSelected, retained(-time.Hour)), time.Hour},
		"a benchmark that waits":              {began(29 * time.Minute), time.Minute},
		"a benchmark that waits, clocks back": {began(-time.Hour), queuePatience},
		"one that waits, of a retained node":  {all(notSelected, retained(58*time.Minute), began(29*time.Minute)), time.Minute},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if s := decide(makeWorld(c.change)); s.event != eventNothing || s.again != c.again {
				t.Errorf("%s, again in %s; want %s in %s", s.event, s.again, eventNothing, c.again)
			}
		})
	}
}

func TestAccept(t *testing.T) {
	named := func(name string, changes ...func(*v1alpha1.LatencyBenchmark)) func(*world) {
		return func(w *world) {
			name, uid, _ := strings.Cut(name, "/")
			w.verification.Spec.Accept, w.verification.Generation = &v1alpha1.AcceptRequest{Benchmark: name, UID: uid, UserRequest: by}, 7
			b := turns.Benchmark(w.gate, w.verification, "b", 3)
			b.Name, b.UID = name, "uid-3"
			b.Status.Stored = []v1alpha1.StoredResult{{Run: "up-a-3-r1-default", SHA256: "a", ServerSHA256: "b"}}
			b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, ""))
			if result := find(w.verification.Status.History, b.Name); result != nil {
				result.ResultPin = mustPin(b)
			}
			for _, change := range changes {
				change(b)
			}
			b.Status.Session = &v1alpha1.Session{BootID: "boot-1", Rounds: gatetest.Rounds(1200)}
			w.named = b
		}
	}
	failedBefore := func(w *world) {
		w.verification.Status.State, w.verification.Status.History[0].Outcome = v1alpha1.VerificationFailed, v1alpha1.VerdictFail
	}
	refusedBefore := status(func(s *v1alpha1.LatencyVerificationStatus) {
		s.AcceptRefused = &v1alpha1.AcceptRefusal{Message: "not that one"}
	})
	cases := map[string]struct {
		change func(*world)
		// refused is a part of the message; empty when it is accepted.
		refused string
	}{
		"a result that failed":                               {all(failedBefore, named("up-a-3")), ""},
		"one after another was refused":                      {all(refusedBefore, named("up-a-3")), ""},
		"the accepted one, to begin a new epoch":             {named("up-a-3"), ""},
		"one while another is being measured":                {all(running, named("up-a-3")), ""},
		"one of the node before it changed":                  {named("up-a-2"), "before it changed"},
		"one measured by other keys":                         {all(named("up-a-3"), func(w *world) { w.verification.Status.History[0].Identity = map[string]string{"Label/other": "1"} }), "by other keys"},
		"one of an earlier state, at a boot":                 {all(named("up-a-3"), booted), "-"},
		"one of another node":                                {named("up-b-3"), "not among the benchmarks of status.history"},
		"nothing":                                            {named(""), "not among"},
		"one that does not exist any more":                   {all(named("up-a-3"), func(w *world) { w.named = nil }), "does not exist"},
		"a benchmark of that name that another user created": {named("up-a-3", func(b *v1alpha1.LatencyBenchmark) { b.OwnerReferences = nil }), "does not exist"},
		"one by its UID":                                     {named("up-a-3/uid-3"), ""},
		"another than was shown":                             {named("up-a-3/uid-9"), "has UID uid-3, and not uid-9"},
		"one that was deleted, and created again with the owner of the first": {named("up-a-3", func(b *v1alpha1.LatencyBenchmark) { b.UID = "uid-evil" }), "is not the one whose result"},
		"one of the first's UID whose spec was edited":                        {named("up-a-3", func(b *v1alpha1.LatencyBenchmark) { b.Spec.Rounds = 1 }), "is not the one whose result"},
		"one whose stored results are others":                                 {named("up-a-3", func(b *v1alpha1.LatencyBenchmark) { b.Status.Stored[0].SHA256 = "c" }), "is not the one whose result"},
		"one whose priority was changed":                                      {named("up-a-3", func(b *v1alpha1.LatencyBenchmark) { b.Spec.Priority = 9 }), ""},
		"one that is not complete": {named("up-a-3", func(b *v1alpha1.LatencyBenchmark) {
			b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed, ""))
		}), "not complete"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(c.change)
			s := decide(w)
			got, err := w.next(s)
			if err != nil {
				t.Fatal(err)
			}
			switch c.refused {
			case "-":
				if s.event != eventChanged || got.Requests != nil {
					t.Errorf("got %s, and processed %+v", s.event, got.Requests)
				}
				return
			default:
				done := &v1alpha1.ProcessedRequests{Accept: w.verification.Spec.Accept, AcceptTime: new(metav1.NewMicroTime(noon))}
				if diff := cmp.Diff(done, got.Requests); diff != "" {
					t.Error(diff)
				}
				if v := got.Verified(); got.ObservedGeneration != w.verification.Generation || v.ObservedGeneration != w.verification.Generation {
					t.Errorf("generations %d and %d", got.ObservedGeneration, v.ObservedGeneration)
				}
			}
			if c.refused != "" {
				if s.event != eventNotAccepted || !strings.Contains(s.message, c.refused) || got.State != w.verification.Status.State {
					t.Errorf("got %s to %s: %s", s.event, got.State, s.message)
				}
				want := &v1alpha1.AcceptRefusal{Benchmark: w.verification.Spec.Accept.Benchmark, Message: s.message, RefusalTime: metav1.Time{Time: noon}}
				if diff := cmp.Diff(want, got.AcceptRefused); diff != "" {
					t.Error(diff)
				}
				if events := notices(w.verification, w.verification, s); len(events) != 1 || events[0].Reason != v1alpha1.ReasonAcceptRefused {
					t.Errorf("events %v", events)
				}
				return
			}
			want := &v1alpha1.AcceptedResult{Benchmark: "up-a-3", ResultPin: w.verification.Status.History[0].ResultPin, AcceptanceTime: metav1.Time{Time: noon}, By: v1alpha1.AcceptedByHand, RequestedBy: "alice", Peer: "b", Identity: w.verification.Status.Identity}
			if s.event != eventAccepted || got.State != v1alpha1.VerificationVerified || got.Benchmark != nil || got.AcceptRefused != nil {
				t.Errorf("got %s to %s: %s", s.event, got.State, s.message)
			}
			if diff := cmp.Diff(want, got.Accepted); diff != "" {
				t.Error(diff)
			}
			if len(got.Reference) != 1 || got.Reference[0].Benchmark != "up-a-3" || got.Reference[0].BootID != "boot-1" || len(got.Recent) != 1 || !got.Recent[0].Accepted {
				t.Errorf("no new epoch: %+v, %+v", got.Reference, got.Recent)
			}
		})
	}
}

// TestNext checks the fields of a status that a step changes besides its state.
func TestNext(t *testing.T) {
	step := func(t *testing.T, change func(*world)) (*world, v1alpha1.LatencyVerificationStatus) {
		t.Helper()
		w := makeWorld(change)
		got, err := w.next(decide(w))
		if err != nil {
			t.Fatal(err)
		}
		return w, got
	}
	t.Run("a change is reported against the accepted identity, however many steps it took", func(t *testing.T) {
		_, got := step(t, all(booted, func(w *world) {
			w.node.Status.NodeInfo.KernelVersion = "6.2.0"
			w.verification.Status.Identity = map[string]string{"Kernel": "6.2.0", "BootID": "boot-1"}
		}))
		want := []v1alpha1.IdentityChange{{Key: "BootID", From: "boot-1", To: "boot-2"}, {Key: "Kernel", From: "6.1.0", To: "6.2.0"}}
		if diff := cmp.Diff(want, got.Changed); diff != "" {
			t.Error(diff)
		}
		if got.Identity["BootID"] != "boot-2" {
			t.Errorf("identity %v", got.Identity)
		}
	})
	t.Run("a change back is a change", func(t *testing.T) {
		_, got := step(t, status(func(s *v1alpha1.LatencyVerificationStatus) {
			s.Identity = map[string]string{"Devices/amd.com/sf_vf": "0"}
		}))
		want := []v1alpha1.IdentityChange{{Key: "Devices/amd.com/sf_vf", From: "0", To: "8"}}
		if diff := cmp.Diff(want, got.Changed); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a node made again has nothing of the old one but the count", func(t *testing.T) {
		w, got := step(t, func(w *world) { w.node.UID = "uid-other"; machines(w, "uuid-1", "uuid-2") })
		want := v1alpha1.LatencyVerificationStatus{
			SystemUUID: "uuid-2", GateUID: "uid-gate",
			State: v1alpha1.VerificationUnverified, Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionVerified, Status: metav1.ConditionUnknown, LastTransitionTime: metav1.Time{Time: noon},
				Reason: v1alpha1.ReasonNodeReplaced, Message: `the Node was deleted and created again for another machine: its system UUID was "uuid-1" and is "uuid-2"`,
			}},
			LastTransitionTime: &metav1.Time{Time: noon}, NodeUID: "uid-other", Identity: w.verification.Status.Identity, Number: 3,
		}
		got.Conditions = got.Conditions[:1] // the others, for generic tools, follow from it
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a node made again for the same machine keeps the accepted results, and a Fail of them", func(t *testing.T) {
		w, got := step(t, func(w *world) {
			in(v1alpha1.VerificationFailed)(w.verification)
			w.node.UID = "uid-other"
			machines(w, "uuid-1", "uuid-1")
		})
		before := w.verification.Status
		if diff := cmp.Diff([]any{before.Accepted, before.Reference, before.Recent, before.History}, []any{got.Accepted, got.Reference, got.Recent, got.History}); diff != "" || got.NodeUID != "uid-other" {
			t.Errorf("%s: %s", got.NodeUID, diff)
		}
	})
	t.Run("a boot with a device plugin that is not back yet keeps the number of devices", func(t *testing.T) {
		_, got := step(t, all(booted, noDevices))
		if got.Identity["Devices/amd.com/sf_vf"] != "8" || len(got.Absent) != 1 || !got.Absent[0].EndTime.Time.Equal(noon.Add(plan.PluginPatience)) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a retention begins again when the Node registers again", func(t *testing.T) {
		_, got := step(t, all(gone59, notSelected, func(w *world) { w.node.UID = "uid-other" }))
		if r := got.Retained; r == nil || r.Reason != v1alpha1.ReasonNotSelected || !r.StartTime.Time.Equal(noon) || !r.EndTime.Time.Equal(noon.Add(time.Hour)) {
			t.Errorf("%+v", got.Retained)
		}
	})
	t.Run("a new verification forgets the last attempt and keeps the accepted result", func(t *testing.T) {
		w, got := step(t, all(running, suspected, booted, status(func(s *v1alpha1.LatencyVerificationStatus) { s.Discarded = 1 })))
		if got.Discarded != 0 || got.SuspectPeer != "" || got.Accepted.Benchmark != w.verification.Status.Accepted.Benchmark {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a pass is accepted, and extends the reference", func(t *testing.T) {
		w, got := step(t, all(measured(metav1.ConditionTrue, v1alpha1.ReasonPass), status(func(s *v1alpha1.LatencyVerificationStatus) {
			s.Changed = []v1alpha1.IdentityChange{{Key: "Kernel", From: "6.0.0", To: "6.1.0"}}
		})))
		want := &v1alpha1.AcceptedResult{Benchmark: "up-a-4", ResultPin: mustPin(w.benchmark), AcceptanceTime: metav1.Time{Time: noon}, By: v1alpha1.AcceptedByPass, Peer: "b", Identity: w.verification.Status.Identity}
		if diff := cmp.Diff(want, got.Accepted); diff != "" {
			t.Error(diff)
		}
		if len(got.Reference) != 3 || !reflect.DeepEqual(got.Reference[2].Rounds, gatetest.Rounds(1005, 1005, 1005, 1005, 1005, 1005)) || got.Recent[5].Identity[string(v1alpha1.IdentityKernel)] != "6.1.0" || !got.Recent[5].Accepted || !slices.Equal(got.Recent[5].Levels, gatetest.Levels(1005)) {
			t.Errorf("%+v, %+v", got.Reference, got.Recent)
		}
		if got.LastMeasurementTime == nil || !got.LastMeasurementTime.Time.Equal(noon) || got.Changed != nil {
			t.Errorf("%+v", got)
		}
		if len(got.History) != 3 || got.History[0].Benchmark != "up-a-4" || got.History[0].Outcome != v1alpha1.VerdictPass {
			t.Errorf("history %+v", got.History)
		}
	})
	t.Run("the first pass begins a reference", func(t *testing.T) {
		_, got := step(t, all(measured(metav1.ConditionTrue, v1alpha1.ReasonPass), noReference))
		if len(got.Reference) != 1 || got.Reference[0].Benchmark != "up-a-4" || got.Reference[0].BootID != "boot-2" || len(got.Reference[0].Rounds[0].Values) != 10 {
			t.Errorf("%+v", got.Reference)
		}
	})
	t.Run("a fail accepts nothing", func(t *testing.T) {
		_, got := step(t, measured(metav1.ConditionFalse, v1alpha1.ReasonFail))
		if got.Accepted.Benchmark != "up-a-3" || len(got.Reference) != 2 || len(got.Recent) != 6 || got.Recent[5].Accepted || got.History[0].Outcome != v1alpha1.VerdictFail {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a second peer is asked for once, and the first fail is in the history", func(t *testing.T) {
		_, got := step(t, all(measured(metav1.ConditionFalse, v1alpha1.ReasonFail), peerNotVerified))
		if got.SuspectPeer != "b" || got.History[0].Outcome != v1alpha1.VerdictFail {
			t.Errorf("%+v", got)
		}
	})
	t.Run("an inconclusive result is not measured again", func(t *testing.T) {
		_, got := step(t, measured(metav1.ConditionUnknown, v1alpha1.ReasonInconclusive))
		if got.State != v1alpha1.VerificationInconclusive || got.Discarded != 0 || got.History[0].Outcome != v1alpha1.VerdictInconclusive {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a node that is due by the schedule is not verified any more", func(t *testing.T) {
		v := makeVerification("a")
		got, err := due("@daily", v).apply(nil, v, v.Status, noon)
		if err != nil || got.Turn == nil || got.State != v1alpha1.VerificationUnverified || got.Verified().Reason != v1alpha1.ReasonScheduleDue || !got.LastTransitionTime.Time.Equal(noon) || got.Accepted == nil {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a lost benchmark is not in the history", func(t *testing.T) {
		_, got := step(t, all(running, func(w *world) { w.benchmark = nil }))
		if got.Discarded != 1 || len(got.History) != 2 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a benchmark without progress is not in the history, its peer is avoided, and each retry waits longer", func(t *testing.T) {
		w, got := step(t, all(began(time.Hour), status(func(s *v1alpha1.LatencyVerificationStatus) {
			s.StepFailure = &v1alpha1.StepFailure{Reason: v1alpha1.ReasonNotAccepted, Count: 2, Peers: []string{"c", "b"}}
		})))
		if got.State != v1alpha1.VerificationUnverified || len(got.History) != 2 || needed(got, "uid-4") || got.Discarded != 0 {
			t.Errorf("%+v", got)
		}
		want := &v1alpha1.StepFailure{Reason: v1alpha1.ReasonNoProgress, Message: got.Verified().Message, Count: 3, RetryTime: metav1.Time{Time: w.now.Add(40 * time.Second)}, Peers: []string{"b", "c"},
			StartTime: &w.verification.Status.Benchmark.StartTime, FailureTime: new(metav1.NewMicroTime(w.now))}
		if diff := cmp.Diff(want, got.StepFailure); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a result resets the counters", func(t *testing.T) {
		_, got := step(t, all(measured(metav1.ConditionFalse, v1alpha1.ReasonFail), status(func(s *v1alpha1.LatencyVerificationStatus) {
			s.StepFailure = &v1alpha1.StepFailure{Count: 2}
		})))
		if got.StepFailure != nil {
			t.Errorf("%+v", got.StepFailure)
		}
	})
	t.Run("a node that is lost keeps everything, and says since when", func(t *testing.T) {
		w, got := step(t, notSelected)
		if got.Retained == nil || got.Retained.Reason != v1alpha1.ReasonNotSelected || !got.Retained.StartTime.Time.Equal(noon) || !strings.Contains(got.Retained.Message, "13:00:00Z") {
			t.Errorf("%+v", got.Retained)
		}
		got.Retained = nil
		w.conclude(&w.verification.Status)
		if diff := cmp.Diff(w.verification.Status, got); diff != "" {
			t.Error(diff)
		}
		_, got = step(t, all(taken, retained(time.Minute)))
		if got.Retained.Reason != v1alpha1.ReasonTaken || !got.Retained.StartTime.Time.Equal(ago(time.Minute)) {
			t.Errorf("%+v", got.Retained)
		}
		if _, got = step(t, retained(time.Minute)); got.Retained != nil {
			t.Errorf("it is the gate's again: %+v", got.Retained)
		}
	})
	t.Run("the history is as long as the gate says", func(t *testing.T) {
		_, got := step(t, all(func(w *world) { w.gate.Spec.HistoryLimit = 1 }, measured(metav1.ConditionFalse, v1alpha1.ReasonFail)))
		if len(got.History) != 1 || got.History[0].Benchmark != "up-a-4" {
			t.Errorf("history %+v", got.History)
		}
		if !needed(got, "uid-3") || needed(got, "uid-1") || needed(got, "uid-2") || needed(got, "up-a-3") {
			t.Error("the accepted one is kept, and others are not")
		}
	})
	t.Run("trouble with the baseline is noted, and the node stays verified", func(t *testing.T) {
		_, got := step(t, func(w *world) { w.baselineTrouble = "up-a-3 was deleted" })
		if got.State != v1alpha1.VerificationVerified || got.BaselineTrouble != "up-a-3 was deleted" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("the status of the world is left as it was", func(t *testing.T) {
		w := makeWorld(measured(metav1.ConditionTrue, v1alpha1.ReasonPass))
		before := w.verification.DeepCopy()
		if _, err := w.next(decide(w)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, w.verification); diff != "" {
			t.Error(diff)
		}
	})
}

// inTurn makes the node a verified one that is measured in its turn.
func inTurn(w *world) {
	running(w)
	lent(w.verification)
}

// A turn that ends without a verdict gives the node back exactly as it was, whatever ended it.
func TestTurnsThatEndWithoutAResult(t *testing.T) {
	failed := func(outcome string) func(*world) {
		return func(w *world) {
			w.benchmark.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed, outcome))
			w.benchmark.Status.Attempts = []v1alpha1.Attempt{{Attempt: 3, Outcome: v1alpha1.Outcome{Reason: outcome}}}
		}
	}
	unjudged := func(reason string) func(*world) {
		return func(w *world) {
			w.benchmark.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, "all runs"))
			w.benchmark.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, reason, "why"))
		}
	}
	cases := map[string]func(*world){
		"no progress": func(w *world) { w.verification.Status.Benchmark.StartTime = *at(100 * time.Hour) },
		"not accepted": func(w *world) {
			w.benchmark.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, LastTransitionTime: *at(patience)}}
		},
		"deleted":              func(w *world) { w.benchmark = nil },
		"deleted repeatedly":   func(w *world) { w.benchmark, w.verification.Status.Discarded = nil, maxDiscarded },
		"edited":               func(w *world) { w.edited = true },
		"results missing":      unjudged(v1alpha1.ReasonResultsMissing),
		"baseline missing":     unjudged(v1alpha1.ReasonBaselineMissing),
		"baseline unreadable":  unjudged(v1alpha1.ReasonBaselineUnreadable),
		"an unknown rule":      unjudged(v1alpha1.ReasonRuleInvalid),
		"a finished one stuck": unjudged(v1alpha1.ReasonNotJudged),
	}
	for _, outcome := range slices.Concat(clusterFaults, lentFaults) {
		cases[outcome] = failed(outcome)
	}
	cases["a finished one stuck"] = all(cases["a finished one stuck"], func(w *world) { w.verification.Status.Benchmark.StartTime = *at(time.Hour) })
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(func(w *world) {
				w.verification.Status.Conditions = verifiedBecause(v1alpha1.ReasonProvisional, "provisional, because")
				w.verification.Status.Conditions[0].Status = metav1.ConditionTrue
			})
			before := w.verification.Status.DeepCopy()
			status, err := due("@daily", w.verification).apply(nil, w.verification, w.verification.Status, ago(5*time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			turn := status.Turn
			running(w)
			w.verification.Status.Turn = turn
			change(w)
			s := decide(w)
			got, err := w.next(s)
			if err != nil || s.event != eventGivenBack {
				t.Fatalf("%s %s: %v", s.event, s.message, err)
			}
			if got.StepFailure == nil || got.StepFailure.Count != 1 || !strings.Contains(got.StepFailure.Message, "verified as before") {
				t.Errorf("%+v", got.StepFailure)
			}
			verified := got.Verified()
			if verified.Status != metav1.ConditionTrue || verified.Reason != v1alpha1.ReasonProvisional || verified.Message != "provisional, because" {
				t.Errorf("%+v", verified)
			}
			got.StepFailure, got.Conditions, got.LastTransitionTime, got.Number, got.Discarded = nil, before.Conditions, before.LastTransitionTime, before.Number, 0
			if diff := cmp.Diff(*before, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	for name, c := range map[string]struct {
		change func(*world)
		state  v1alpha1.VerificationState
	}{
		"a verdict Inconclusive is a result": {measured(metav1.ConditionUnknown, v1alpha1.ReasonInconclusive), v1alpha1.VerificationInconclusive},
		"a Fail in doubt is one":             {measured(metav1.ConditionFalse, v1alpha1.ReasonFail), v1alpha1.VerificationUnverified},
		"so is a Fail":                       {all(measured(metav1.ConditionFalse, v1alpha1.ReasonFail), func(w *world) { w.otherPeer = false }), v1alpha1.VerificationFailed},
		"a node that changed meanwhile":      {all(running, booted), v1alpha1.VerificationUnverified},
		"the node's tool failed":             {all(running, failed(v1alpha1.OutcomeToolFailed)), v1alpha1.VerificationInconclusive},
		"its Onload does not work":           {all(running, failed(v1alpha1.OutcomeAccelerationFailed)), v1alpha1.VerificationInconclusive},
		"it runs out of memory":              {all(running, failed(v1alpha1.OutcomeOOMKilled)), v1alpha1.VerificationInconclusive},
		"an outcome that is new":             {all(running, failed("Unheard")), v1alpha1.VerificationInconclusive},
		"a value that was not known before":  {all(running, func(w *world) { w.verification.Status.Identity["Kernel"] = "" }), v1alpha1.VerificationUnverified},
	} {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(c.change, func(w *world) { lent(w.verification) })
			if got, err := w.next(decide(w)); err != nil || got.State != c.state || got.Turn != nil {
				t.Errorf("%s, turn %v, %v", got.State, got.Turn, err)
			}
		})
	}
}
