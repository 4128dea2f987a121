package stats

import "math"

// Between is what is known of the difference between two sessions of a node, such as two boots, when a candidate is compared with
// several sessions. It widens the interval of the ratio: the rounds alone do not show how far another boot may lie.
type Between struct {
	// SD is the standard deviation between sessions of all nodes, of natural logarithms, from a number of Differences.
	SD          float64
	Differences int
	// Own are the earlier differences of the node itself: a node whose boots differ more than those of others is judged by its own.
	Own []float64
	// Step is the relative width of the ranges in which values are known.
	Step float64
	// Sessions is the number of sessions, and Share the share of the variance between sessions that their pooled rounds keep; 0 means
	// that there is no such variance, because all rounds are of one session.
	Sessions int
	Share    float64
}

const (
	// assumedShare is the assumed standard deviation in parts of the tolerance, which has the weight of assumedWeight differences.
	assumedShare, assumedWeight = 4, 6
	// efficiency is how many independent differences one difference of successive sessions counts for, in a median of their sizes.
	efficiency = 0.25
	// gateWeight is the weight of the gate's standard deviation against own differences, and mostOwn the largest that counts, in these.
	gateWeight, mostOwn = 3, 4
)

// Sigma returns the standard deviation between sessions for a rule with a tolerance, and its degrees of freedom.
func (b Between) Sigma(t Tolerance) (sigma, degrees float64) {
	assumed := float64(t) / whole / assumedShare
	sigma, degrees = assumed, assumedWeight
	if b.Differences >= 4 {
		degrees = assumedWeight + efficiency*float64(b.Differences)
		a := assumedWeight / degrees
		sigma = math.Sqrt(a*assumed*assumed + (1-a)*b.SD*b.SD)
	}
	sum := gateWeight * sigma * sigma
	for _, e := range b.Own {
		sum += math.Min(e*e, mostOwn*mostOwn*sigma*sigma)
	}
	return max(sigma, math.Sqrt(sum/float64(gateWeight+len(b.Own))), b.Step/math.Sqrt(12)), degrees
}

// Half returns the half width, of natural logarithms, that the difference between sessions adds, with an error on each side.
func (b Between) Half(t Tolerance, eachSide OneIn) float64 {
	sigma, degrees := b.Sigma(t)
	return QuantileT(eachSide, degrees) * sigma * math.Sqrt(b.Share)
}

// Widen returns bounds farther from the estimate by a factor, and with a half width added to each side, in quadrature: the two causes are
// independent. The factor and the half width are of natural logarithms.
func (b Bounds) Widen(factor, half float64) Bounds {
	if factor == 1 && half == 0 || b.Estimate == 0 || math.IsInf(b.Estimate, 0) || math.IsNaN(b.Estimate) {
		return b
	}
	away := func(bound float64) float64 { return math.Hypot(factor*math.Log(bound/b.Estimate), half) }
	b.Lower, b.Upper = b.Estimate/math.Exp(away(b.Lower)), b.Estimate*math.Exp(away(b.Upper))
	return b
}

// QuantileT returns the value that Student's t exceeds with a probability of one in n (Fisher's expansion). With 6 degrees of freedom
// or more, its error is below 0.001 at 1 in 40, and below 2 % at 1 in 10,000.
func QuantileT(exceeds OneIn, degrees float64) float64 {
	z := math.Sqrt2 * math.Erfinv(1-2/float64(exceeds))
	z2, v := z*z, degrees
	return z * (1 + (z2+1)/(4*v) + ((5*z2+16)*z2+3)/(96*v*v) + (((3*z2+19)*z2+17)*z2-15)/(384*v*v*v) +
		((((79*z2+776)*z2+1482)*z2-1920)*z2-945)/(92160*v*v*v*v))
}
