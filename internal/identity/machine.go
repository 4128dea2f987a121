package identity

import (
	"slices"
	"strings"
)

// unset are the texts and UUIDs, as machine returns them, of machines without a UUID.
var unset = []string{
	"", "none", "unknown", "notsettable", "notspecified", "notpresent", "defaultstring", "tobefilledbyo.e.m.",
	"03000200040005000006000700080009", "123456781234567890abcddeefaabbcc",
}

const uuidDigits = 32

// machine returns a system UUID without case, hyphens, braces and spaces; empty if it says nothing.
func machine(uuid string) string {
	plain := strings.ToLower(strings.NewReplacer("-", "", "{", "", "}", "", " ", "", "urn:uuid:", "").Replace(strings.TrimSpace(uuid)))
	if slices.Contains(unset, plain) || plain != "" && strings.Trim(plain, plain[:1]) == "" {
		return ""
	}
	return plain
}

func isUUID(plain string) bool {
	return len(plain) == uuidDigits && strings.Trim(plain, "0123456789abcdef") == ""
}

// swapped returns a UUID by SMBIOS before 2.6: the first three fields' bytes are in reverse order.
func swapped(plain string) string {
	if !isUUID(plain) {
		return plain
	}
	b := []byte(plain)
	for _, field := range [][2]int{{0, 8}, {8, 12}, {12, 16}} {
		part := b[field[0]:field[1]]
		slices.Reverse(part) // The digits of each byte, too, which the loop below puts back.
		for i := 0; i < len(part); i += 2 {
			part[i], part[i+1] = part[i+1], part[i]
		}
	}
	return string(b)
}

// SameMachine reports whether two system UUIDs are of the same machine, however they are spelled.
func SameMachine(a, b string) bool {
	x, y := machine(a), machine(b)
	return x != "" && (x == y || swapped(x) == y)
}

// OtherMachine reports whether two system UUIDs of the same form are of different machines.
func OtherMachine(a, b string) bool {
	x, y := machine(a), machine(b)
	return x != "" && y != "" && isUUID(x) == isUUID(y) && !SameMachine(a, b)
}

// LatestUUID returns the system UUID that a node reports, or the last one that told something.
func LatestUUID(reported, last string) string {
	if machine(reported) == "" && last != "" {
		return last
	}
	return reported
}
