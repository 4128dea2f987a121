package result

import (
	"strings"
	"testing"
)

func TestFrequency(t *testing.T) {
	document := func(run, hypervisor string, paths ...Path) Document {
		return Document{Run: run, Role: "client", Evidence: Evidence{Facts: map[string]string{"cpu.hypervisor": hypervisor}, Paths: paths}}
	}
	at := func(cell string, before, after int32) Path {
		return Path{Cell: cell, MHzBefore: before, MHzAfter: after}
	}
	hot := Path{Cell: "a", Grown: map[string]int64{PathThrottled: 3}}
	cases := map[string]struct {
		first, other Document
		// want is part of the text; empty: nothing is unusual.
		want string
	}{
		"the same frequency":              {document("x-r1", "no", at("a", 4800, 4800)), document("x-r2", "no", at("a", 4800, 4790)), ""},
		"a difference within the bound":   {document("x-r1", "no", at("a", 4000, 4000)), document("x-r2", "no", at("a", 4200, 4200)), ""},
		"a difference beyond the bound":   {document("x-r1", "no", at("a", 4000, 4000)), document("x-r2", "no", at("a", 4201, 4201)), "a: the client's CPU ran at 4000 MHz after the cell in x-r1, and at 4201 MHz in x-r2"},
		"slower than the first run":       {document("x-r1", "no", at("a", 4800, 4800)), document("x-r2", "no", at("a", 3900, 3900)), "at 3900 MHz in x-r2"},
		"a change in the cell":            {document("x-r1", "no", at("a", 4800, 4800)), document("x-r2", "no", at("a", 4800, 3900)), "x-r2, a: the client's CPU ran at 4800 MHz before the cell and at 3900 MHz after it"},
		"another cell":                    {document("x-r1", "no", at("a", 4800, 4800)), document("x-r2", "no", at("b", 3900, 3900)), ""},
		"unknown in one run":              {document("x-r1", "no", at("a", 0, 0)), document("x-r2", "no", at("a", 3900, 3900)), ""},
		"unknown before":                  {document("x-r1", "no", at("a", 4800, 4800)), document("x-r2", "no", at("a", 0, 4800)), ""},
		"virtual machines":                {document("x-r1", "yes", at("a", 4800, 4800)), document("x-r2", "yes", at("a", 2000, 3000)), ""},
		"machines that may be virtual":    {document("x-r1", "", at("a", 4800, 4800)), document("x-r2", "", at("a", 2000, 3000)), ""},
		"a hot core":                      {document("x-r1", "no"), document("x-r2", "no", hot), "x-r2, a: the kernel slowed the client's CPU 3 times because it was hot"},
		"a hot core of a virtual machine": {document("x-r1", "yes"), document("x-r2", "yes", hot), "3 times"},
		"an old result":                   {document("x-r1", "no", Path{Cell: "a"}), document("x-r2", "no", Path{Cell: "a"}), ""},
		"largest values":                  {document("x-r1", "no", at("a", 1<<31-1, 1<<31-1)), document("x-r2", "no", at("a", -5, -5)), ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Frequency(c.first, c.other)
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
