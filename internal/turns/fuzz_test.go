package turns

import (
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// FuzzLastFired gives a gate any schedule that the API accepts, in zones whose clocks change at midnight, by half an hour or
// by two hours. The last time must be a time of the schedule and not after now, and no other one may lie between it and now.
func FuzzLastFired(f *testing.F) {
	zones := []string{"", "Europe/Zurich", "America/Havana", "Australia/Lord_Howe", "Antarctica/Troll", "Africa/Cairo", "Pacific/Apia"}
	f.Add("30 2 * * *", uint8(1), int64(1774785600))
	f.Add("0 0 29 2 *", uint8(0), int64(1777885200))
	f.Add("@weekly", uint8(2), int64(1793500000))
	f.Add("*/5 * 31 2,4 1-5", uint8(3), int64(0))
	f.Fuzz(func(t *testing.T, text string, zone uint8, seconds int64) {
		// The API server refuses these.
		if len(text) > 100 || strings.Contains(text, "TZ") || strings.HasPrefix(text, "@every") {
			return
		}
		schedule, in, err := scheduleOf(v1alpha1.LatencyGateSpec{Schedule: text, TimeZone: zones[int(zone)%len(zones)]})
		if err != nil || schedule == nil {
			return
		}
		// From 1970 to 2106.
		now := time.Unix(int64(uint32(seconds)), 0).In(in)
		last := lastFired(schedule, now)
		if last.IsZero() {
			return
		}
		if last.After(now) || !schedule.Next(last.Add(-time.Second)).Equal(last) {
			t.Errorf("%q: %s is no time of the schedule up to %s", text, last, now)
		}
		if next := schedule.Next(last); !next.IsZero() && !next.After(now) {
			t.Errorf("%q: at %s the last is %s, not %s", text, now, next, last)
		}
	})
}
