package gate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
)

// What identity keys of which there may be several begin with.
const (
	labelPrefix  = "Label/"
	devicePrefix = string(v1alpha1.IdentityDevices) + "/"
)

// asked is what a gate wants to know of its nodes.
type asked struct {
	v1alpha1.GateIdentity
	// resources are the names of the extended resources whose devices count.
	resources []string
}

func askedBy(gate *v1alpha1.LatencyGate) asked {
	return asked{gate.Spec.Identity, resourceNames(gate.Spec.Template)}
}

// of is what a node is. A label that the node does not have is empty, so that its coming is a change.
func (a asked) of(node *corev1.Node) map[string]string {
	info := node.Status.NodeInfo
	all := make(map[string]string, len(a.Keys)+len(a.Labels)+len(a.resources))
	for _, key := range a.Keys {
		switch key {
		case v1alpha1.IdentityBootID:
			all[string(key)] = info.BootID
		case v1alpha1.IdentityKernel:
			all[string(key)] = info.KernelVersion
		case v1alpha1.IdentityKubelet:
			all[string(key)] = info.KubeletVersion
		case v1alpha1.IdentityContainerRuntime:
			all[string(key)] = info.ContainerRuntimeVersion
		case v1alpha1.IdentityOSImage:
			all[string(key)] = info.OSImage
		case v1alpha1.IdentityDevices:
			for _, name := range a.resources {
				q := node.Status.Allocatable[corev1.ResourceName(name)]
				all[devicePrefix+name] = q.String()
			}
		}
	}
	for _, key := range a.Labels {
		all[labelPrefix+key] = node.Labels[key]
	}
	return all
}

// resourceNames are the extended resources that a template asks for.
func resourceNames(template v1alpha1.LatencyBenchmarkSpec) []string {
	var all []string
	for _, v := range plan.Variants(template) {
		all = append(all, v.Network.ResourceName)
		if v.Acceleration != nil {
			all = append(all, v.Acceleration.ResourceName)
		}
	}
	return slices.DeleteFunc(all, func(name string) bool { return name == "" })
}

// changes are the keys that two identities share and in which they differ. A key that only one of them has was added to
// the gate, or removed from it: that says nothing of the node.
func changes(from, to map[string]string) []v1alpha1.IdentityChange {
	var all []v1alpha1.IdentityChange
	for key, now := range to {
		if before, ok := from[key]; ok && before != now {
			all = append(all, v1alpha1.IdentityChange{Key: key, From: bounded(before, 512), To: bounded(now, 512)})
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.IdentityChange) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// maxNamed is how many changes a sentence names.
const maxNamed = 3

// sentence names the first of the changes, and how many more there are.
func sentence(all []v1alpha1.IdentityChange) string {
	var parts []string
	for _, c := range all[:min(len(all), maxNamed)] {
		if c.Key == string(v1alpha1.IdentityBootID) {
			parts = append(parts, "it was booted")
			continue
		}
		parts = append(parts, fmt.Sprintf("%s was %q and is %q", c.Key, c.From, c.To))
	}
	if more := len(all) - maxNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// digestOf is the SHA-256, in hex, of a value as JSON, which sorts the keys of maps.
func digestOf(value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encoding what is to be digested: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// bounded cuts a text that is longer than a field of the API has room for.
func bounded(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}
