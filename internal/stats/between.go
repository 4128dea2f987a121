package stats

import "math"

// Between is how sessions of a node, such as boots, differ: rounds do not show another boot.
type Between struct {
	SD          float64 // between sessions of all nodes, in logarithms, from Differences
	Differences int
	Own         []float64 // its earlier differences: one that differs more is judged by them
	Step        float64   // the relative width of the ranges in which values are known
	// Sessions is their number, Share what pooled rounds keep of their variance; 0: one session.
	Sessions int
	Share    float64
	Doubt    bool // too little is known of how sessions differ for a promise
}

const (
	// assumedShare is the assumed SD in parts of the tolerance, with assumedWeight.
	assumedShare, assumedWeight = 4, 6
	efficiency                  = 0.25 // independent differences that a successive one is worth
	// gateWeight weighs the gate's SD against own differences, each of at most mostOwn SDs.
	gateWeight, mostOwn = 1, 8
	// inDoubt is the least SD of a Fail in doubt, in parts of the tolerance as a logarithm: then at
	// most 0.5 % of unchanged sessions fail, if sessions differ by no more than the tolerance.
	inDoubt = 0.82
)

// Sigma returns the SD between sessions for a rule's tolerance, and its degrees of freedom.
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

// Half returns the half width in logarithms that sessions add, with an error on each side.
func (b Between) Half(t Tolerance, eachSide OneIn) float64 {
	sigma, degrees := b.Sigma(t)
	return QuantileT(eachSide, degrees) * sigma * math.Sqrt(b.Share)
}

// HalfToFail returns the half width beyond which a result fails: in doubt, as for noisy sessions.
func (b Between) HalfToFail(t Tolerance, eachSide OneIn) float64 {
	sigma, degrees := b.Sigma(t)
	if b.Doubt {
		sigma = max(sigma, inDoubt*math.Log(t.Above().Float64()))
	}
	return QuantileT(eachSide, degrees) * sigma * math.Sqrt(b.Share)
}

// Widen returns bounds widened by a factor, and by a half width in quadrature, because the causes
// are independent. Both are of natural logarithms.
func (b Bounds) Widen(factor, half float64) Bounds {
	if factor == 1 && half == 0 || b.Estimate == 0 || math.IsInf(b.Estimate, 0) || math.IsNaN(b.Estimate) {
		return b
	}
	away := func(bound float64) float64 { return math.Hypot(factor*math.Log(bound/b.Estimate), half) }
	b.Lower, b.Upper = b.Estimate/math.Exp(away(b.Lower)), b.Estimate*math.Exp(away(b.Upper))
	return b
}

// QuantileT returns what Student's t exceeds with a probability of one in n (Fisher's expansion).
// From 6 degrees of freedom on, it errs below 0.001 at 1 in 40, below 2 % at 1 in 10,000.
func QuantileT(exceeds OneIn, degrees float64) float64 {
	z := math.Sqrt2 * math.Erfinv(1-2/float64(exceeds))
	z2, v := z*z, degrees
	return z * (1 + (z2+1)/(4*v) + ((5*z2+16)*z2+3)/(96*v*v) + (((3*z2+19)*z2+17)*z2-15)/(384*v*v*v) +
		((((79*z2+776)*z2+1482)*z2-1920)*z2-945)/(92160*v*v*v*v))
}
