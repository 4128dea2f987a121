package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// follower looks at one object, again whenever it changes, and at least once in lookAgain, because what look reads besides
// may change alone. It needs the rights to get and to watch that object, and no other.
type follower struct {
	api client.WithWatch
	subject
	// look is called with the object as it is, until it has seen enough or returns an error.
	look func(context.Context, client.Object) (enough bool, err error)
	// trouble is reported once of each time that the API server does not answer, or not as it should.
	trouble func(error)

	// uid is that of the object, once it was seen; looked says that look returned no error before; watched that the object
	// was watched.
	uid             types.UID
	looked, watched bool
	// troubled is true from a failed request to the next that does not fail.
	troubled bool
}

// The waits between requests that fail, and what ends a row of failures.
const (
	firstWait   = 200 * time.Millisecond
	longestWait = 15 * time.Second
	quietTime   = time.Minute
	// lookAgain bounds a watch.
	lookAgain = time.Minute
)

// follow returns nil when look has seen enough, or why it never will: look's own error, that the object is gone, that
// the user may not see it, or that the context ended. It outlives restarts of the API server.
func (f *follower) follow(ctx context.Context) error {
	again := wait.Backoff{Duration: firstWait, Factor: 2, Jitter: 0.1, Steps: 20, Cap: longestWait}.DelayWithReset(clock.RealClock{}, quietTime)
	return again.Until(ctx, true, true, f.once)
}

// once gets the object and watches it until the watch ends, as each does from time to time.
func (f *follower) once(ctx context.Context) (enough bool, err error) {
	o := f.kind.object()
	if err := read(ctx, f.api, f.subject, o); err != nil {
		if isAbsent(err) && f.uid != "" {
			return false, f.gone()
		}
		return false, f.passing(ctx, err, f.uid != "" && !isAbsent(err))
	}
	if over, enough, err := f.see(ctx, o); over {
		return enough, err
	}
	changes, err := f.api.Watch(ctx, f.kind.list(), client.InNamespace(f.key.Namespace), client.MatchingFields{"metadata.name": f.key.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: o.GetResourceVersion(), TimeoutSeconds: new(int64(lookAgain.Seconds()))}})
	if err != nil {
		return false, f.passing(ctx, fmt.Errorf("watching %s: %w", f.subject, err), f.watched)
	}
	defer changes.Stop()
	f.watched = true
	for change := range changes.ResultChan() {
		switch change.Type {
		case watch.Added, watch.Modified:
			if over, enough, err := f.see(ctx, change.Object.(client.Object)); over {
				return enough, err
			}
		case watch.Deleted:
			return false, f.gone()
		case watch.Error:
			return false, f.passing(ctx, fmt.Errorf("watching %s: %w", f.subject, apierrors.FromObject(change.Object)), true)
		}
	}
	return false, nil
}

// see has an object looked at, unless it is another one of the same name. It is over when once is.
func (f *follower) see(ctx context.Context, o client.Object) (over, enough bool, err error) {
	if f.uid != "" && o.GetUID() != f.uid {
		return true, false, f.gone()
	}
	f.uid = o.GetUID()
	if enough, err = f.look(ctx, o); err != nil {
		return true, false, f.passing(ctx, err, f.looked)
	}
	f.looked, f.troubled = true, false
	return enough, enough, nil
}

func (f *follower) gone() error { return fmt.Errorf("%s was deleted meanwhile", f.subject) }

// passing is nil for an error that may pass. An API server that refuses a request does so for good, unless it answered
// the same request before: one that has just started knows neither all kinds nor all rights.
func (f *follower) passing(ctx context.Context, err error, before bool) error {
	var refused apierrors.APIStatus
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		// The API server keeps the last changes only. What the object is now tells all.
		return nil
	case errors.As(err, &refused) && !before:
		switch code := refused.Status().Code; {
		case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= http.StatusInternalServerError:
		default:
			return err
		}
	}
	if !f.troubled {
		f.troubled = true
		f.trouble(err)
	}
	return nil
}
