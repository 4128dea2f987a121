// Package driven gives the inputs of the corpus (test/field) to the drivers of the tools.
package driven

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/field"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// duration returns an argument that is a duration, or 0 without it.
func duration(t testing.TB, c field.Case, key string) time.Duration {
	t.Helper()
	if c.Arguments[key] == "" {
		return 0
	}
	d, err := time.ParseDuration(c.Arguments[key])
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// number returns an argument that is a number, or another number without it.
func number(t testing.TB, c field.Case, key string, otherwise int) int {
	t.Helper()
	if c.Arguments[key] == "" {
		return otherwise
	}
	n, err := strconv.Atoi(c.Arguments[key])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Parse gives a case's input to a driver as the output of a client, and returns the failure, or the result's numbers. The
// arguments are: protocol, size, rate, duration, warmup and stream of the cell, exit (the client's exit code), and clocks (raw,
// monotonic and wall time of the process).
func Parse(t *testing.T, c field.Case, d tool.Driver, out tool.Output) map[string]string {
	t.Helper()
	cell := tool.Cell{
		Traffic:  v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: int32(number(t, c, "size", 64)), RatePerSecond: int32(number(t, c, "rate", 0)), Stream: c.Arguments["stream"] != ""},
		Duration: duration(t, c, "duration"), Warmup: duration(t, c, "warmup"),
	}
	out.Stdout, out.ExitCode = c.Read(t), number(t, c, "exit", 0)
	if out.ExitCode != 0 {
		out.Stderr = out.Stdout
	}
	if text := c.Arguments["clocks"]; text != "" {
		var times [3]string
		if _, err := fmt.Sscan(text, &times[0], &times[1], &times[2]); err != nil {
			t.Fatal(err)
		}
		for i, to := range []*time.Duration{&out.Clocks.Raw, &out.Clocks.Monotonic, &out.Clocks.Wall} {
			var err error
			if *to, err = time.ParseDuration(times[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	recorder := result.NewRecorder()
	m, err := d.Parse(cell, out, recorder.RecordN, func(int64, int64) {})
	var failed *tool.Failure
	if errors.As(err, &failed) {
		return map[string]string{"reason": failed.Reason, "message": failed.Message}
	}
	answer := map[string]string{
		"lost": strconv.FormatInt(m.Lost, 10), "unrecorded": strconv.FormatInt(m.Unrecorded, 10), "start": string(m.Start),
	}
	if m.Own != nil {
		answer["count"] = strconv.FormatInt(m.Own.Count, 10)
		return answer
	}
	h, err := recorder.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	h.Unrecorded = m.Unrecorded
	samples, err := resulttest.Merge(h)
	if err != nil {
		t.Fatal(err)
	}
	// To three digits, as histograms have them.
	round := func(ns int64) string {
		return time.Duration(ns).Round(time.Duration(max(ns/1000, 1))).String()
	}
	answer["max"] = round(samples.Max)
	for _, p := range []stats.Percentile{stats.P50, stats.P90, stats.P99} {
		switch r := samples.Percentile(p, m.Lost); {
		case r.Lost:
			answer[p.Name] = "lost"
		case r.Needs == 0:
			answer[p.Name] = round(min(r.Ns, samples.Max))
		}
	}
	return answer
}
