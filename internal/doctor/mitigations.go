package doctor

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// mitigationTexts are lines such as: entry in FILE FILE | TEXT. Their beginning describes them.
//
//go:embed mitigations.txt
var mitigationTexts string

// fitting returns the kind of the first text that fits a part of what the kernel says in a file: entry or else; empty if none fits.
func fitting(file, part string) string {
	for line := range strings.Lines(mitigationTexts) {
		where, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " | ")
		kind, files, some := strings.Cut(where, " in ")
		rest, begins := strings.CutPrefix(part, text)
		if ok && begins && (!some || slices.Contains(strings.Fields(files), file)) && (rest == "" || rest[0] == ' ') {
			return kind
		}
	}
	return ""
}

// atEntry returns whether the mitigation of a weakness, given by its file and the kernel's text, works at each entry to the
// kernel or each return, and whether all parts of the text are known. A text that begins with Vulnerable may name a mitigation
// that works, though not completely.
func atEntry(file, state string) (works, known bool) {
	known = true
	for part := range strings.FieldsFuncSeq(strings.ToLower(state), func(r rune) bool { return r == ';' || r == ',' }) {
		part = strings.TrimSpace(part)
		for _, prefix := range []string{"kvm: mitigation", "mitigation", "vulnerable", "unknown"} {
			if rest, ok := strings.CutPrefix(part, prefix); ok {
				part = strings.TrimLeft(rest, ": (")
			}
		}
		if part == "" || part == "not affected" {
			continue
		}
		kind := fitting(file, part)
		works, known = works || kind == "entry", known && kind != ""
	}
	return works, known
}

// mitigations checks the additional cost of each entry to the kernel.
func mitigations(_ Observed, n Node) []Line {
	const check = "mitigations"
	i := n.seen()
	if i == nil {
		return nil
	}
	active := 0
	var slow, strange []string
	for key, state := range i.Evidence.Facts {
		file, found := strings.CutPrefix(key, "cpu.vulnerability.")
		if !found {
			continue
		}
		works, known := atEntry(file, state)
		// On bare metal, the kernel does not attempt this one without microcode.
		if file == "tsa" && strings.Contains(state, "attempted") && !i.Virtual() {
			works = false
		}
		if works || strings.HasPrefix(state, "Mitigation") {
			active++
		}
		if works {
			slow = append(slow, file)
		}
		if !known {
			strange = append(strange, fmt.Sprintf("%s %q", file, state))
		}
	}
	slices.Sort(slow)
	slices.Sort(strange)
	switch {
	case len(slow) > 0:
		return advice{"each system call and each interrupt takes about 100 ns to 1 µs longer; Onload makes few of them",
			"if only your own programs run there, boot with mitigations=off; in any case use the same setting on all nodes that you compare"}.
			warn(check, "", "%d in use, of which %s act at each entry to the kernel", active, strings.Join(slow, ", "))
	case len(strange) > 0:
		return unknown(check, "", "this command does not know the kernel's words "+strings.Join(strange, ", "), "use a newer version of this command")
	}
	return good(check, "", "%d in use, none of which acts at each entry to the kernel", active)
}
