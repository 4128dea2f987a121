// Package identity computes a node's identity as a gate counts it, and the differences. It is pure.
package identity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const (
	labelPrefix  = "Label/"
	devicePrefix = string(v1alpha1.IdentityDevices) + "/"
)

func Label(name string) string { return labelPrefix + name }

// Keys are the identity keys that a gate counts.
type Keys []string

// KeysOf returns a gate's identity keys, of labels as Label/NAME, of devices as Devices/RESOURCE.
func KeysOf(gate *v1alpha1.LatencyGate) Keys {
	var all Keys
	for _, key := range gate.Spec.Identity.Keys {
		if key != v1alpha1.IdentityDevices {
			all = append(all, string(key))
			continue
		}
		all = append(all, text.Of(plan.Resources(gate.Spec.Template.Benchmark()), func(name string) string { return devicePrefix + name })...)
	}
	return append(all, text.Of(gate.Spec.Identity.Labels, Label)...)
}

// Recorded returns the identity keys of a status, for a reader that does not have the gate.
func Recorded(s *v1alpha1.LatencyVerificationStatus) Keys {
	return slices.Collect(maps.Keys(s.Identity))
}

// Subject is what is known of a node: a key whose source is not the Node adds a field.
type Subject struct{ *corev1.Node }

func (k Keys) Of(node Subject) map[string]string {
	all := make(map[string]string, len(k))
	for _, key := range k {
		all[key] = value(key, node)
	}
	return all
}

func value(key string, node Subject) string {
	info := node.Status.NodeInfo
	switch v1alpha1.IdentityKey(key) {
	case v1alpha1.IdentityBootID:
		return info.BootID
	case v1alpha1.IdentityKernel:
		return info.KernelVersion
	case v1alpha1.IdentityKubelet:
		return info.KubeletVersion
	case v1alpha1.IdentityContainerRuntime:
		return info.ContainerRuntimeVersion
	case v1alpha1.IdentityOSImage:
		return info.OSImage
	case v1alpha1.IdentityDevices: // One key for each resource, see below.
	}
	if name, ok := strings.CutPrefix(key, labelPrefix); ok {
		return node.Labels[name]
	}
	q := node.Status.Allocatable[corev1.ResourceName(strings.TrimPrefix(key, devicePrefix))]
	return q.String()
}

// unknown is a version that could not be read, for the runtime with its type before it.
const unknown = "Unknown"

// reported reports whether a value tells something: kubelet, runtime or labeller may be restarting.
func reported(key, value string) bool {
	switch {
	case value == "":
		return false
	case strings.HasPrefix(key, labelPrefix):
		return true
	case strings.HasPrefix(key, devicePrefix):
		return value != "0"
	}
	_, version, found := strings.Cut(value, "://")
	return value != unknown && (!found || version != "" && version != unknown)
}

// AbsenceLimit is how long an unreported key keeps its last value: twice the time after which the
// kubelet forgets a device plugin, and more than the restart of a runtime or a labeller. It only
// delays that a removal is found, and such a node is not measured: it is no setting.
const AbsenceLimit = 10 * time.Minute

func absenceLimit(key string) time.Duration {
	if strings.HasPrefix(key, devicePrefix) {
		return plan.PluginPatience
	}
	return AbsenceLimit
}

// Comparison is a node as it is now, compared with the node that its verification is about.
type Comparison struct {
	Stale string // why the verification does not apply to the node; empty if it does
	// Values is what the node reports and, until their limit, the recorded values of Absent keys.
	Values map[string]string
	Absent []v1alpha1.AbsentKey
	// Changes are the differences from the recorded identity. Seen adds keys whose absence the
	// operator has yet to record: one who only reads counts them, because it may not run.
	Changes, Seen []v1alpha1.IdentityChange
}

