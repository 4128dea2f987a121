package agent

// ticks reads the architectural counter, as the tools do.
func ticks() int64
