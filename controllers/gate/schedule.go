package gate

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// maxSkew is how far in the future a time in a status may be before it proves that a clock jumped. Such a time is
// ignored: a node that was measured at an unknown time is measured again.
const maxSkew = time.Minute

// scheduleOf returns a gate's schedule and its time zone; the schedule is nil if the gate has none.
func scheduleOf(spec v1alpha1.LatencyGateSpec) (cron.Schedule, *time.Location, error) {
	if spec.Schedule == "" {
		return nil, nil, nil
	}
	zone, err := time.LoadLocation(spec.TimeZone)
	if err != nil || spec.TimeZone == "Local" {
		return nil, nil, fmt.Errorf("spec.timeZone: there is no time zone %q; use a name such as Europe/Zurich", spec.TimeZone)
	}
	schedule, err := cron.ParseStandard(spec.Schedule)
	if err != nil {
		return nil, nil, fmt.Errorf("spec.schedule: %q cannot be understood: %w", spec.Schedule, err)
	}
	return schedule, zone, nil
}

// lastFired returns the last time, not after now, at which a schedule was due; zero if there was none in ten years.
func lastFired(schedule cron.Schedule, now time.Time) time.Time {
	const longest = 10 * 366 * 24 * time.Hour
	for window := time.Minute; window <= longest; window *= 2 {
		// Find the last time within the window; the previous window, half as long, had none.
		last := schedule.Next(now.Add(-window))
		if last.IsZero() || last.After(now) {
			continue
		}
		for next := schedule.Next(last); !next.IsZero() && !next.After(now); next = schedule.Next(last) {
			last = next
		}
		return last
	}
	return time.Time{}
}
