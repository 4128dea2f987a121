package cli

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// screen shows how something goes on: on a terminal in one line that is written over, elsewhere in a line for each
// change.
type screen struct {
	out io.Writer
	// width is how many characters a line of the terminal has; nil where there is no terminal.
	width func() int
	// colored says that the terminal shows colours, and the user likes them.
	colored bool

	sync.Mutex
	last string
}

// newScreen is one that writes to out, as a terminal if it is one. No colours are used where the environment has
// NO_COLOR (https://no-color.org).
func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	f, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return s
	}
	s.width = func() int {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
		return 80
	}
	s.colored = os.Getenv("NO_COLOR") == ""
	return s
}

// live says whether what is shown is written over.
func (s *screen) live() bool { return s.width != nil }

// eraseLine goes to the beginning of the terminal's line and empties it.
const eraseLine = "\r\x1b[K"

// show shows how it stands, of which the first word has a colour.
func (s *screen) show(word string, c color, rest string) {
	s.Lock()
	defer s.Unlock()
	line := word + rest
	if line == s.last {
		return
	}
	s.last = line
	if !s.live() {
		fmt.Fprintln(s.out, line)
		return
	}
	// A line that is longer than the terminal's would be more than one, and only the last of them be written over.
	if r, most := []rune(line), s.width()-1; len(r) > most {
		line = string(r[:max(most, 0)])
	}
	if s.colored && len(line) > len(word) {
		line = string(c) + word + colorOff + line[len(word):]
	}
	fmt.Fprint(s.out, eraseLine, line)
}

// say writes a line that stays.
func (s *screen) say(line string) {
	s.Lock()
	defer s.Unlock()
	if s.live() {
		fmt.Fprint(s.out, eraseLine)
	}
	fmt.Fprintln(s.out, line)
	s.last = ""
}

// clear takes away what is shown, where it can.
func (s *screen) clear() {
	s.Lock()
	defer s.Unlock()
	if s.live() {
		fmt.Fprint(s.out, eraseLine)
	}
	s.last = ""
}

// color is an escape sequence of a terminal.
type color string

// The colours, which follow the terminal's own palette.
const (
	green    color = "\x1b[32m"
	yellow   color = "\x1b[33m"
	red      color = "\x1b[31m"
	colorOff       = "\x1b[0m"
)
