package agent

// ticks reads the CPU's time stamp counter, as the tools do.
func ticks() int64
