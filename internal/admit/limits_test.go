package admit

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
)

// onlyDrivers are parts of the messages about limits that no rule of the API has, after "stream: " for those of streams: preflight rejects
// such a benchmark.
var onlyDrivers = []string{
	"netperf measures TCP and UDP, not", "netperf measures TCP messages of 1 to", "netperf measures UDP messages of 1 to", "netperf measures whole seconds",
	"stream: sockperf measures TCP messages of", "stream: sockperf measures UDP messages of", "sfnt-stream sends 100 to", "pinger sends no message within", "pinger cannot distinguish",
}

// The limits of the tools stand twice: in the rules of the API, so that the API server refuses a spec at once, and in the drivers. At both
// sides of each limit they agree, for each tool, protocol, size and rate, and for streams.
func TestToolLimitsAgree(t *testing.T) {
	const most = 65_536 // The API accepts no larger message for round trips.
	sizes := []int64{0, 1, 7, 8, 13, 14, 23, 24, 64, 65506, 65507, 65508, most, 1 << 20}
	used, cases := map[string]bool{}, 0
	try := func(name, tool string, workload map[string]any) {
		cases++
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tailgate.dev/v1alpha1", "kind": "LatencyBenchmark", "metadata": map[string]any{"name": "x", "namespace": "perf"},
			"spec": map[string]any{"tool": tool, "workload": workload, "placement": map[string]any{"client": map[string]any{}, "server": map[string]any{}}},
		}}
		refused := Object(t.Context(), u)
		b := &v1alpha1.LatencyBenchmark{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		driver, err := all.Registry().Get(b.Spec.Tool)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range plan.Variants(b.Spec) {
			for _, c := range plan.Cells(b.Spec, v) {
				if err == nil {
					err = driver.Validate(c)
				}
			}
		}
		_, stream := workload["streams"]
		for _, known := range onlyDrivers {
			known, ofStreams := strings.CutPrefix(known, "stream: ")
			if refused == nil && err != nil && strings.Contains(err.Error(), known) && (stream || !ofStreams) {
				used[known] = true
				return
			}
		}
		if (refused == nil) != (err == nil) {
			t.Errorf("%s: the API: %v; the driver: %v", name, refused, err)
		}
	}
	for tool := range all.Registry() {
		for _, protocol := range []string{"TCP", "UDP", "Multicast"} {
			for _, size := range sizes {
				for _, rate := range []int64{0, 1, 4, 10_000, 10_000_000} {
					if size > most {
						continue
					}
					workload := map[string]any{"protocols": []any{protocol}, "messageSizes": []any{size}, "duration": "1s"}
					if rate > 0 {
						workload["ratesPerSecond"] = []any{rate}
					}
					try(fmt.Sprintf("%s, %s of %d bytes at %d", tool, protocol, size, rate), string(tool), workload)
				}
				if size > 0 {
					stream := map[string]any{"protocol": protocol, "messageSize": size}
					try(fmt.Sprintf("%s, stream of %s, %d bytes", tool, protocol, size), string(tool),
						map[string]any{"protocols": []any{protocol}, "streams": []any{stream}, "duration": "1s"})
				}
			}
		}
		for _, duration := range []string{"100ms", "1s", "1500ms"} {
			workload := map[string]any{"protocols": []any{"UDP"}, "messageSizes": []any{int64(64)}, "duration": duration}
			if tool == v1alpha1.ToolSfntStream {
				workload["ratesPerSecond"] = []any{int64(10_000)}
			}
			try(fmt.Sprintf("%s for %s", tool, duration), string(tool), workload)
		}
		try(string(tool)+" at a low rate", string(tool),
			map[string]any{"protocols": []any{"UDP"}, "messageSizes": []any{int64(64)}, "duration": "100ms", "ratesPerSecond": []any{int64(1)}})
	}
	for _, known := range onlyDrivers {
		if !used[strings.TrimPrefix(known, "stream: ")] {
			t.Errorf("no case has the limit %q of a driver alone", known)
		}
	}
	t.Logf("%d cases", cases)
}
