package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// follower gets one object again and again. It calls look whenever the object has changed, and at least once in lookAgain, because
// other data that look reads may change independently. It needs the right to get that object, and no others.
type follower struct {
	api client.Client
	subject
	// look is called with the current object until it returns true, or an error that does not pass.
	look func(context.Context, client.Object) (enough bool, err error)
	each func()
	// trouble is called once for each period in which requests fail.
	trouble func(error)

	// uid is the UID of the object, once it was read.
	uid types.UID
	// version is the resource version that look last returned for without an error, and looked is when.
	version string
	looked  time.Time
	// troubled is true from a failed request until look next returns without error.
	troubled bool
}

const (
	// getAgain is the interval between two gets of the object.
	getAgain = time.Second
	// lookAgain is the longest interval between two calls of look.
	lookAgain = time.Minute
)

// follow returns nil when look has returned true, or the error that prevents this: look's own error, the deletion of the object,
// a missing right, or the end of the context. It tolerates restarts of the API server.
func (f *follower) follow(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, getAgain, true, f.once)
}

// once gets the object, and calls look if it is time for that.
func (f *follower) once(ctx context.Context) (enough bool, err error) {
	if f.each != nil {
		f.each()
	}
	o := f.kind.object()
	err = read(ctx, f.api, f.subject, o)
	switch known := f.uid != ""; {
	case known && (isAbsent(err) || err == nil && o.GetUID() != f.uid):
		return false, fmt.Errorf("%s was deleted meanwhile", f.subject)
	case err != nil:
		return false, f.passing(ctx, err, known)
	}
	f.uid = o.GetUID()
	if o.GetResourceVersion() == f.version && time.Since(f.looked) < lookAgain {
		return false, nil
	}
	if enough, err = f.look(ctx, o); err != nil {
		return false, f.passing(ctx, err, f.version != "")
	}
	f.version, f.looked, f.troubled = o.GetResourceVersion(), time.Now(), false
	return enough, nil
}

// passing returns nil for an error that may pass. A refusal by the API server is permanent, unless the API server has answered
// the same request before: an API server that has just started does not know all kinds and rights.
func (f *follower) passing(ctx context.Context, err error, before bool) error {
	var refused apierrors.APIStatus
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refused) && !before:
		switch code := refused.Status().Code; {
		case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code == http.StatusGone,
			code >= http.StatusInternalServerError:
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
