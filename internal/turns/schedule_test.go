package turns

import (
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// The change to summer time skips no turn, and the change back doubles none.
func TestSummerTime(t *testing.T) {
	for name, c := range map[string]struct {
		schedule, zone string
		from           string // in UTC, as the times that are due in the following 36 hours
		want           []string
	}{
		"skipped in Zurich":             {"30 2 * * *", "Europe/Zurich", "2026-03-28T12:00", []string{"2026-03-29T01:00"}},
		"twice in Zurich":               {"30 2 * * *", "Europe/Zurich", "2026-10-24T12:00", []string{"2026-10-25T00:30"}},
		"many skipped times are one":    {"*/10 2 * * *", "Europe/Zurich", "2026-03-28T12:00", []string{"2026-03-29T01:00", "2026-03-30T00:00"}},
		"weekly in New York":            {"30 2 * * SUN", "America/New_York", "2026-03-07T12:00", []string{"2026-03-08T07:00"}},
		"twice in New York":             {"30 1 * * SUN", "America/New_York", "2026-10-31T12:00", []string{"2026-11-01T05:30"}},
		"half an hour on Lord Howe":     {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T10:00", []string{"2026-10-03T15:30", "2026-10-04T15:15"}},
		"twice on Lord Howe":            {"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T10:00", []string{"2026-04-04T14:45", "2026-04-05T15:15"}},
		"midnight is skipped in Beirut": {"0 0 * * *", "Asia/Beirut", "2026-03-28T12:00", []string{"2026-03-28T22:00", "2026-03-29T21:00"}},
		"a day is skipped on Samoa":     {"0 12 30 12 *", "Pacific/Apia", "2011-12-30T00:00", []string{"2011-12-30T10:00"}},
		"every six hours around autumn": {"0 */6 * * *", "Europe/Zurich", "2026-10-24T22:30", []string{"2026-10-25T05:00", "2026-10-25T11:00", "2026-10-25T17:00", "2026-10-25T23:00", "2026-10-26T05:00"}},
		"every hour means every hour":   {"0 * * * *", "Europe/Zurich", "2026-10-24T23:30", nil},
	} {
		t.Run(name, func(t *testing.T) {
			schedule, _, err := scheduleOf(v1alpha1.LatencyGateSpec{Schedule: c.schedule, TimeZone: c.zone})
			if err != nil {
				t.Fatal(err)
			}
			now, err := time.Parse("2006-01-02T15:04", c.from)
			if err != nil {
				t.Fatal(err)
			}
			end := now.Add(36 * time.Hour)
			var got []time.Time
			for at := schedule.Next(now); !at.IsZero() && !at.After(end); at = schedule.Next(at) {
				got = append(got, at.UTC())
			}
			if c.want == nil { // every hour
				if len(got) != 36 {
					t.Errorf("%d times in 36 hours", len(got))
				}
				return
			}
			if len(got) != len(c.want) {
				t.Fatalf("due at %v, want %v", got, c.want)
			}
			for i, want := range c.want {
				if got[i].Format("2006-01-02T15:04") != want {
					t.Errorf("due at %v, want %v", got, c.want)
				}
			}
		})
	}
}

// Times before the schedule existed do not count, and a window ends.
func TestConsult(t *testing.T) {
	// Noon is on a Monday.
	gate := func(changes ...func(*v1alpha1.LatencyGate)) *v1alpha1.LatencyGate {
		return makeGate(append([]func(*v1alpha1.LatencyGate){func(g *v1alpha1.LatencyGate) { g.Spec.Schedule = "0 3 * * *" }}, changes...)...)
	}
	known := func(since time.Duration) func(*v1alpha1.LatencyGate) {
		return func(g *v1alpha1.LatencyGate) {
			g.Status.Schedule = &v1alpha1.ScheduleStatus{Schedule: "0 3 * * *", StartTime: *at(since)}
		}
	}
	window := func(d time.Duration) func(*v1alpha1.LatencyGate) {
		return func(g *v1alpha1.LatencyGate) { g.Spec.ScheduleWindow.Duration = d }
	}
	for name, c := range map[string]struct {
		gate          *v1alpha1.LatencyGate
		fired, before time.Time
		closed        bool
		next          time.Duration
		since         time.Duration
	}{
		"a new schedule":               {gate(), time.Time{}, time.Time{}, false, 15 * time.Hour, 0},
		"one that exists since Sunday": {gate(known(30 * time.Hour)), ago(9 * time.Hour), time.Time{}, false, 15 * time.Hour, 30 * time.Hour},
		"one that has long existed":    {gate(known(99 * time.Hour)), ago(9 * time.Hour), ago(33 * time.Hour), false, 15 * time.Hour, 99 * time.Hour},
		"another schedule": {gate(known(99*time.Hour), func(g *v1alpha1.LatencyGate) { g.Spec.Schedule = "0 4 * * *" }),
			time.Time{}, time.Time{}, false, 16 * time.Hour, 0},
		"another time zone": {gate(known(99*time.Hour), func(g *v1alpha1.LatencyGate) { g.Spec.TimeZone = "Europe/Zurich" }),
			time.Time{}, time.Time{}, false, 13 * time.Hour, 0},
		"a clock that was set back": {gate(known(-time.Hour)), time.Time{}, time.Time{}, false, 15 * time.Hour, 0},
		"a window that is open":     {gate(known(99*time.Hour), window(10*time.Hour)), ago(9 * time.Hour), ago(33 * time.Hour), false, time.Hour, 99 * time.Hour},
		"a window that has ended":   {gate(known(99*time.Hour), window(9*time.Hour)), ago(9 * time.Hour), ago(33 * time.Hour), true, 15 * time.Hour, 99 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := Consult(c.gate, noon)
			if s.Invalid != "" || !s.Fired.Equal(c.fired) || !s.Before.Equal(c.before) || s.Closed != c.closed || s.Next != c.next {
				t.Errorf("%q: fired %s and %s, closed %v, again in %s", s.Invalid, s.Fired, s.Before, s.Closed, s.Next)
			}
			if got := s.Status; got == nil || !got.StartTime.Time.Equal(ago(c.since)) || got.Schedule != c.gate.Spec.Schedule || got.TimeZone != c.gate.Spec.TimeZone {
				t.Errorf("the schedule is %+v", got)
			}
		})
	}
	suspended := gate(known(99*time.Hour), func(g *v1alpha1.LatencyGate) { g.Spec.Suspend = true })
	s := Consult(suspended, noon)
	if !s.Fired.IsZero() || s.Status != nil {
		t.Errorf("a suspended gate has fired at %s: %+v", s.Fired, s.Status)
	}
	suspended.Spec.Suspend, suspended.Status.Schedule = false, s.Status
	if s = Consult(suspended, noon); !s.Fired.IsZero() {
		t.Errorf("a gate that was resumed catches up: %s", s.Fired)
	}
}
