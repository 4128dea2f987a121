package judge

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tailgate-dev/tailgate/internal/sessions"
)

// TestRecommend judges other unchanged boots with the recommended tolerances: at least 93 % must pass, two standard errors less than 95 %.
func TestRecommend(t *testing.T) {
	for _, c := range []struct {
		values, boots, differences int
		sd                         float64
	}{{1, 1, 40, 0.02}, {1, 5, 40, 0.02}, {4, 1, 40, 0.01}, {4, 5, 200, 0.02}} {
		one := sessions.Calibration{Rounds: 0.02, Sessions: math.Hypot(c.sd, 0.02*math.Sqrt(0.215)), Differences: c.differences}
		values := slices.Repeat([]sessions.Calibration{one}, c.values)
		found := Recommend(values, c.boots)
		if got := passes(rand.New(rand.NewPCG(2, 2)), values, c.boots, found); got < 0.92 {
			t.Errorf("%+v: %.1f %% of boots pass with a tolerance of %.1f %%", c, 100*got, 100*found[0])
		}
		t.Logf("%+v: %.1f %%; by normal theory %.1f %%", c, 100*found[0], 100*one.Tolerance(c.boots))
	}
}
