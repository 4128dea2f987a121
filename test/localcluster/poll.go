package localcluster

import (
	"context"
	"time"
)

// pollInterval is short because most conditions are met well within a second.
const pollInterval = 100 * time.Millisecond

// poll calls done until it returns true or an error, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollInterval):
		}
	}
}
