//go:build amd64 || arm64

package agent

// additions makes n or more, one a cycle: of registers, as some CPUs join those of constants.
func additions(n int64)

// ticks reads the time stamp counter or, on arm64, the architectural counter, as the tools do.
func ticks() int64
