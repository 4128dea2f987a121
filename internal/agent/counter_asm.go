//go:build amd64 || arm64

package agent

// additions makes n dependent ones or more, of registers: some CPUs join additions of constants.
func additions(n int64)

// ticks reads the time stamp counter or, on arm64, the architectural counter, as the tools do.
func ticks() int64
