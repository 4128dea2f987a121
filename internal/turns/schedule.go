package turns

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/robfig/cron/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/queue"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const maxSkew = time.Minute // of a time in the future; beyond, the node is measured again

// Schedule is when a gate's schedule was due, and is due next.
type Schedule struct {
	Status  *v1alpha1.ScheduleStatus // since when it counts; nil if there is none that does
	Invalid string                   // the error in the schedule; empty if there is none
	// Fired and Before are when it was last due, and due before that; zero if not since the gate
	// has it. Closed: the window of Fired has ended.
	Fired, Before time.Time
	Closed        bool
	Next          time.Duration // until it is next due, or its window ends; zero for never
}

// Consult returns when a gate's schedule was last due, if its window is open, and what is next.
func Consult(g *v1alpha1.LatencyGate, now time.Time) Schedule {
	schedule, zone, err := scheduleOf(g.Spec)
	var s Schedule
	if err == nil && schedule != nil {
		next := schedule.Next(now.In(zone))
		if next.IsZero() {
			err = fmt.Errorf("spec.schedule: %q never occurs", g.Spec.Schedule)
		}
		s.Next = next.Sub(now)
	}
	if err != nil {
		s.Invalid, s.Next = err.Error(), 0
	}
	if err != nil || schedule == nil || g.Spec.Suspend {
		return s
	}
	s.Status = since(g, now)
	begin := s.Status.StartTime.Truncate(time.Second)
	fired := lastFired(schedule, now.In(zone))
	if fired.Before(begin) {
		return s
	}
	s.Fired = fired
	if before := lastFired(schedule, fired.Add(-time.Second)); !before.Before(begin) {
		s.Before = before
	}
	if window := g.Spec.ScheduleWindow.Duration; window > 0 {
		left := fired.Add(window).Sub(now)
		s.Closed = left <= 0
		s.Next = queue.Soonest(s.Next, max(0, left))
	}
	return s
}

func (s Schedule) missed() time.Time {
	if s.Closed {
		return s.Fired
	}
	return s.Before
}

// phase is whether turns may begin: not while paused, one at a time to try for a result again.
type phase int

const (
	paused phase = iota
	trying
	running
)

func (s Schedule) phase() phase {
	switch {
	case s.Fired.IsZero() || s.Closed || s.Paused():
		return paused
	case s.Status != nil && s.Status.Fruitless >= v1alpha1.MaxFruitless:
		return trying
	}
	return running
}

// Paused reports whether turns without a result let the schedule wait for its next time.
func (s Schedule) Paused() bool {
	return s.Status != nil && s.Status.Fruitless >= v1alpha1.MaxFruitless && !s.Fired.After(s.Status.FruitlessTime.Time)
}

// count notes how measurements ended since the last known one, but not in the future.
func (s *Schedule) count(all []*v1alpha1.LatencyVerification, now time.Time) {
	if s.Status == nil {
		return
	}
	type end struct {
		at     time.Time
		result bool
	}
	var ends []end
	known := ptr.Deref(s.Status.FruitlessTime, metav1.MicroTime{}).Time
	for _, v := range all {
		// What failed may be the node's doing: it is held, unless all nodes fail.
		failed := v.Status.State == v1alpha1.VerificationInconclusive && v.Status.Verified().Reason == v1alpha1.ReasonBenchmarkFailed
		if last := v.Status.LastMeasurementTime; last != nil && (failed && last.After(known) || !failed && !last.Time.Before(known.Truncate(time.Second))) {
			ends = append(ends, end{last.Time, !failed})
		}
		if last := v.Status.StepFailure; last != nil && v.Status.State.Passed() && last.FailureTime != nil && last.FailureTime.After(known) {
			ends = append(ends, end{last.FailureTime.Time, false})
		}
	}
	slices.SortStableFunc(ends, func(a, b end) int { return a.at.Compare(b.at) })
	s.Status = s.Status.DeepCopy()
	for _, e := range ends {
		if e.at.After(now) {
			break
		}
		if e.result {
			s.Status.Fruitless = 0
		} else {
			s.Status.Fruitless++
			s.Status.FruitlessTime = new(metav1.NewMicroTime(e.at))
		}
	}
}

