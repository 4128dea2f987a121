package agent

import (
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
)

// library is where the device plugin mounts Onload's library.
const library = "/opt/onload/usr/lib64/libonload.so"

func TestEnvironment(t *testing.T) {
	onload := func(env map[string]string) plan.Task {
		return plan.Task{Acceleration: v1alpha1.AccelerationOnload, Library: library, Env: env}
	}
	kernel := plan.Task{Acceleration: v1alpha1.AccelerationKernel}
	cases := map[string]struct {
		container []string
		task      plan.Task
		want      []string
	}{
		"nothing":                        {want: nil},
		"options of the tools":           {container: []string{"SFNT_OPTS=--spin", "NETPERF_A=1", "SOCKPERF_A=1", "LD_AUDIT=/a.so"}, task: kernel, want: []string{"LD_AUDIT=/a.so"}},
		"the container's own variables":  {container: []string{"PATH=/bin", "A=b=c", "EMPTY="}, task: kernel, want: []string{"A=b=c", "EMPTY=", "PATH=/bin"}},
		"a variable of the variant":      {container: []string{"XLIO_A=1"}, task: plan.Task{Env: map[string]string{"XLIO_A": "2", "VMA_B": ""}}, want: []string{"VMA_B=", "XLIO_A=2"}},
		"the kernel without Onload's":    {container: []string{"EF_POLL_USEC=1", "LD_PRELOAD=" + library, "EFX=1"}, task: kernel, want: []string{"EFX=1"}},
		"not even the variant's":         {task: plan.Task{Env: map[string]string{"EF_A": "1", "SFNT_B": "1"}}, want: []string{"SFNT_B=1"}},
		"other preloaded libraries stay": {container: []string{"LD_PRELOAD=/lib/libvma.so:" + library + " libonload.so /lib/b.so"}, task: kernel, want: []string{"LD_PRELOAD=/lib/libvma.so:/lib/b.so"}},
		"the extensions' library stays":  {container: []string{"LD_PRELOAD=/lib/libonload_ext.so.2"}, task: kernel, want: []string{"LD_PRELOAD=/lib/libonload_ext.so.2"}},
		"Onload as it is built":          {container: []string{"LD_PRELOAD=/build/libcitransport0.so"}, task: kernel, want: nil},
		"Onload": {
			container: []string{"PATH=/bin"}, task: onload(nil),
			want: []string{"LD_PRELOAD=" + library, "PATH=/bin"},
		},
		"Onload that the device plugin preloads already": {
			container: []string{"LD_PRELOAD=" + library}, task: onload(nil), want: []string{"LD_PRELOAD=" + library},
		},
		"Onload in place of another that is preloaded": {
			container: []string{"LD_PRELOAD=/usr/lib64/libonload.so /lib/b.so"}, task: onload(nil), want: []string{"LD_PRELOAD=" + library + ":/lib/b.so"},
		},
		"Onload with a profile": {
			container: []string{"EF_POLL_USEC=1", "EF_SPIN=1", "LD_PRELOAD="}, task: onload(map[string]string{"EF_POLL_USEC": "100000", "EF_NO_FAIL": "0"}),
			want: []string{"EF_NO_FAIL=0", "EF_POLL_USEC=100000", "LD_PRELOAD=" + library},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, environment(c.container, c.task)); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPreloadFile(t *testing.T) {
	for content, want := range map[string]string{
		"": "", "/lib/libvma.so\n": "", library + "\n": library, "/lib/a.so:" + library: library, "/lib/a.so\n " + library + " /lib/b.so\n": library,
		"# " + library + "\n": "", "/lib/a.so # " + library + "\n": "",
	} {
		if got := fakeRoot(t, map[string]string{"etc/ld.so.preload": content}).preloadFile(); got != want {
			t.Errorf("%q: got %q, want %q", content, got, want)
		}
	}
	h := fakeRoot(t, map[string]string{"etc/ld.so.preload": "/lib/a.so:/lib/b.so\n"})
	f := h.facts(0, nil, net.Interface{}, []string{"LD_AUDIT=/a.so", "SFNT_OPTS=--spin", "MALLOC_ARENA_MAX=1", "HOME=/"})
	for key, want := range map[string]string{"preload-file": "/lib/a.so /lib/b.so", "env.LD_AUDIT": "/a.so", "env.SFNT_OPTS": "--spin", "env.MALLOC_ARENA_MAX": "1", "env.HOME": ""} {
		if f[key] != want {
			t.Errorf("%s: got %q, want %q", key, f[key], want)
		}
	}
}
