package benchmark

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

const (
	// createTimeout bounds the creation of the objects of an endpoint, so that time is left to write the outcome. A webhook may
	// take 30 s.
	createTimeout = 45 * time.Second
	// longestPause is the longest pause between two attempts to create an object that the API server refuses.
	longestPause = 30 * time.Second
)

// refusal is why an object of an attempt cannot be created, as the outcome of the attempt.
type refusal struct {
	reason, message string
	// passing is true if a retry may succeed.
	passing bool
}

func (r *refusal) Error() string { return r.message }

func refusef(reason, format string, args ...any) error {
	return &refusal{reason: reason, message: fmt.Sprintf(format, args...)}
}

// refusedBy returns the refusal for an error of a create. A denial must not end the reconcile, whatever its code is:
// the attempt would keep its nodes, and the status would not show why.
func refusedBy(err error, reason, what, namespace string) error {
	return &refusal{reason: reason, passing: passing(err), message: fmt.Sprintf(
		"the API server refuses %s: %s; change the quota, policy, webhook or label of namespace %s that it names, or the benchmark",
		what, oneLine(err.Error()), namespace)}
}

// passing reports whether the API server may soon answer otherwise. An error without a status is a connection that failed or
// took too long.
func passing(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return true
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	default:
		return code >= http.StatusInternalServerError
	}
}

// refusedCreate returns the step of an attempt if the API server refused to create one of its objects, and whether it must wait or
// end: it waits before the next retry, and ends when the refusals have lasted for the start timeout of a pod.
func refusedCreate(w *world) (step, bool) {
	r := w.benchmark.Status.Active.Refused
	switch {
	case r == nil:
		return step{}, false
	case w.now.Sub(r.StartTime.Time) > w.settings.StartTimeout:
		return conclude(r.Reason, r.Message), true
	case w.now.Before(r.RetryTime.Time) && r.RetryTime.Sub(w.now) <= longestPause:
		return step{kind: stepWatch, reason: r.Reason, message: r.Message, again: r.RetryTime.Sub(w.now)}, true
	}
	return step{}, false
}

// refuse records a refusal that may pass. Each pause is as long as all previous pauses together, up to longestPause.
func (w *world) refuse(at *state, r *refusal) {
	active := w.benchmark.Status.Active
	since := metav1.NewMicroTime(w.now)
	if active.Refused != nil {
		since = active.Refused.StartTime
	}
	pause := min(max(w.now.Sub(since.Time), lookAgain), longestPause)
	active.Refused = &v1alpha1.Refusal{Reason: r.reason, Message: r.message, StartTime: since, RetryTime: metav1.NewMicroTime(w.now.Add(pause))}
	at.reason, at.message, at.again = r.reason, r.message, pause
}
