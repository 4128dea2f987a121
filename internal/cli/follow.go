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
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// follower calls look with one object, again whenever the object changes, and at least once in lookAgain, because other data that
// look reads may change independently. It needs the rights to get and to watch that object, and no others.
type follower struct {
	api client.WithWatch
	subject
	// look is called with the current object until it returns true, or an error that does not pass.
	look func(context.Context, client.Object) (enough bool, err error)
	// trouble is called once for each period in which requests fail.
	trouble func(error)

	// uid is the UID of the object, once it was read. looked is true once look has returned without error, watched once the
	// object was watched.
	uid             types.UID
	looked, watched bool
	// troubled is true from a failed request until look next returns without error.
	troubled bool
	// delay is the backoff before the next get.
	delay wait.Backoff
}

// firstDelay is the backoff of gets after the first get, and after a watch that worked for quietTime.
var firstDelay = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 20, Cap: 15 * time.Second}

const (
	// quietTime is how long a watch must work before the next get follows soon.
	quietTime = 30 * time.Second
	// lookAgain is the longest duration of a watch.
	lookAgain = time.Minute
)

// follow returns nil when look has returned true, or the error that prevents this: look's own error, the deletion of the object,
// a missing right, or the end of the context. It tolerates restarts of the API server.
func (f *follower) follow(ctx context.Context) error {
	f.delay = firstDelay
	return wait.DelayFunc(f.delay.Step).Until(ctx, true, true, f.once)
}

// once gets the object and watches it until the watch ends, which it does after lookAgain at the latest.
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
	since := time.Now()
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
	if time.Since(since) > quietTime {
		f.delay = firstDelay
	}
	return false, nil
}

// see calls look with the object, unless it is another object of the same name. If over is true, once must return.
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

// passing returns nil for an error that may pass. A refusal by the API server is permanent, unless the API server has answered
// the same request before: an API server that has just started does not know all kinds and rights.
func (f *follower) passing(ctx context.Context, err error, before bool) error {
	var refused apierrors.APIStatus
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		// The API server keeps only the latest changes. The next get returns the current object.
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
