package identity

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// A difference in any key that a gate can count is a change, and nothing else is.
func TestCompare(t *testing.T) {
	gate := &v1alpha1.LatencyGate{}
	gate.Spec.Identity = v1alpha1.GateIdentity{
		Keys: []v1alpha1.IdentityKey{
			v1alpha1.IdentityBootID, v1alpha1.IdentityKernel, v1alpha1.IdentityKubelet, v1alpha1.IdentityContainerRuntime, v1alpha1.IdentityOSImage, v1alpha1.IdentityDevices,
		},
		Labels: []string{"onload"},
	}
	gate.Spec.Template.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/vf"}}}
	gate.Spec.Template.Spec.Acceleration = &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{ResourceName: "amd.com/onload"}}
	makeNode := func() *corev1.Node {
		n := &corev1.Node{}
		n.Labels = map[string]string{"onload": "then"}
		n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "then", KernelVersion: "then", KubeletVersion: "then", ContainerRuntimeVersion: "then", OSImage: "then"}
		n.Status.Allocatable = corev1.ResourceList{"amd.com/vf": resource.MustParse("8"), "amd.com/onload": resource.MustParse("8"), "cpu": resource.MustParse("8")}
		return n
	}
	changes := map[string]func(*corev1.Node){
		"BootID":                 func(n *corev1.Node) { n.Status.NodeInfo.BootID = "now" },
		"Kernel":                 func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "now" },
		"Kubelet":                func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "now" },
		"ContainerRuntime":       func(n *corev1.Node) { n.Status.NodeInfo.ContainerRuntimeVersion = "now" },
		"OSImage":                func(n *corev1.Node) { n.Status.NodeInfo.OSImage = "now" },
		"Label/onload":           func(n *corev1.Node) { n.Labels["onload"] = "now" },
		"Devices/amd.com/vf":     func(n *corev1.Node) { n.Status.Allocatable["amd.com/vf"] = resource.MustParse("7") },
		"Devices/amd.com/onload": func(n *corev1.Node) { delete(n.Status.Allocatable, "amd.com/onload") },
	}
	recorded := KeysOf(gate).Of(Subject{makeNode()})
	if len(recorded) != len(changes) {
		t.Errorf("%d keys are recorded, and %d are changed here", len(recorded), len(changes))
	}
	for key, change := range changes {
		t.Run(key, func(t *testing.T) {
			n := makeNode()
			change(n)
			var got []string
			for _, c := range seen(&v1alpha1.LatencyVerificationStatus{Identity: recorded}, n, noon) {
				got = append(got, c.Key)
			}
			if diff := cmp.Diff([]string{key}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	other := makeNode()
	other.Labels["zone"], other.Status.Allocatable["cpu"] = "b", resource.MustParse("4")
	if got := seen(&v1alpha1.LatencyVerificationStatus{Identity: recorded}, other, noon); got != nil {
		t.Errorf("what no key names is a change: %v", got)
	}
}

// seen returns the changes that one who only reads a status counts.
func seen(s *v1alpha1.LatencyVerificationStatus, node *corev1.Node, now time.Time) []v1alpha1.IdentityChange {
	return Recorded(s).Compare(&v1alpha1.LatencyVerification{Status: *s}, "", Subject{node}, now).Seen
}

// A verification does not apply to another node, for another gate, or after a change, in this order.
func TestStale(t *testing.T) {
	gate := &v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{UID: "gate"}, Spec: v1alpha1.LatencyGateSpec{Identity: v1alpha1.GateIdentity{Keys: []v1alpha1.IdentityKey{v1alpha1.IdentityKernel}}}}
	as := func(state v1alpha1.VerificationState, node, of, kernel string) v1alpha1.LatencyVerificationStatus {
		return v1alpha1.LatencyVerificationStatus{State: state, NodeUID: node, GateUID: of, Identity: map[string]string{"Kernel": kernel}}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "node"}}
	node.Status.NodeInfo.KernelVersion = "6.1.0"
	for want, s := range map[string]v1alpha1.LatencyVerificationStatus{
		"":                             as(v1alpha1.VerificationVerified, "node", "gate", "6.1.0"),
		v1alpha1.ReasonNewNode:         as("", "other", "other", "other"),
		v1alpha1.ReasonNodeReplaced:    as(v1alpha1.VerificationVerified, "other", "other", "other"),
		v1alpha1.ReasonGateReplaced:    as(v1alpha1.VerificationVerified, "node", "other", "other"),
		v1alpha1.ReasonIdentityChanged: as(v1alpha1.VerificationFailed, "node", "gate", "other"),
	} {
		if got := KeysOf(gate).Compare(&v1alpha1.LatencyVerification{Status: s}, gate.UID, Subject{node}, noon).Stale; got != want {
			t.Errorf("stale because %q, want %q", got, want)
		}
	}
}

// A value that tells nothing keeps the recorded one for AbsenceLimit, whatever the key; then its absence is a change.
func TestPresent(t *testing.T) {
	at := func(d time.Duration) metav1.Time { return metav1.Time{Time: noon.Add(d)} }
	for name, c := range map[string]struct {
		key, was, is string
		// since is when the status noted the absence; positive: it has not.
		since time.Duration
		// want is the value that counts, and until the end of the absence; zero: it is not absent.
		want  string
		until time.Duration
	}{
		"a runtime that does not answer":            {"ContainerRuntime", "containerd://1.7.27", "containerd://Unknown", 1, "containerd://1.7.27", 10 * time.Minute},
		"a runtime of unknown type":                 {"ContainerRuntime", "cri-o://1.33.1", "://Unknown", 1, "cri-o://1.33.1", 10 * time.Minute},
		"a runtime without a version":               {"ContainerRuntime", "cri-o://1.33.1", "cri-o://", 1, "cri-o://1.33.1", 10 * time.Minute},
		"a runtime that was unknown for 9 minutes":  {"ContainerRuntime", "containerd://1.7.27", "containerd://Unknown", -9 * time.Minute, "containerd://1.7.27", time.Minute},
		"a runtime that was unknown for 10 minutes": {"ContainerRuntime", "containerd://1.7.27", "containerd://Unknown", -10 * time.Minute, "containerd://Unknown", 0},
		"an unknown runtime when a clock went back": {"ContainerRuntime", "containerd://1.7.27", "containerd://Unknown", 24 * time.Hour, "containerd://1.7.27", 10 * time.Minute},
		"another runtime":                           {"ContainerRuntime", "containerd://1.7.27", "containerd://2.1.0", 1, "containerd://2.1.0", 0},
		"an OS image that cAdvisor cannot read":     {"OSImage", "Debian 12", "Unknown", 1, "Debian 12", 10 * time.Minute},
		"a kernel that cAdvisor cannot read":        {"Kernel", "6.1.0", "Unknown", 1, "6.1.0", 10 * time.Minute},
		"a boot ID that cAdvisor cannot read":       {"BootID", "boot-1", "", 1, "boot-1", 10 * time.Minute},
		"a kubelet without a version":               {"Kubelet", "v1.36.0", "", 1, "v1.36.0", 10 * time.Minute},
		"no device":                                 {"Devices/amd.com/vf", "8", "0", 1, "8", 30 * time.Minute},
		"no device for 29 minutes":                  {"Devices/amd.com/vf", "8", "0", -29 * time.Minute, "8", time.Minute},
		"no device for 30 minutes":                  {"Devices/amd.com/vf", "8", "0", -30 * time.Minute, "0", 0},
		"fewer devices":                             {"Devices/amd.com/vf", "8", "7", 1, "7", 0},
		"no label":                                  {"Label/onload", "9.0", "", 1, "9.0", 10 * time.Minute},
		"a label with value 0":                      {"Label/onload", "9.0", "0", 1, "0", 0},
		"a label that says Unknown":                 {"Label/onload", "9.0", "Unknown", 1, "Unknown", 0},
		"a label that never was there":              {"Label/onload", "", "", 1, "", 0},
		"a label that was added":                    {"Label/onload", "", "9.0", 1, "9.0", 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{}
			set(n, c.key, c.is)
			s := &v1alpha1.LatencyVerificationStatus{Identity: map[string]string{c.key: c.was}}
			if c.since != 1 {
				s.Absent = []v1alpha1.AbsentKey{{Key: c.key, StartTime: at(c.since), EndTime: at(c.since + absenceLimit(c.key))}}
			}
			is := Keys{c.key}.Compare(&v1alpha1.LatencyVerification{Status: *s}, "", Subject{n}, noon)
			values, absent := is.Values, is.Absent
			if values[c.key] != c.want {
				t.Errorf("%q counts, want %q", values[c.key], c.want)
			}
			if len(absent) == 1 != (c.until > 0) || len(absent) == 1 && !absent[0].EndTime.Time.Equal(noon.Add(c.until)) {
				t.Errorf("absent %v, want until %s", absent, c.until)
			}
			// A reader of the verdict keeps the value only if the status says so.
			s.Absent = absent
			if changed := len(seen(s, n, noon)) > 0; changed != (c.want != c.was) {
				t.Errorf("noted: changed %t", changed)
			}
			if s.Absent = nil; len(absent) == 1 && len(seen(s, n, noon)) == 0 {
				t.Error("an absence that the operator has not noted is no change for readers")
			}
			if s.Absent = absent; len(absent) == 1 && len(seen(s, n, noon.Add(absenceLimit(c.key)))) == 0 {
				t.Error("an absence that has ended is no change for readers")
			}
		})
	}
}

