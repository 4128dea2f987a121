package build

import "testing"

func TestBuild(*testing.T) { undefined() }
