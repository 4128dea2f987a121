package pods

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const (
	// maxChanges bounds Changed's list, maxChange each change, in bytes.
	maxChanges = 32
	maxChange  = 200
	maxQuoted  = 80 // bytes of a value that is quoted
)

// Changed lists, sorted and bounded, how a pod in the API (got) differs from the operator's (want) in what
// a measurement depends on or the operator promises. An entry is a line such as "requests
// amd.com/sf_vf: 2 instead of 1". docs/internals/webhooks.md says what it ignores.
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
	return text.First(changes, maxChanges)
}

func change(key, what, value string) string {
	entry := key + ": " + what
	if value != "" && quotable(key, value) {
		entry += " " + value
	}
	return text.OneLine(entry, maxChange)
}

// quotable reports whether the value of a trait may be shown. It may be a secret or too long.
func quotable(key, value string) bool {
	return !strings.HasPrefix(key, "env ") && len(value) <= maxQuoted
}

// traits are the properties of a pod that must be as built, in words, by name.
type traits map[string]string

func (t traits) set(key, value string) {
	if value != "" {
		t[key] = value
	}
}

func (t traits) setIf(key string, has bool) {
	if has {
		t[key] = ""
	}
}

func (t traits) setJSON(prefix string, value any) {
	fields := map[string]json.RawMessage{}
	// Types of the API can always be encoded, as objects or as null.
	data, _ := json.Marshal(value)
	_ = json.Unmarshal(data, &fields)
	for name, field := range fields {
		t.set(prefix+name, string(field))
	}
}

