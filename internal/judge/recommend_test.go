package judge

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tailgate-dev/tailgate/internal/sessions"
)

// TestRecommend judges other unchanged boots with the recommended tolerances: at least 93 % must pass, two standard errors less than 95 %. With more
// rounds where the first look does not decide, smaller tolerances are enough than with one look.
func TestRecommend(t *testing.T) {
	for _, c := range []struct {
		values, boots, differences int
		sd, most                   float64
	}{{1, 1, 40, 0.02, 0.11}, {1, 5, 40, 0.02, 0.07}, {4, 1, 40, 0.01, 0.085}, {4, 5, 200, 0.02, 0.09}} {
		one := sessions.Calibration{Rounds: 0.02, Sessions: math.Hypot(c.sd, 0.02*math.Sqrt(0.215)), Differences: c.differences}
		values := slices.Repeat([]sessions.Calibration{one}, c.values)
		found := Recommend(values, c.boots)
		if got := passes(rand.New(rand.NewPCG(2, 2)), values, c.boots, found); got < 0.92 {
			t.Errorf("%+v: %.1f %% of boots pass with a tolerance of %.1f %%", c, 100*got, 100*found[0])
		}
		if found[0] > c.most {
			t.Errorf("%+v: a tolerance of %.1f %%, and %.1f %% is enough with two looks", c, 100*found[0], 100*c.most)
		}
		t.Logf("%+v: %.1f %%; by normal theory %.1f %%", c, 100*found[0], 100*one.Tolerance(c.boots))
	}
}
