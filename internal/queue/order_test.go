package queue

import (
	"testing"
	"time"
)

func TestSoonest(t *testing.T) {
	for want, waits := range map[time.Duration][2]time.Duration{0: {0, 0}, 1: {1, 0}, 2: {0, 2}, 3: {3, 4}, 5: {6, 5}} {
		if got := Soonest(waits[0], waits[1]); got != want {
			t.Errorf("soonest of %v is %s, want %s", waits, got, want)
		}
	}
}