// Compare answers whether a verification applies to a node now; gate is the gate's UID.
func (k Keys) Compare(v *v1alpha1.LatencyVerification, gate types.UID, node Subject, now time.Time) Comparison {
	s := &v.Status
	c := k.present(s, node, now)
	switch {
	case s.State == "":
		c.Stale = v1alpha1.ReasonNewNode
	case s.NodeUID != string(node.UID):
		c.Stale = v1alpha1.ReasonNodeReplaced
	case s.GateUID != "" && s.GateUID != string(gate):
		c.Stale = v1alpha1.ReasonGateReplaced
	case len(c.Changes) > 0:
		c.Stale = v1alpha1.ReasonIdentityChanged
	}
	return c
}

func (k Keys) present(s *v1alpha1.LatencyVerificationStatus, node Subject, now time.Time) Comparison {
	c := Comparison{Values: k.Of(node)}
	seen := maps.Clone(c.Values)
	var renewed []v1alpha1.IdentityChange
	for key, is := range seen {
		was, recorded := s.Identity[key]
		if !recorded || !reported(key, was) {
			continue
		}
		limit := absenceLimit(key)
		a := v1alpha1.AbsentKey{Key: key, StartTime: metav1.Time{Time: now}, EndTime: metav1.Time{Time: now.Add(limit)}}
		i := slices.IndexFunc(s.Absent, func(b v1alpha1.AbsentKey) bool { return b.Key == key })
		// An end that is further away than the limit was recorded before a clock was set back.
		if i >= 0 && s.Absent[i].EndTime.Sub(now) <= limit {
			a = s.Absent[i]
		}
		renewing := strings.HasPrefix(key, devicePrefix) && cmp.Or(node.Annotations[foreign.AnnotationNodeState], foreign.SriovIdle) != foreign.SriovIdle
		a.Renewed = a.Renewed || renewing
		switch {
		case !reported(key, is) && now.Before(a.EndTime.Time):
		case renewing && is == was:
		case a.Renewed && is == was:
			renewed = append(renewed, v1alpha1.IdentityChange{Key: key, From: was, To: is + recreated})
			continue
		default:
			continue
		}
		if c.Values[key], c.Absent = was, append(c.Absent, a); i >= 0 {
			seen[key] = was
		}
	}
	slices.SortFunc(c.Absent, func(a, b v1alpha1.AbsentKey) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(renewed, func(a, b v1alpha1.IdentityChange) int { return cmp.Compare(a.Key, b.Key) })
	c.Changes, c.Seen = append(Changes(s.Identity, c.Values), renewed...), append(Changes(s.Identity, seen), renewed...)
	return c
}

const recreated = ", recreated" // follows the value of devices that were recreated

// Renewed reports whether a change is that of devices that were recreated.
func Renewed(c v1alpha1.IdentityChange) bool { return c.To == c.From+recreated }

// Outdate gives a measured identity another value for devices that were recreated since.
func Outdate(measured map[string]string, all []v1alpha1.IdentityChange) {
	for _, c := range all {
		if _, ok := measured[c.Key]; ok && Renewed(c) {
			measured[c.Key] = "before" + recreated
		}
	}
}

// FilledIn reports whether a change only completes an identity. A user can add a label: a change.
func FilledIn(c v1alpha1.IdentityChange) bool {
	return !strings.HasPrefix(c.Key, labelPrefix) && !reported(c.Key, c.From) && reported(c.Key, c.To)
}

// NotReady returns why a node's identity is unknown now. A node that is away may return as another.
func NotReady(node Subject) string {
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return ""
		}
		return fmt.Sprintf("the node is not ready (%s), so that its identity is unknown", cmp.Or(c.Reason, string(c.Status)))
	}
	return "the node is not ready (its kubelet has reported nothing), so that its identity is unknown"
}

// Same reports whether identities have a key in common and differ in none; without keys, all are.
func Same(a, b map[string]string) bool {
	for key := range a {
		if _, common := b[key]; common {
			return len(Changes(a, b)) == 0
		}
	}
	return len(a)+len(b) == 0
}

