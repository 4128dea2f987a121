//go:build !amd64

package agent

// ticks is 0: the sfnt tools, whose calibration is compared with it, are not in the image of this architecture.
func ticks() int64 { return 0 }
