package cli

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// interrupted is an API server that is available from the fifth to the seventh minute.
type interrupted struct {
	client.WithWatch
	start time.Time
	// asked are the times of the gets since the start.
	asked []time.Duration
}

func (i *interrupted) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	at := time.Since(i.start)
	i.asked = append(i.asked, at)
	if at < 5*time.Minute || at >= 7*time.Minute {
		return apierrors.NewServiceUnavailable("restarting")
	}
	return nil
}

func (i *interrupted) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	w := watch.NewFake()
	time.AfterFunc(lookAgain, w.Stop)
	return w, nil
}

// The delay does not become shorter during an outage, only after a watch has worked.
func TestFollowerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		api := &interrupted{start: time.Now()}
		f := follower{
			api: api, subject: subject{benchmarks, types.NamespacedName{Namespace: "perf", Name: "sweep"}}, trouble: func(error) {},
			look: func(context.Context, client.Object) (bool, error) { return false, nil },
		}
		if err := f.follow(ctx); ctx.Err() == nil {
			t.Fatalf("it ended before the context: %v", err)
		}
		watches := 0
		for i, at := range api.asked[:len(api.asked)-1] {
			delay := api.asked[i+1] - at
			switch {
			case 5*time.Minute <= at && at < 7*time.Minute:
				watches++
				if delay -= lookAgain; delay > time.Second {
					t.Errorf("%s after a watch that worked", delay)
				}
			case time.Minute <= at && at < 5*time.Minute, at >= 9*time.Minute:
				if delay < 15*time.Second {
					t.Errorf("%s in an outage, at %s", delay, at)
				}
			}
		}
		if watches != 2 {
			t.Errorf("%d watches worked, want 2", watches)
		}
	})
}
