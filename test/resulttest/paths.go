// Package resulttest makes results for the tests of other packages.
package resulttest

import (
	"github.com/tailgate-dev/tailgate/internal/result"
)

// Library is the path of Onload's library in the results of this package.
const Library = "/opt/onload/usr/lib64/libonload.so"

// ThroughKernel returns the paths that an agent records for cells whose messages all go through the kernel.
func ThroughKernel(cells []result.Cell) []result.Path { return paths(cells, 1) }

// PastKernel returns the paths that an agent records for cells whose messages Onload carries.
func PastKernel(cells []result.Cell) []result.Path {
	all := paths(cells, 0)
	for i := range all {
		all[i].Begun, all[i].Banner = &result.Look{Library: Library, Sockets: 1, Onload: 1}, "9.0.1"
	}
	return all
}

func paths(cells []result.Cell, share int64) []result.Path {
	var all []result.Path
	for _, c := range cells {
		n, bytes := c.Histogram.Count+c.Histogram.OverRange, int64(0)
		if c.Own != nil {
			n = c.Own.Count
		}
		if c.Bandwidth != nil {
			n, bytes = max(n, c.Bandwidth.Sent), int64(c.Bandwidth.BitsPerSecond/8*c.Duration.Seconds())
			n = max(n, bytes/int64(max(c.MessageSize, 1)))
		}
		bytes = max(bytes, n*int64(c.MessageSize)) + 52*n
		p := result.Path{Cell: c.Name, Grown: map[string]int64{result.PathNICIn: n, result.PathNICOut: n}}
		for _, name := range []string{result.PathUDPIn, result.PathUDPOut, result.PathTCPIn, result.PathTCPOut} {
			p.Grown[name] = n * share
		}
		p.Grown[result.PathDelivered], p.Grown[result.PathDeliveredOther] = 2*n*share, n*share
		p.Grown[result.PathIPIn], p.Grown[result.PathIPOut] = bytes*share, bytes*share
		all = append(all, p)
	}
	return all
}