// since returns from when the schedule counts: the operator first saw it, or spec.suspend ended.
func since(g *v1alpha1.LatencyGate, now time.Time) *v1alpha1.ScheduleStatus {
	before := g.Status.Schedule
	if before != nil && before.Schedule == g.Spec.Schedule && before.TimeZone == g.Spec.TimeZone && !before.StartTime.After(now.Add(maxSkew)) {
		return before
	}
	return &v1alpha1.ScheduleStatus{Schedule: g.Spec.Schedule, TimeZone: g.Spec.TimeZone, StartTime: metav1.Time{Time: now}}
}

func scheduleOf(spec v1alpha1.LatencyGateSpec) (cron.Schedule, *time.Location, error) {
	if spec.Schedule == "" {
		return nil, nil, nil
	}
	zone, err := time.LoadLocation(spec.TimeZone)
	if err != nil || spec.TimeZone == "Local" {
		return nil, nil, fmt.Errorf("spec.timeZone: there is no time zone %q; use a name such as Europe/Zurich", spec.TimeZone)
	}
	parsed, err := cron.ParseStandard(spec.Schedule)
	fields, ok := parsed.(*cron.SpecSchedule)
	if err == nil && !ok {
		err = errors.New("give times of day")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("spec.schedule: %q cannot be understood: %w", spec.Schedule, err)
	}
	return wallClock{fields, zone}, zone, nil
}

// wallClock is a schedule by a time zone's clock. A time that it skips in spring is due at the
// skip, one that it shows twice in autumn the first time, except in a schedule for every hour.
type wallClock struct {
	fields *cron.SpecSchedule
	zone   *time.Location
}

const everyHour = 1 << 63 // the bit with which a SpecSchedule marks a field that is *

// Next returns the first time after t at which it is due; zero if there is none in five years.
func (w wallClock) Next(t time.Time) time.Time {
	t = t.In(w.zone)
	if w.fields.Hour&everyHour != 0 {
		return w.fields.Next(t)
	}
	for wall := wallOf(t); ; {
		if wall = w.fields.Next(wall); wall.IsZero() {
			return wall
		}
		if due := w.instant(wall); due.After(t) {
			return due
		}
	}
}

// wallOf returns what the clock shows, as a time in UTC, which has neither summer nor winter.
func wallOf(t time.Time) time.Time {
	year, month, day := t.Date()
	return time.Date(year, month, day, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// instant returns the first time at which the clock shows wall, or else skips it.
func (w wallClock) instant(wall time.Time) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), w.zone)
	begin, end := t.ZoneBounds()
	switch shown := wallOf(t); {
	case shown.After(wall):
		return begin
	case shown.Before(wall):
		return end
	case begin.IsZero():
		return t
	}
	_, now := t.Zone()
	_, before := begin.Add(-time.Second).Zone()
	if first := t.Add(time.Duration(now-before) * time.Second); first.Before(begin) && wallOf(first).Equal(wall) {
		return first
	}
	return t
}

// lastFired returns the last time until now at which a schedule was due; zero if none in ten years.
func lastFired(schedule cron.Schedule, now time.Time) time.Time {
	const longest = 10 * 366 * 24 * time.Hour
	for window := time.Minute; window <= longest; window *= 2 {
		// The previous window, half as long, had none.
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

const MaxMessage = 1024

// Pauses are the pause after the first failure, which doubles with each, and the longest one.
type Pauses struct {
	first, longest time.Duration
	resets         bool // another reason counts from the start
}

var (
	// OfNode is for measurements and hold pods, and OfMark for what holds a node back.
	OfNode = Pauses{first: 10 * time.Second, longest: 10 * time.Minute}
	OfMark = Pauses{first: time.Second, longest: time.Minute, resets: true}
)

func (p Pauses) StepFailure(last *v1alpha1.StepFailure, reason, message string, now time.Time) *v1alpha1.StepFailure {
	next := &v1alpha1.StepFailure{}
	if last != nil && (!p.resets || last.Reason == reason) {
		next = last.DeepCopy()
	}
	rest := min(p.first<<min(next.Count, 10), p.longest)
	next.Count++
	next.Reason, next.Message = reason, text.Shorten(message, MaxMessage)
	next.FailureTime, next.RetryTime = new(metav1.NewMicroTime(now)), metav1.Time{Time: now.Add(rest)}
	return next
}

// Left returns the time until a retry; beyond the longest pause, a clock was set back: none.
func (p Pauses) Left(last *v1alpha1.StepFailure, now time.Time) time.Duration {
	if last == nil || last.RetryTime.Sub(now) > p.longest {
		return 0
	}
	return max(last.RetryTime.Sub(now), 0)
}
