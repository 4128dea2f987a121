package stats

import (
	"math"
	"testing"
)

// Numbers beside a histogram that its buckets contradict are refused; numbers on the edge of what the buckets allow are not.
func TestPlausible(t *testing.T) {
	buckets := []Bucket{{Low: 10, High: 19, Count: 2}, {Low: 30, High: 39, Count: 1}}
	type numbers struct {
		smallest, largest, lowest, highest, sum int64
		squares                                 float64
	}
	fine := numbers{10, 39, 1, 1000, 60, 1500}
	for name, c := range map[string]struct {
		change func(*numbers)
		fine   bool
	}{
		"as it should be":                      {func(*numbers) {}, true},
		"the smallest is the bucket's last":    {func(n *numbers) { n.smallest = 19 }, true},
		"the smallest is below the bucket":     {func(n *numbers) { n.smallest = 9 }, false},
		"the smallest is above the bucket":     {func(n *numbers) { n.smallest = 20 }, false},
		"the smallest is in no bucket":         {func(n *numbers) { n.smallest, n.lowest = 9, 10 }, true},
		"the smallest may just be in a bucket": {func(n *numbers) { n.smallest, n.lowest = 9, 9 }, false},
		"the largest is the bucket's first":    {func(n *numbers) { n.largest = 30 }, true},
		"the largest is below the bucket":      {func(n *numbers) { n.largest = 29 }, false},
		"the largest is above the bucket":      {func(n *numbers) { n.largest = 40 }, false},
		"the largest is in no bucket":          {func(n *numbers) { n.largest, n.highest = 40, 39 }, true},
		"the largest may just be in a bucket":  {func(n *numbers) { n.largest, n.highest = 40, 40 }, false},
		"the least sum":                        {func(n *numbers) { n.sum = 50 }, true},
		"less than the least sum":              {func(n *numbers) { n.sum = 49 }, false},
		"the largest sum":                      {func(n *numbers) { n.sum = 77 }, true},
		"more than the largest sum":            {func(n *numbers) { n.sum = 78 }, false},
		"a negative sum":                       {func(n *numbers) { n.sum = -1 }, false},
		"no squares":                           {func(n *numbers) { n.squares = 0 }, true},
		"negative squares":                     {func(n *numbers) { n.squares = -1 }, false},
		"squares that are no number":           {func(n *numbers) { n.squares = math.NaN() }, false},
		"squares that are infinite":            {func(n *numbers) { n.squares = math.Inf(1) }, false},
	} {
		n := fine
		c.change(&n)
		if err := Plausible(buckets, n.smallest, n.largest, n.lowest, n.highest, n.sum, n.squares); (err == nil) != c.fine {
			t.Errorf("%s: %v", name, err)
		}
	}
}
