//go:build !amd64 && !arm64

package agent

// ticks is 0: on this architecture, no tool measures by a counter of the CPU.
func ticks() int64 { return 0 }
