package admit

import (
	"strings"
	"testing"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tailgate-dev/tailgate/test/field"
)

// gate returns a gate with a schedule, as a user writes it.
func gate(spec map[string]any) *unstructured.Unstructured {
	all := map[string]any{
		"nodeSelector": map[string]any{"matchLabels": map[string]any{"a": "b"}}, "namespace": "gates",
		"template": map[string]any{"spec": map[string]any{
			"tool": "pinger", "workload": map[string]any{"protocols": []any{"TCP"}, "messageSizes": []any{int64(64)}, "duration": "1s"},
			"placement": map[string]any{"client": map[string]any{}, "server": map[string]any{}},
			"criteria":  map[string]any{"rules": []any{map[string]any{"metric": "p50", "max": "5ms"}}},
		}},
	}
	for key, value := range spec {
		all[key] = value
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tailgate.dev/v1alpha1", "kind": "LatencyGate", "metadata": map[string]any{"name": "x"}, "spec": all,
	}}
}

// The API accepts the schedules that a CronJob accepts, and refuses what it refuses.
func TestSchedulesAsCronJobs(t *testing.T) {
	for _, text := range []string{
		"0 3 * * 0", "*/5 * * * *", "0 3 1-7 * 1", "0,30 8-18/2 * JAN-MAR,12 mon-FRI", "0 0 29 2 ?", "59 23 31 12 6", "05 03 01 01 00", "  0  3 * *  SUN ", "0 3 31 2 *",
		"@daily", "@weekly", "@hourly", "@midnight", "@yearly", "@annually", "@monthly", "5/15 * * * *", "0-59/59 0-0 1-1 1-1 0-6",
		"", "nonsense", "* * * *", "* * * * * *", "@DAILY", "@daily ", "@reboot", "H 3 * * *", "0 3 L * *", "0 3 * * 5#3", "0 3 * * 7", "0 3 * * 5-7", "60 * * * *",
		"* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * 0 *", "* * * * 8", "*/0 * * * *", "5-1 * * * *", "0 22-4 * * *", "* * * DEC-JAN *", "* * * * FRI-MON",
		"* * * MON *", "* * * * JAN", "1- * * * *", "-1 * * * *", "1/ * * * *", "1-2-3 * * * *", "a * * * *", "599 * * * *", "* * * * *\n* * * * *", "0 3 * * 1,,", "1.5 * * * *",
	} {
		spec := map[string]any{"schedule": text}
		err := Object(t.Context(), gate(spec))
		_, refusal := cron.ParseStandard(text)
		// ParseStandard drops the empty elements of a list.
		if empty := strings.Contains(text, ",,"); (err == nil) != (refusal == nil) && !empty && !strings.Contains(text, "\n") {
			t.Errorf("%q: %v; a CronJob: %v", text, err, refusal)
		}
	}
}

func TestTimeZones(t *testing.T) {
	for zone, want := range map[string]bool{
		"Europe/Zurich": true, "UTC": true, "Etc/UTC": true, "America/Argentina/Buenos_Aires": true, "Etc/GMT+2": true,
		"Local": false, "local": false, "UTC+2": false, "europe/zuerich": false, "+02:00": false, "../etc/passwd": false, "Europe/Zürich": false, "": false, " ": false,
	} {
		if err := Object(t.Context(), gate(map[string]any{"schedule": "@daily", "timeZone": zone})); (err == nil) != want {
			t.Errorf("%q: %v", zone, err)
		}
	}
}

func TestScheduleWindow(t *testing.T) {
	for name, c := range map[string]struct {
		spec map[string]any
		want string
	}{
		"with a schedule":    {map[string]any{"schedule": "@daily", "scheduleWindow": "4h"}, ""},
		"without a schedule": {map[string]any{"scheduleWindow": "4h"}, "scheduleWindow: applies only to a schedule"},
		"too short":          {map[string]any{"schedule": "@daily", "scheduleWindow": "30s"}, "must be a duration from 1m to 8760h"},
		"Sunday is 7":        {map[string]any{"schedule": "0 3 * * 7"}, "Sunday is 0"},
	} {
		err := Object(t.Context(), gate(c.spec))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestField tries the schedules of public bug reports.
func TestFieldSchedules(t *testing.T) {
	field.Run(t, "gates", "internal/admit", func(t *testing.T, c field.Case) map[string]string {
		spec := map[string]any{}
		for key, value := range c.Arguments {
			spec[key] = value
		}
		if err := Object(t.Context(), gate(spec)); err != nil {
			return map[string]string{"admitted": "no", "message": err.Error()}
		}
		return map[string]string{"admitted": "yes"}
	})
}
