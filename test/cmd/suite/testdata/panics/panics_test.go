package panics

import "testing"

func TestPanics(*testing.T) { panic("in a test") }
func TestAfter(*testing.T)  {}
