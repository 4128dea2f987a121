package pods

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/internal/foreign"
)

const (
	// maxChanges is how many changes Changed lists, maxChange how long each may be, in bytes.
	maxChanges = 32
	maxChange  = 200
	// maxQuoted is how long a value may be to be quoted, in bytes.
	maxQuoted = 80
)

// Changed tells how a pod of ours in the API (got) differs from what we built (want), in what a measurement depends on
// or what we promise of our pods: containers, and of ours image, command, environment, resources, privileges, mounts
// and probes; networks and host namespaces; node and runtime class; host paths and API tokens. An admission webhook
// makes such changes, or somebody who adds a container to debug. What the API server and its own admission plugins
// fill in anywhere is none: other defaults, tolerations, priority, what a RuntimeClass brings along, SELinux labels; nor
// are a selector of nodes, as the affinity binds the pod to its node, and what the network resources injector mounts.
//
// The list is sorted and bounded. An entry is one line, such as "requests amd.com/sf_vf: 2 instead of 1"; it has no
// values of environment variables.
func Changed(want, got *corev1.Pod) []string {
	asked, found := traitsOf(want, want), traitsOf(got, want)
	var changes []string
	for key, value := range asked {
		now, ok := found[key]
		switch {
		case !ok:
			changes = append(changes, change(key, "removed", value))
		case now != value && quotable(key, value) && quotable(key, now):
			changes = append(changes, change(key, now+" instead of", value))
		case now != value:
			changes = append(changes, change(key, "changed", ""))
		}
	}
	for key, value := range found {
		if _, ok := asked[key]; !ok {
			changes = append(changes, change(key, "added", value))
		}
	}
	slices.Sort(changes)
	if more := len(changes) - maxChanges; more > 0 {
		changes = append(changes[:maxChanges], fmt.Sprintf("and %d more", more))
	}
	return changes
}

// change is an entry of Changed: what was done to the trait of this key, with its value where that can be told.
func change(key, what, value string) string {
	entry := key + ": " + what
	if value != "" && quotable(key, value) {
		entry += " " + value
	}
	entry = strings.Join(strings.FieldsFunc(entry, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if len(entry) > maxChange {
		entry = strings.ToValidUTF8(entry[:maxChange], "")
	}
	return entry
}

// quotable says whether the value of a trait may be told: it may be a secret, or long.
func quotable(key, value string) bool {
	return !strings.HasPrefix(key, "env ") && len(value) <= maxQuoted
}

// traits are what of a pod must be as we built it, in words, by what it is.
type traits map[string]string

func (t traits) set(key, value string) {
	if value != "" {
		t[key] = value
	}
}

// setIf notes what a pod has or has not.
func (t traits) setIf(key string, has bool) {
	if has {
		t[key] = ""
	}
}

// setJSON notes each field of a value that has any.
func (t traits) setJSON(prefix string, value any) {
	fields := map[string]json.RawMessage{}
	// Types of the API can always be encoded, as objects or as null.
	data, _ := json.Marshal(value)
	_ = json.Unmarshal(data, &fields)
	for name, field := range fields {
		t.set(prefix+name, string(field))
	}
}

// traitsOf describes a pod. Of its volumes those count that we have built, and those that nobody may add.
func traitsOf(pod, built *corev1.Pod) traits {
	t := traits{}
	t.set("annotation "+foreign.AnnotationNetworks, pod.Annotations[foreign.AnnotationNetworks])
	s := &pod.Spec
	t.setIf("hostNetwork", s.HostNetwork)
	t.setIf("hostPID", s.HostPID)
	t.setIf("hostIPC", s.HostIPC)
	t.setIf("shareProcessNamespace", s.ShareProcessNamespace != nil && *s.ShareProcessNamespace)
	if s.RuntimeClassName != nil {
		t.set("runtimeClassName", *s.RuntimeClassName)
	}
	if s.Affinity != nil && s.Affinity.NodeAffinity != nil {
		t.setJSON("node affinity ", s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	if s.SecurityContext != nil {
		context := s.SecurityContext.DeepCopy()
		context.SELinuxOptions = nil
		t.setJSON("pod securityContext ", context)
	}
	if s.Resources != nil {
		t.setResources("pod ", *s.Resources)
	}

	for _, v := range s.Volumes {
		ours := slices.ContainsFunc(built.Spec.Volumes, func(b corev1.Volume) bool { return b.Name == v.Name })
		switch {
		case v.HostPath != nil:
			t["volume "+v.Name] = "host path " + v.HostPath.Path
		case hasToken(v):
			t["volume "+v.Name] = "API token"
		case ours:
			t.setJSON("volume "+v.Name+" ", v.VolumeSource)
		}
	}
	for _, c := range s.InitContainers {
		t["init container "+c.Name] = c.Image
	}
	for _, c := range s.EphemeralContainers {
		t["ephemeral container "+c.Name] = c.Image
	}
	for _, c := range s.Containers {
		if c.Name == Container {
			t.setContainer(pod, c)
		} else {
			t["container "+c.Name] = c.Image
		}
	}
	return t
}

// hasToken says whether a volume has a token of a service account.
func hasToken(v corev1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
}

// setContainer notes the container in which the measurement runs.
func (t traits) setContainer(pod *corev1.Pod, c corev1.Container) {
	t.set("image", c.Image)
	t.set("command", strings.Join(c.Command, " "))
	t.set("args", strings.Join(c.Args, " "))
	for _, e := range c.Env {
		if foreign.InjectedVariable(c, e) {
			continue
		}
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.APIVersion == "" {
			e = *e.DeepCopy()
			// The API server's default.
			e.ValueFrom.FieldRef.APIVersion = "v1"
		}
		t["env "+e.Name] = e.String()
	}
	t.setIf("envFrom", len(c.EnvFrom) > 0)
	t.setResources("", c.Resources)
	if c.SecurityContext != nil {
		context := c.SecurityContext.DeepCopy()
		context.SELinuxOptions = nil
		if context.ProcMount != nil && *context.ProcMount == corev1.DefaultProcMount {
			context.ProcMount = nil
		}
		t.setJSON("securityContext ", context)
	}
	for _, m := range c.VolumeMounts {
		if !foreign.InjectedMount(pod, m) {
			t["mount "+m.MountPath] = m.Name
		}
	}
	for _, d := range c.VolumeDevices {
		t["device "+d.DevicePath] = d.Name
	}
	t.setIf("startupProbe", c.StartupProbe != nil)
	t.setIf("readinessProbe", c.ReadinessProbe != nil)
	t.setIf("livenessProbe", c.LivenessProbe != nil)
	t.setIf("lifecycle", c.Lifecycle != nil)
}

func (t traits) setResources(prefix string, r corev1.ResourceRequirements) {
	for name, quantity := range r.Requests {
		t[prefix+"requests "+string(name)] = quantity.String()
	}
	for name, quantity := range r.Limits {
		t[prefix+"limits "+string(name)] = quantity.String()
	}
	for _, claim := range r.Claims {
		t[prefix+"claim "+claim.Name] = claim.Request
	}
}