// Changes returns the differing keys that both identities have; the gate added or removed others.
func Changes(from, to map[string]string) []v1alpha1.IdentityChange {
	var all []v1alpha1.IdentityChange
	for key, now := range to {
		if before, ok := from[key]; ok && before != now {
			all = append(all, v1alpha1.IdentityChange{Key: key, From: text.Shorten(before, 512), To: text.Shorten(now, 512)})
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.IdentityChange) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

const maxKept = 128 // the length from which on a kept value ends in its digest

// Kept returns an identity for a later session: without the boot, with long values' digests.
func Kept(all map[string]string) map[string]string {
	kept := make(map[string]string, len(all))
	for key, value := range all {
		if key != string(v1alpha1.IdentityBootID) {
			kept[key] = strings.ToValidUTF8(v1alpha1.Shortened(value, maxKept), "")
		}
	}
	return kept
}

// Measured returns an identity for a result that may be accepted later, with long values' digests.
func Measured(all map[string]string) map[string]string {
	kept := Kept(all)
	if boot, ok := all[string(v1alpha1.IdentityBootID)]; ok {
		kept[string(v1alpha1.IdentityBootID)] = v1alpha1.Shortened(boot, maxKept)
	}
	return kept
}

// Key returns changes as one text, which only the same changes have; empty without any.
func Key(all []v1alpha1.IdentityChange) string {
	key := ""
	for _, c := range all {
		key += c.Key + "\x00" + c.From + "\x00" + c.To + "\x00"
	}
	return key
}

const maxNamed = 3

// Sentence names the first of the changes, and how many more there are.
func Sentence(all []v1alpha1.IdentityChange) string {
	var parts []string
	for _, c := range all {
		if c.Key == string(v1alpha1.IdentityBootID) {
			parts = append(parts, "it was booted")
			continue
		}
		parts = append(parts, fmt.Sprintf("%s was %q and is %q", c.Key, c.From, c.To))
	}
	return text.List(parts, maxNamed, "; ")
}

// unset are the texts and UUIDs, as machine returns them, of machines without a UUID.
var unset = []string{
	"", "none", "unknown", "notsettable", "notspecified", "notpresent", "defaultstring", "tobefilledbyo.e.m.",
	"03000200040005000006000700080009", "123456781234567890abcddeefaabbcc",
}

const uuidDigits = 32

// machine returns a system UUID without case, hyphens, braces and spaces; empty if it says nothing.
func machine(uuid string) string {
	plain := strings.ToLower(strings.NewReplacer("-", "", "{", "", "}", "", " ", "", "urn:uuid:", "").Replace(strings.TrimSpace(uuid)))
	if slices.Contains(unset, plain) || plain != "" && strings.Trim(plain, plain[:1]) == "" {
		return ""
	}
	return plain
}

func isUUID(plain string) bool {
	return len(plain) == uuidDigits && strings.Trim(plain, "0123456789abcdef") == ""
}

// swapped returns a UUID by SMBIOS before 2.6: the first three fields' bytes are in reverse order.
func swapped(plain string) string {
	if !isUUID(plain) {
		return plain
	}
	b := []byte(plain)
	for _, field := range [][2]int{{0, 8}, {8, 12}, {12, 16}} {
		part := b[field[0]:field[1]]
		slices.Reverse(part) // The digits of each byte, too, which the loop below puts back.
		for i := 0; i < len(part); i += 2 {
			part[i], part[i+1] = part[i+1], part[i]
		}
	}
	return string(b)
}

// SameMachine reports whether two system UUIDs are of the same machine, however they are spelled.
func SameMachine(a, b string) bool {
	x, y := machine(a), machine(b)
	return x != "" && (x == y || swapped(x) == y)
}

// OtherMachine reports whether two system UUIDs of the same form are of different machines.
func OtherMachine(a, b string) bool {
	x, y := machine(a), machine(b)
	return x != "" && y != "" && isUUID(x) == isUUID(y) && !SameMachine(a, b)
}

// LatestUUID returns the system UUID that a node reports, or the last valid one.
func LatestUUID(reported, last string) string {
	if machine(reported) == "" && last != "" {
		return last
	}
	return reported
}
