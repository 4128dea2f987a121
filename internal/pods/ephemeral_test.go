package pods

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// An inspection has the user of the container and never more rights.
func TestEphemeralRights(t *testing.T) {
	drop := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_RAW"}}
	for name, c := range map[string]struct {
		pod       *corev1.PodSecurityContext
		container *corev1.SecurityContext
		user      *corev1.ContainerUser
		wantUser  int64 // -1: that of the image
		wantDrop  bool
		wantAdd   bool
	}{
		"nobody says which":        {wantUser: -1, wantDrop: true},
		"of the pod":               {pod: &corev1.PodSecurityContext{RunAsUser: new(int64(7))}, wantUser: 7, wantDrop: true},
		"of the container":         {pod: &corev1.PodSecurityContext{RunAsUser: new(int64(7))}, container: &corev1.SecurityContext{RunAsUser: new(int64(8)), Capabilities: drop}, wantUser: 8, wantDrop: true},
		"of the image":             {user: &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 9}}, wantUser: 9, wantDrop: true},
		"root":                     {container: &corev1.SecurityContext{RunAsUser: new(int64(0))}, wantUser: 0},
		"root with one capability": {container: &corev1.SecurityContext{RunAsUser: new(int64(0)), Capabilities: drop}, wantUser: 0, wantDrop: true, wantAdd: true},
		"root that is privileged":  {container: &corev1.SecurityContext{RunAsUser: new(int64(0)), Privileged: new(true)}, wantUser: 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: c.pod}}
			e := Ephemeral(p, &corev1.Container{Name: "app", SecurityContext: c.container}, &corev1.ContainerStatus{User: c.user}, "i", "bench", corev1.PullNever, "")
			s := e.SecurityContext
			user := int64(-1)
			if s.RunAsUser != nil {
				user = *s.RunAsUser
			}
			dropped, added := s.Capabilities != nil && len(s.Capabilities.Drop) > 0, s.Capabilities != nil && len(s.Capabilities.Add) > 0
			if user != c.wantUser || dropped != c.wantDrop || added != c.wantAdd || s.Privileged != nil || *s.AllowPrivilegeEscalation {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestMemoryLimit(t *testing.T) {
	of := func(limit string) corev1.Container {
		if limit == "" {
			return corev1.Container{}
		}
		return corev1.Container{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}}}
	}
	sidecar := of("8Mi")
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"two containers":              {corev1.PodSpec{Containers: []corev1.Container{of("64Mi"), of("32Mi")}}, "96Mi"},
		"one without a limit":         {corev1.PodSpec{Containers: []corev1.Container{of("64Mi"), of("")}}, ""},
		"a sidecar":                   {corev1.PodSpec{Containers: []corev1.Container{of("64Mi")}, InitContainers: []corev1.Container{sidecar}}, "72Mi"},
		"a larger init container":     {corev1.PodSpec{Containers: []corev1.Container{of("64Mi")}, InitContainers: []corev1.Container{of("128Mi")}}, "128Mi"},
		"an unlimited init container": {corev1.PodSpec{Containers: []corev1.Container{of("64Mi")}, InitContainers: []corev1.Container{of("")}}, ""},
		"a limit of the pod": {corev1.PodSpec{Containers: []corev1.Container{of("")}, Resources: &corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("48Mi")},
		}}, "48Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if limit := MemoryLimit(&corev1.Pod{Spec: c.spec}); limit != nil {
				got = limit.String()
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