// traitsOf returns a pod's traits; of volumes, the operator's, host paths and API tokens.
func traitsOf(pod, built *corev1.Pod) traits {
	t := traits{}
	for key, value := range pod.Annotations {
		if foreign.SetsUpPod(key, value) {
			t.set("annotation "+key, value)
		}
	}
	for key, value := range pod.Labels { // agents of nodes read labels, too
		if foreign.SetsUpPod(key, value) {
			t.set("label "+key, value)
		}
	}
	s := &pod.Spec
	t.set("restartPolicy", string(s.RestartPolicy))
	t.setIf("hostNetwork", s.HostNetwork)
	t.setIf("hostPID", s.HostPID)
	t.setIf("hostIPC", s.HostIPC)
	t.setIf("a user namespace", s.HostUsers != nil && !*s.HostUsers)
	t.setIf("shareProcessNamespace", s.ShareProcessNamespace != nil && *s.ShareProcessNamespace)
	if s.RuntimeClassName != nil {
		t.set("runtimeClassName", *s.RuntimeClassName)
	}
	if s.Affinity != nil && s.Affinity.NodeAffinity != nil {
		t.setJSON("node affinity ", s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	if s.SecurityContext != nil && len(s.SecurityContext.Sysctls) > 0 {
		t.setJSON("pod securityContext ", corev1.PodSecurityContext{Sysctls: s.SecurityContext.Sysctls})
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
			source := v.VolumeSource.DeepCopy()
			if source.EmptyDir != nil {
				// Above the limit, the kubelet evicts the pod: every attempt shows that.
				source.EmptyDir.SizeLimit = nil
			}
			t.setJSON("volume "+v.Name+" ", source)
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
			t.set("image", sameImage(built, c.Image))
		} else {
			t["container "+c.Name] = c.Image
		}
	}
	return t
}

func hasToken(v corev1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
}

func (t traits) setContainer(pod *corev1.Pod, c corev1.Container) {
	t.set("command", strings.Join(c.Command, " "))
	t.set("args", strings.Join(c.Args, " "))
	for _, e := range c.Env {
		if foreign.InjectedVariable(c, e) || foreign.UnreadVariable(e.Name) {
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
	t.setSecurity(cmp.Or(pod.Spec.SecurityContext, &corev1.PodSecurityContext{}), cmp.Or(c.SecurityContext, &corev1.SecurityContext{}))
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

// setSecurity records privileges; a container's precede its pod's. Policies and OpenShift assign
// groups and users other than root; the runtime's default AppArmor profile is as good as none.
func (t traits) setSecurity(pod *corev1.PodSecurityContext, c *corev1.SecurityContext) {
	user, nonRoot := cmp.Or(c.RunAsUser, pod.RunAsUser), cmp.Or(c.RunAsNonRoot, pod.RunAsNonRoot)
	switch {
	case user != nil && *user == 0:
		t["user"] = "root"
	case user != nil || nonRoot != nil && *nonRoot:
		t["user"] = "not root"
	}
	context := corev1.SecurityContext{
		Capabilities: c.Capabilities.DeepCopy(), AllowPrivilegeEscalation: c.AllowPrivilegeEscalation, ReadOnlyRootFilesystem: c.ReadOnlyRootFilesystem,
		SeccompProfile: cmp.Or(c.SeccompProfile, pod.SeccompProfile), AppArmorProfile: cmp.Or(c.AppArmorProfile, pod.AppArmorProfile),
	}
	if c.Privileged != nil && *c.Privileged {
		context.Privileged = c.Privileged
	}
	if c.ProcMount != nil && *c.ProcMount != corev1.DefaultProcMount {
		context.ProcMount = c.ProcMount
	}
	if a := context.AppArmorProfile; a != nil && a.Type == corev1.AppArmorProfileTypeRuntimeDefault {
		context.AppArmorProfile = nil
	}
	if all := context.Capabilities; all != nil && slices.Contains(all.Drop, "ALL") {
		// With ALL dropped, any other dropped capability matters only if it is also added.
		all.Drop = slices.DeleteFunc(all.Drop, func(c corev1.Capability) bool { return c != "ALL" && !slices.Contains(all.Add, c) })
	}
	t.setJSON("securityContext ", context)
}

// sameImage returns the built image for one with a digest, of a resolved tag or another registry.
func sameImage(built *corev1.Pod, image string) string {
	i := slices.IndexFunc(built.Spec.Containers, func(c corev1.Container) bool { return c.Name == Container })
	if i < 0 {
		return image
	}
	ours := built.Spec.Containers[i].Image
	ourName, ourDigest, pinned := strings.Cut(ours, "@")
	name, digest, resolved := strings.Cut(image, "@")
	untagged := ourName
	if tag := strings.LastIndex(ourName, ":"); tag > strings.LastIndex(ourName, "/") {
		untagged = ourName[:tag]
	}
	if pinned && digest == ourDigest || !pinned && resolved && (name == ourName || name == untagged) {
		return ours
	}
	return image
}

// setResources records requests and limits but ephemeral storage, a LimitRange's default.
func (t traits) setResources(prefix string, r corev1.ResourceRequirements) {
	for kind, list := range map[string]corev1.ResourceList{"requests ": r.Requests, "limits ": r.Limits} {
		for name, quantity := range list {
			if name != corev1.ResourceEphemeralStorage {
				t[prefix+kind+string(name)] = quantity.String()
			}
		}
	}
	for _, claim := range r.Claims {
		t[prefix+"claim "+claim.Name] = claim.Request
	}
}

func SeenOf(pod *corev1.Pod, c *corev1.Container) result.Seen {
	s := result.Seen{PodUID: string(pod.UID), QOSClass: string(pod.Status.QOSClass)}
	if c != nil {
		s.Requests = map[string]string{}
		for name, quantity := range c.Resources.Requests {
			s.Requests[string(name)] = quantity.String()
		}
	}
	return s
}

// Seen also has the fields that differ from the pod that Build makes. Of the task, only the role is
// compared, unless it cannot be read: inputs such as a profile's settings may have changed.
func Seen(e Endpoint, pod *corev1.Pod) (result.Seen, error) {
	s := SeenOf(pod, nil)
	for _, c := range pod.Spec.Containers {
		if c.Name != Container {
			continue
		}
		s = SeenOf(pod, &c)
		for _, v := range c.Env {
			if v.Name != plan.EnvTask {
				continue
			}
			if task, err := plan.DecodeTask(v.Value); err == nil && task.Role == e.Task.Role {
				e.Task = task
			}
		}
	}
	if c := AgentOf(pod); c != nil {
		s.ImageID = c.ImageID
	}
	if e.Variant.Network.Type.Attached() {
		namespace, name := NetworkName(e.Benchmark, e.Variant)
		// Without a status, the proof says that nothing was reported.
		if status, err := foreign.FindStatus(pod.Annotations[foreign.AnnotationNetworkStatus], namespace+"/"+name, Interface); err == nil {
			s.Network = &status
		}
	}

	built, err := Build(e)
	if err != nil {
		return result.Seen{}, fmt.Errorf("building the %s's pod again, to compare: %w", e.Task.Role, err)
	}
	s.Changed = Changed(built, pod)
	return s, nil
}
