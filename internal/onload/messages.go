package onload

import (
	_ "embed"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// lines are the reasons and the messages.
//
//go:embed messages.tsv
var lines string

// rank orders messages: the first cause decides, else the first consequence, never a warning.
type rank int

const (
	cause rank = iota
	consequence
	warning
)

// message is what Onload, or the dynamic linker about a library, prints on standard error.
type message struct {
	// says matches a part of its line.
	says *regexp.Regexp
	rank
	// why is its reason, unless byErrno has one.
	why     *Failure
	byErrno map[int]*Failure
}

// reasons say why a tool could not use Onload, by name. A line's first matching message counts.
var reasons, messages = read()

func read() (reasons map[string]*Failure, messages []message) {
	reasons = map[string]*Failure{}
	tables := map[string]map[int]*Failure{}
	for line := range strings.Lines(lines) {
		switch c := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); {
		case c[0] == "reason":
			reasons[c[1]] = &Failure{Outcome: c[2], Why: c[3], Remedy: c[4], Device: c[1] == "noDevice", Missing: c[1] == "notPreloaded"}
		case c[0] == "errno":
			tables[c[1]] = map[int]*Failure{}
			for _, entry := range strings.Fields(c[2]) {
				number, reason, _ := strings.Cut(entry, "=")
				n, _ := strconv.Atoi(number)
				tables[c[1]][n] = reasons[reason]
			}
		case len(c) == 4:
			r := rank(slices.Index([]string{"cause", "consequence", "warning"}, c[0]))
			messages = append(messages, message{regexp.MustCompile(c[3]), r, reasons[c[1]], tables[c[2]]})
		}
	}
	return reasons, messages
}
