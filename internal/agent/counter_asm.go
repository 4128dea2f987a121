//go:build amd64 || arm64

package agent

// additions does at least n additions of registers, each of which needs the sum of the one before: one a cycle, on every CPU. Additions
// of constants would not do, because some CPUs join them.
func additions(n int64)

// ticks reads the time stamp counter or, on arm64, the architectural counter, as the tools do.
func ticks() int64
