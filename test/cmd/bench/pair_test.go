package main

import (
	"fmt"
	"testing"
)

// TestListening checks that only a socket that waits for clients counts as a ready server.
func TestListening(t *testing.T) {
	if got := fmt.Sprintf("%04X", 23456); port != "23456" || portHex != got {
		t.Fatalf("port %s is %s in /proc/net, not %s", port, got, portHex)
	}
	for name, c := range map[string]struct {
		line string
		want bool
	}{
		"TCP, listening":          {"   0: 024D1F0A:5BA0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0", true},
		"TCP, of an ended client": {"   1: 024D1F0A:5BA0 014D1F0A:9C40 06 00000000:00000000 03:00001763 00000000     0        0 0 3 0", false},
		"UDP":                     {" 1234: 024D1F0A:5BA0 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 0", true},
		"another port":            {"   0: 024D1F0A:5BA1 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0", false},
		"a client of that port":   {"   0: 024D1F0A:9C40 014D1F0A:5BA0 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0", false},
	} {
		if got := listening.MatchString("  sl  local_address rem_address   st\n" + c.line + "\n"); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
