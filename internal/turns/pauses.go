package turns

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// MaxMessage is the maximum length of a message in a status.
const MaxMessage = 1024

// Pauses are the pause after the first failure, which doubles with each failure, and the longest one.
type Pauses struct {
	first, longest time.Duration
	// resets is true if another reason counts from the start.
	resets bool
}

var (
	// OfNode is for measurements and hold pods, and OfMark for what holds a node back.
	OfNode = Pauses{first: 10 * time.Second, longest: 10 * time.Minute}
	OfMark = Pauses{first: time.Second, longest: time.Minute, resets: true}
)

// Setback returns the setback after one more failure.
func (p Pauses) Setback(last *v1alpha1.Setback, reason, message string, now time.Time) *v1alpha1.Setback {
	next := &v1alpha1.Setback{}
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
func (p Pauses) Left(last *v1alpha1.Setback, now time.Time) time.Duration {
	if last == nil || last.RetryTime.Sub(now) > p.longest {
		return 0
	}
	return max(last.RetryTime.Sub(now), 0)
}
