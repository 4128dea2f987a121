package agent

import (
	"runtime"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// The clocks of a machine agree, except that the wall clock may be set.
func TestReadClocks(t *testing.T) {
	before := readClocks()
	time.Sleep(50 * time.Millisecond)
	got := readClocks().since(before)
	if got.Raw < 50*time.Millisecond-time.Millisecond || got.Wall == 0 || (got.Ticks > 0) != (runtime.GOARCH == "amd64") {
		t.Errorf("got %+v", got)
	}
	if err := got.CheckSteady("test", got.Monotonic); err != nil {
		t.Error(err)
	}
}

func TestUnrecordedMessagesAreInTheDocument(t *testing.T) {
	_, client := exchange(t, fakeTool{}, fakeTool{unrecorded: 7})
	h := document(t, client).Cells[0].Histogram
	if h.Unrecorded != 7 || h.Count != samples {
		t.Errorf("%d unrecorded messages and %d samples", h.Unrecorded, h.Count)
	}
	d, err := resulttest.Merge(h, h)
	if err != nil || d.Unrecorded != 14 {
		t.Errorf("%d unrecorded messages of two rounds, %v", d.Unrecorded, err)
	}
}
