package identity

import "testing"

// A machine is recognized by its system UUID, however kernel, firmware or hypervisor print it.
func TestMachines(t *testing.T) {
	const known = "4C4C4544-0042-3510-8052-B4C04F573632"
	for other, want := range map[string]struct{ same, different bool }{
		known:                                           {true, false},
		"4c4c4544-0042-3510-8052-b4c04f573632":          {true, false},
		"44454c4c-4200-1035-8052-b4c04f573632":          {true, false}, // the byte order of SMBIOS before 2.6
		"{4c4c4544-0042-3510-8052-b4c04f573632}":        {true, false},
		"urn:uuid:4c4c4544-0042-3510-8052-b4c04f573632": {true, false},
		"4c4c4544004235108052b4c04f573632\n":            {true, false},
		"4c4c4544-0042-3510-8052-b4c04f573633":          {false, true},
		"4c4c4544-4200-3510-8052-b4c04f573632":          {false, true}, // one field alone in the other order
		"":                                              {false, false},
		"00000000-0000-0000-0000-000000000000":          {false, false},
		"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF":          {false, false},
		"03000200-0400-0500-0006-000700080009":          {false, false},
		"Not Settable":                                  {false, false},
		"To Be Filled By O.E.M.":                        {false, false},
		"VMware-56 4d 1c":                               {false, false}, // another form: not an identity
	} {
		for _, pair := range [][2]string{{known, other}, {other, known}} {
			if same, different := SameMachine(pair[0], pair[1]), OtherMachine(pair[0], pair[1]); same != want.same || different != want.different {
				t.Errorf("%q: the same is %t, another is %t", pair, same, different)
			}
		}
	}
	if !OtherMachine("serial-1", "serial-2") || OtherMachine("serial-1", "SERIAL-1") || SameMachine("", "") || OtherMachine("", "") {
		t.Error("other forms are compared as texts")
	}
	for _, c := range [][3]string{{"", known, known}, {"Not Settable", known, known}, {known, "", known}, {known, "other", known}, {"None", "", "None"}} {
		if got := LatestUUID(c[0], c[1]); got != c[2] {
			t.Errorf("%v: %q", c, got)
		}
	}
}
