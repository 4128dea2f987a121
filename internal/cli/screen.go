package cli

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// screen shows progress: a terminal's line is rewritten, others get one for each change.
type screen struct {
	out io.Writer
	// width returns how many characters a line of the terminal has; nil if there is no terminal.
	width func() int
	// colored is true on a terminal, unless the user disabled colours.
	colored bool

	sync.Mutex
	last string
}

// newScreen returns a screen. It has no colours with NO_COLOR (https://no-color.org).
func newScreen(out io.Writer) *screen {
	if printable, ok := out.(interface{ Unwrap() io.Writer }); ok {
		out = printable.Unwrap() // The screen itself controls the terminal.
	}
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

// live reports whether the line is rewritten.
func (s *screen) live() bool { return s.width != nil }

// eraseLine moves to the beginning of the terminal's line and clears it.
const eraseLine = "\r\x1b[K"

// show shows a line whose first word has a colour.
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
	// A longer line would wrap, and only its last part be rewritten.
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
