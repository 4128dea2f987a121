package onload

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
)

// variant returns a complete variant, as plan.Variants does.
func variant(a *v1alpha1.Acceleration, env ...v1alpha1.EnvVar) v1alpha1.Variant {
	return plan.Variants(v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{Variants: []v1alpha1.Variant{{Name: "v", Acceleration: a, Env: env}}}})[0]
}

func TestLibrary(t *testing.T) {
	for name, c := range map[string]struct {
		acceleration *v1alpha1.Acceleration
		want         string
	}{
		"no library by default":     {},
		"no library for the kernel": {acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationKernel}},
		"the device plugin's":       {acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload}, want: "/opt/onload/usr/lib64/libonload.so"},
		"the image's":               {acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{Source: v1alpha1.OnloadFromImage}}, want: "libonload.so"},
		"one that was moved":        {acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{Library: "/usr/lib64/libonload.so"}}, want: "/usr/lib64/libonload.so"},
	} {
		if got := Library(*variant(c.acceleration).Acceleration); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	onload := &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload}
	latency := &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{Profile: v1alpha1.OnloadProfileLatency}}
	referred := &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{ProfileRef: &v1alpha1.ObjectName{Name: "mine"}}}
	settings := func(n int) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf("EF_%d", i)] = ""
		}
		return all
	}
	cases := map[string]struct {
		variant   v1alpha1.Variant
		configMap map[string]string
		want      map[string]string
		// wantErr are parts of the error.
		wantErr []string
	}{
		"nothing for the kernel": {variant: variant(nil), want: map[string]string{}},
		"a variant's own for the kernel": {
			variant: variant(nil, v1alpha1.EnvVar{Name: "SFNT_AVOID_FORK", Value: "1"}), want: map[string]string{"SFNT_AVOID_FORK": "1"},
		},
		"the defaults": {variant: variant(onload), want: map[string]string{"EF_CONFIG_DUMP": "1", "EF_LOG_VIA_IOCTL": "0", "EF_TCP_TCONST_MSL": "1", "EF_NO_FAIL": "0"}},
		"the built-in profile": {
			variant: variant(latency),
			want: map[string]string{
				"EF_CONFIG_DUMP": "1", "EF_LOG_VIA_IOCTL": "0", "EF_TCP_TCONST_MSL": "1", "EF_NO_FAIL": "0", "EF_POLL_USEC": "100000", "EF_TCP_FASTSTART_INIT": "0", "EF_TCP_FASTSTART_IDLE": "0",
			},
		},
		// The publication's output of latency-best on a node with links of 25 Gb/s lists these five settings.
		"the built-in profile with CTPIO": {
			variant: variant(&v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{Profile: "latency-best"}}),
			want: map[string]string{
				"EF_CONFIG_DUMP": "1", "EF_LOG_VIA_IOCTL": "0", "EF_NO_FAIL": "0", "EF_TCP_TCONST_MSL": "1",
				"EF_POLL_USEC": "100000", "EF_TCP_FASTSTART_INIT": "0", "EF_TCP_FASTSTART_IDLE": "0", "EF_CTPIO_SWITCH_BYPASS": "1", "EF_EPOLL_MT_SAFE": "1",
			},
		},
		"a variant's own over its profile and the defaults": {
			variant: variant(latency, v1alpha1.EnvVar{Name: "EF_POLL_USEC", Value: "-1"}, v1alpha1.EnvVar{Name: "EF_NO_FAIL", Value: "1"}, v1alpha1.EnvVar{Name: "EF_TPH_MODE"}),
			want: map[string]string{
				"EF_CONFIG_DUMP": "1", "EF_LOG_VIA_IOCTL": "0", "EF_TCP_TCONST_MSL": "1", "EF_NO_FAIL": "1", "EF_POLL_USEC": "-1", "EF_TCP_FASTSTART_INIT": "0", "EF_TCP_FASTSTART_IDLE": "0", "EF_TPH_MODE": "",
			},
		},
		"a profile of the user's": {
			variant: variant(referred, v1alpha1.EnvVar{Name: "EF_TPH_MODE", Value: "2"}), configMap: map[string]string{"EF_NO_FAIL": "1", "EF_TPH_MODE": "1", "EF_INT_DRIVEN": "1"},
			want: map[string]string{"EF_CONFIG_DUMP": "1", "EF_LOG_VIA_IOCTL": "0", "EF_TCP_TCONST_MSL": "1", "EF_NO_FAIL": "1", "EF_INT_DRIVEN": "1", "EF_TPH_MODE": "2"},
		},
		"a ConfigMap that the variant does not name": {
			variant: variant(onload), configMap: map[string]string{"EF_NO_FAIL": "1"}, want: map[string]string{"EF_CONFIG_DUMP": "1", "EF_LOG_VIA_IOCTL": "0", "EF_TCP_TCONST_MSL": "1", "EF_NO_FAIL": "0"},
		},
		"as many settings as there may be": {
			variant: variant(referred), configMap: settings(64), want: func() map[string]string {
				all := settings(64)
				all["EF_CONFIG_DUMP"], all["EF_LOG_VIA_IOCTL"], all["EF_NO_FAIL"], all["EF_TCP_TCONST_MSL"] = "1", "0", "0", "1"
				return all
			}(),
		},
		"one more":                      {variant: variant(referred), configMap: settings(65), wantErr: []string{"mine", "65 keys"}},
		"a variable of another program": {variant: variant(referred), configMap: map[string]string{"EF_A": "1", "LD_PRELOAD": "x"}, wantErr: []string{"ConfigMap mine", `"LD_PRELOAD"`}},
		"the first of two":              {variant: variant(referred), configMap: map[string]string{"B": "1", "A": "x"}, wantErr: []string{`key "A"`}},
		"small letters":                 {variant: variant(referred), configMap: map[string]string{"EF_poll": "1"}, wantErr: []string{`"EF_poll"`}},
		"a name after a line":           {variant: variant(referred), configMap: map[string]string{"EF_A\n": "1"}, wantErr: []string{`"EF_A\n"`}},
		"a name that is too long":       {variant: variant(referred), configMap: map[string]string{"EF_" + strings.Repeat("A", 62): "1"}, wantErr: []string{"64 characters"}},
		"a profile in a file":           {variant: variant(referred), configMap: map[string]string{"latency.opf": "onload_set EF_POLL_USEC 1"}, wantErr: []string{`"latency.opf"`}},
		"two lines":                     {variant: variant(referred), configMap: map[string]string{"EF_POLL_USEC": "1\n"}, wantErr: []string{"EF_POLL_USEC", "line break"}},
		"a value that is too long": {
			variant: variant(referred), configMap: map[string]string{"EF_POLL_USEC": strings.Repeat("1", 257)}, wantErr: []string{"EF_POLL_USEC", "257 bytes"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Environment(c.variant, c.configMap)
			if (err != nil) != (c.wantErr != nil) {
				t.Fatalf("got error %v, want one: %t", err, c.wantErr != nil)
			}
			for _, part := range c.wantErr {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}

// What polls, by citp_opts_getenv in Onload's startup.c.
func TestPolls(t *testing.T) {
	for name, c := range map[string]struct {
		env  string
		want bool
	}{
		"the defaults":                       {"", false},
		"profile latency":                    {"EF_POLL_USEC=100000", true},
		"for ever":                           {"EF_POLL_USEC=-1", true},
		"off":                                {"EF_POLL_USEC=0", false},
		"no number, which Onload reads as 0": {"EF_POLL_USEC=long", false},
		"a time alone polls nothing":         {"EF_SPIN_USEC=100", false},
		"a time, for TCP":                    {"EF_SPIN_USEC=100 EF_TCP_RECV_SPIN=1", true},
		"for UDP, without a time":            {"EF_UDP_RECV_SPIN=1", false},
		"a time of 0 over that of all":       {"EF_POLL_USEC=100000 EF_SPIN_USEC=0", false},
		"for all calls but one":              {"EF_POLL_USEC=100000 EF_TCP_RECV_SPIN=0", true},
	} {
		env := map[string]string{}
		for _, setting := range strings.Fields(c.env) {
			key, value, _ := strings.Cut(setting, "=")
			env[key] = value
		}
		if got := Polls(env); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// A variable that one variant adds to its environment is not in the next.
func TestEnvironmentsAreApart(t *testing.T) {
	v := variant(&v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{Profile: v1alpha1.OnloadProfileLatency}})
	first, err := Environment(v, nil)
	if err != nil {
		t.Fatal(err)
	}
	first["EF_POLL_USEC"], first["EF_NO_FAIL"] = "x", "x"
	second, err := Environment(v, nil)
	if err != nil {
		t.Fatal(err)
	}
	if second["EF_POLL_USEC"] != "100000" || second["EF_NO_FAIL"] != "0" {
		t.Errorf("got %v", second)
	}
}
