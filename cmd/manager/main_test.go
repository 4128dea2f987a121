package main

import (
	"bytes"
	"context"
	"math"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/controllers/benchmark"
	"github.com/tailgate-dev/tailgate/internal/preflight"
)

// sfnettest is an image by digest.
var sfnettest = "onload/sfnettest@sha256:" + strings.Repeat("0a", 32)

func TestParse(t *testing.T) {
	cases := map[string]struct {
		args []string
		// want is compared, except zap's options.
		want options
	}{
		"the image alone": {
			args: []string{"--bench-image=bench:v0"},
			want: options{
				settings:       benchmark.Settings{BenchImage: "bench:v0", PullPolicy: corev1.PullIfNotPresent, StartTimeout: 2 * time.Minute, MaxAttempts: 3, Namespaces: controllers.Named{}, Settings: preflight.Settings{MaxOccupation: 24 * time.Hour, NetworkNamespaces: []string{}, BenchTools: []string{}}},
				metricsAddress: ":8443", healthAddress: ":8081", leaderElection: true, gates: true,
			},
		},
		"everything": {
			args: []string{
				"--bench-image=bench:v0", "--bench-image-pull-policy=Never", "--bench-service-account=bench", "--custom-images=registry.example.com:5000/a,docker.io", "--allow-host-network", "--allow-packet-capture", "--pod-start-timeout=1s", "--max-attempts=1",
				"--network-namespaces=nets,more", "--namespaces=perf,gates", "--max-occupation=1h", "--bench-tools=pinger,sockperf", "--sfnettest-image=" + sfnettest,
				"--metrics-bind-address=0", "--serving-cert-dir=/cert", "--health-probe-bind-address=:1", "--leader-elect=false", "--gates=false", "--zap-log-level=debug",
			},
			want: options{
				settings:       benchmark.Settings{BenchImage: "bench:v0", PullPolicy: corev1.PullNever, ServiceAccount: "bench", StartTimeout: time.Second, MaxAttempts: 1, Namespaces: controllers.Named{"perf", "gates"}, Settings: preflight.Settings{CustomImages: []string{"registry.example.com:5000/a", "docker.io"}, AllowHostNetwork: true, AllowPacketCapture: true, MaxOccupation: time.Hour, NetworkNamespaces: []string{"nets", "more"}, BenchTools: []string{"pinger", "sockperf"}, SfnettestImage: sfnettest}},
				metricsAddress: "0", servingCertDir: "/cert", healthAddress: ":1",
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			got, err := parse(c.args, &stderr)
			if err != nil {
				t.Fatal(err)
			}
			got.zap = c.want.zap
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(options{})); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			if stderr.Len() > 0 {
				t.Errorf("it said %q", &stderr)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	const image = "--bench-image=bench:v0"
	cases := map[string]struct {
		args []string
		// want is part of the error.
		want string
	}{
		"no image":                        {nil, "--bench-image is required"},
		"an empty image":                  {[]string{"--bench-image="}, "--bench-image is required"},
		"an argument":                     {[]string{image, "now"}, `"now"`},
		"a flag that does not exist":      {[]string{image, "--fast"}, "fast"},
		"an invalid start timeout":        {[]string{image, "--pod-start-timeout=soon"}, "pod-start-timeout"},
		"a time to start that is short":   {[]string{image, "--pod-start-timeout=999ms"}, "--pod-start-timeout"},
		"a time to start that is long":    {[]string{image, "--pod-start-timeout=11m"}, "--pod-start-timeout"},
		"a time to start before now":      {[]string{image, "--pod-start-timeout=-1m"}, "--pod-start-timeout"},
		"a negative occupation":           {[]string{image, "--max-occupation=-1h"}, "--max-occupation"},
		"no attempt":                      {[]string{image, "--max-attempts=0"}, "--max-attempts"},
		"too many attempts":               {[]string{image, "--max-attempts=4"}, "--max-attempts"},
		"attempts that are no number":     {[]string{image, "--max-attempts=many"}, "max-attempts"},
		"an invalid pull policy":          {[]string{image, "--bench-image-pull-policy=Sometimes"}, `"Sometimes"`},
		"an invalid service account":      {[]string{image, "--bench-service-account=a b"}, "--bench-service-account"},
		"a tool that does not exist":      {[]string{image, "--bench-tools=pinger,ping"}, `--bench-tools: unknown tool "ping"`},
		"all namespaces as a star":        {[]string{image, "--namespaces=*"}, `--namespaces: "*" is not a name of a namespace`},
		"tools by tag":                    {[]string{image, "--sfnettest-image=onload/sfnettest:1.6"}, `--sfnettest-image: "onload/sfnettest:1.6" is not REPOSITORY@sha256:DIGEST`},
		"images without a registry":       {[]string{image, "--custom-images=trading"}, `--custom-images: "trading" does not begin with a registry`},
		"images by tag":                   {[]string{image, "--custom-images=docker.io/a:1"}, `--custom-images: "docker.io/a:1"`},
		"an empty pull policy":            {[]string{image, "--bench-image-pull-policy="}, "--bench-image-pull-policy"},
		"a yes that is neither nor":       {[]string{image, "--leader-elect=perhaps"}, "leader-elect"},
		"a log level that does not exist": {[]string{image, "--zap-log-level=loud"}, "zap-log-level"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			err := run(context.Background(), c.args, &stderr)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that names %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			// main prints the error; a user who mistyped a flag need not read all of them.
			if stderr.Len() > 0 {
				t.Errorf("it also said %q", &stderr)
			}
		})
	}
}

func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for limit, want := range map[int64]int64{512 << 20: 483_183_819, math.MaxInt64: math.MaxInt64} {
		debug.SetMemoryLimit(limit)
		limitMemory()
		if got := debug.SetMemoryLimit(-1); got != want {
			t.Errorf("of a container with %d bytes the collector uses %d, not %d", limit, got, want)
		}
	}
}

func TestHelp(t *testing.T) {
	var stderr bytes.Buffer
	if err := run(context.Background(), []string{"--help"}, &stderr); err != nil {
		t.Error(err)
	}
	for _, flag := range []string{"-bench-image ", "-pod-start-timeout", "-zap-log-level"} {
		if !strings.Contains(stderr.String(), flag) {
			t.Errorf("the help does not name %s", flag)
		}
	}
}