// The daemon of sriov-network-operator sets the annotation of the Node before the drain, and to Idle when it has recreated the VFs and
// restarted the device plugin (handleDrain and apply of its daemon.go). A restart of the device plugin alone sets nothing.
func TestRenewedDevices(t *testing.T) {
	const key, drain = "Devices/amd.com/vf", "Drain_Required"
	type look struct{ state, count string }
	for name, c := range map[string]struct {
		looks []look
		want  string
	}{
		"recreated":                       {[]look{{drain, "8"}, {drain, "0"}, {drain, "8"}, {"Idle", "8"}}, `Devices/amd.com/vf was "8" and is "8, recreated"`},
		"recreated, seen only at its end": {[]look{{drain, "8"}, {"Idle", "8"}}, `Devices/amd.com/vf was "8" and is "8, recreated"`},
		"recreated, Idle before they are": {[]look{{drain, "8"}, {"Idle", "0"}, {"Idle", "8"}}, `Devices/amd.com/vf was "8" and is "8, recreated"`},
		"another number":                  {[]look{{drain, "8"}, {drain, "0"}, {"Idle", "4"}}, `Devices/amd.com/vf was "8" and is "4"`},
		"still waiting for its drain":     {[]look{{drain, "8"}, {drain, "8"}}, ""},
		"a restart of the device plugin":  {[]look{{"Idle", "8"}, {"Idle", "0"}, {"Idle", "8"}}, ""},
		"no operator":                     {[]look{{"", "8"}, {"", "0"}, {"", "8"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := &v1alpha1.LatencyVerification{Status: v1alpha1.LatencyVerificationStatus{State: v1alpha1.VerificationVerified, Identity: map[string]string{key: "8"}}}
			for i, l := range c.looks {
				n := &corev1.Node{}
				n.Annotations = map[string]string{foreign.AnnotationNodeState: l.state}
				set(n, key, l.count)
				is := Keys{key}.Compare(v, "", Subject{n}, noon.Add(time.Duration(i)*time.Minute))
				want := ""
				if i == len(c.looks)-1 {
					want = c.want
				}
				if got := Sentence(is.Changes); got != want {
					t.Errorf("look %d: %q, want %q", i, got, want)
				}
				v.Status.Absent = is.Absent
			}
		})
	}
}

// set makes a node report a value of a key.
func set(n *corev1.Node, key, value string) {
	switch info := &n.Status.NodeInfo; key {
	case "BootID":
		info.BootID = value
	case "Kernel":
		info.KernelVersion = value
	case "Kubelet":
		info.KubeletVersion = value
	case "ContainerRuntime":
		info.ContainerRuntimeVersion = value
	case "OSImage":
		info.OSImage = value
	case "Label/onload":
		if n.Labels = map[string]string{}; value != "" {
			n.Labels["onload"] = value
		}
	default:
		n.Status.Allocatable = corev1.ResourceList{"amd.com/vf": resource.MustParse(value)}
	}
}

func TestNotReady(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]string{
		corev1.ConditionTrue:    "",
		corev1.ConditionFalse:   "the node is not ready (False), so that its identity is unknown",
		corev1.ConditionUnknown: "the node is not ready (Unknown), so that its identity is unknown",
	} {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeDiskPressure}, {Type: corev1.NodeReady, Status: status}}}}
		if got := NotReady(Subject{n}); got != want {
			t.Errorf("%s: %q", status, got)
		}
	}
	if NotReady(Subject{&corev1.Node{}}) == "" {
		t.Error("a node whose kubelet has reported nothing is ready")
	}
}
