// Package identity computes the identity of a node, as far as a LatencyGate counts it, and the differences between
// identities. The controllers, the command line and the HTTP verdict use the same computation. The package is pure.
package identity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// The prefixes of the identity keys that can occur several times.
const (
	labelPrefix  = "Label/"
	devicePrefix = string(v1alpha1.IdentityDevices) + "/"
)

// Keys are the identity keys that a gate counts.
type Keys []string

// KeysOf returns the identity keys of a gate: the key of a label is Label/NAME, the key of a device Devices/RESOURCE.
func KeysOf(gate *v1alpha1.LatencyGate) Keys {
	var all Keys
	for _, key := range gate.Spec.Identity.Keys {
		if key != v1alpha1.IdentityDevices {
			all = append(all, string(key))
			continue
		}
		for _, name := range plan.Resources(gate.Spec.Template.Spec) {
			all = append(all, devicePrefix+name)
		}
	}
	for _, key := range gate.Spec.Identity.Labels {
		all = append(all, labelPrefix+key)
	}
	return all
}

// Of returns the values of the keys on a node.
func (k Keys) Of(node *corev1.Node) map[string]string {
	all := make(map[string]string, len(k))
	for _, key := range k {
		all[key] = value(key, node)
	}
	return all
}

// value returns the value of one key. A label that the node does not have is empty, so that adding it is a change.
func value(key string, node *corev1.Node) string {
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
	}
	if name, ok := strings.CutPrefix(key, labelPrefix); ok {
		return node.Labels[name]
	}
	q := node.Status.Allocatable[corev1.ResourceName(strings.TrimPrefix(key, devicePrefix))]
	return q.String()
}

// Changes returns the keys that two identities share and in which they differ. A key that only one of them has was added to
// the gate, or removed from it: that says nothing about the node.
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

// Since returns the changes of a node since a recorded identity, whose keys are the ones that count.
func Since(recorded map[string]string, node *corev1.Node) []v1alpha1.IdentityChange {
	keys := make(Keys, 0, len(recorded))
	for key := range recorded {
		keys = append(keys, key)
	}
	return Changes(recorded, keys.Of(node))
}

// maxNamed is how many changes a sentence names.
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
