package cli

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// interrupted is an API server that is available from the fifth to the ninth minute. The object changes in the seventh minute.
type interrupted struct {
	client.Client
	start time.Time
}

func (i *interrupted) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	at := time.Since(i.start)
	if at < 5*time.Minute || at >= 9*time.Minute {
		return apierrors.NewServiceUnavailable("restarting")
	}
	o.SetUID("uid")
	o.SetResourceVersion("1")
	if at >= 6*time.Minute+30*time.Second {
		o.SetResourceVersion("2")
	}
	return nil
}

// The follower looks when the object changes and once a minute, and reports each outage once.
func TestFollowerLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		api := &interrupted{start: time.Now()}
		var looks []time.Duration
		troubles := 0
		f := follower{
			api: api, subject: subject{benchmarks, types.NamespacedName{Namespace: "perf", Name: "sweep"}}, trouble: func(error) { troubles++ },
			look: func(context.Context, client.Object) (bool, error) {
				looks = append(looks, time.Since(api.start))
				return false, nil
			},
		}
		if err := f.follow(ctx); ctx.Err() == nil {
			t.Fatalf("it ended before the context: %v", err)
		}
		want := []time.Duration{
			5 * time.Minute, 6 * time.Minute, 6*time.Minute + 30*time.Second, 7*time.Minute + 30*time.Second, 8*time.Minute + 30*time.Second,
		}
		if len(looks) != len(want) {
			t.Fatalf("it looked at %s, want %s", looks, want)
		}
		for i, at := range looks {
			if late := at - want[i]; late < 0 || late > 10*time.Second {
				t.Errorf("it looked at %s, want %s", looks, want)
				break
			}
		}
		if troubles != 2 {
			t.Errorf("it reported %d outages, want 2", troubles)
		}
	})
}
