package text

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"", 10, ""},
		{"short", 5, "short"},
		{"longer", 5, "lo…"},
		{"ääää", 8, "ääää"},
		{"ääää", 7, "ää…"},
		{"ääää", 6, "ä…"},
		{"a\xffb", 10, "a?b"},
		{"a\xffbcdef", 5, "a?…"},
		{"anything", 2, "…"},
	} {
		if got := Shorten(c.in, c.limit); got != c.want {
			t.Errorf("Shorten(%q, %d) = %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"  two\n\tlines \r\n":     "two lines",
		"one line that\nis long ": "one line …",
		"bad \xff":                "bad ?",
	} {
		if got := OneLine(in, 12); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestEnds(t *testing.T) {
	for in, want := range map[string]string{
		"fits":                        "fits",
		"first\nname name name cause": "first …ame cause",
	} {
		if got := Ends(in, 18); got != want {
			t.Errorf("Ends(%q) = %q, want %q", in, got, want)
		}
	}
	for limit := 10; limit < 40; limit++ {
		got := Ends(strings.Repeat("ä", 100), limit)
		if len(got) > limit || !utf8.ValidString(got) || !strings.HasPrefix(got, "ä") || !strings.HasSuffix(got, "ä") {
			t.Errorf("Ends cut %d bytes to %q", limit, got)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"fits, ä…":       "fits, ä…",
		"a\x1b[2J\n\xff": "a�[2J�?",
		"\x1b\x1b\x1b\x1b\x1b\x1b\x1b\x1b\x1b\x1b\x1b\x1b": "���…",
		"one line that is long":                            "one line …",
	} {
		if got := Printable(in, 12); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
	if got := Printable("as it is", math.MaxInt); got != "as it is" {
		t.Errorf("without a limit: %q", got)
	}
}

func TestList(t *testing.T) {
	for _, c := range []struct {
		items []string
		want  string
	}{
		{nil, ""},
		{[]string{"a"}, "a"},
		{[]string{"a", "b"}, "a, b"},
		{[]string{"a", "b", "c"}, "a, b, and 1 more"},
		{[]string{"a", "b", "c", "d"}, "a, b, and 2 more"},
	} {
		if got := List(c.items, 2, ", "); got != c.want {
			t.Errorf("List(%q) = %q, want %q", c.items, got, c.want)
		}
		if len(c.items) > 2 && (c.items[0] != "a" || c.items[2] != "c") {
			t.Errorf("List changed its items: %q", c.items)
		}
	}
}

func TestControlsAreReplaced(t *testing.T) {
	for in, want := range map[string]string{
		"plain\tµs\n": "plain\tµs\n", "\x1b[31mred\a": "\ufffd[31mred\ufffd", "\u009b31m": "\ufffd31m", "a\rb\x7f": "a\ufffdb\ufffd", "\u202egnp": "\ufffdgnp", "\u2066x": "\ufffdx",
		"a\u200bb\ufeff": "a\ufffdb\ufffd", "a\u2028b": "a\ufffdb", "\U000e0041": "\ufffd",
	} {
		if got := Shorten(in, 100); got != want {
			t.Errorf("Shorten(%q) is %q", in, got)
		}
		var out bytes.Buffer
		if n, err := Writer(&out).Write([]byte(in)); err != nil || n != len(in) || out.String() != want {
			t.Errorf("%q is written as %q, %d, %v", in, out.String(), n, err)
		}
	}
	// A character that is written in two parts.
	for _, in := range []string{"x\u009b31m", "x\u202egnp", "x\U000e0041y", "xµs…"} {
		for cut := range len(in) {
			var out bytes.Buffer
			w := Writer(&out)
			for _, part := range []string{in[:cut], in[cut:]} {
				if n, err := w.Write([]byte(part)); err != nil || n != len(part) {
					t.Fatal(n, err)
				}
			}
			if want := Shorten(in, 100); out.String() != want {
				t.Errorf("%q, cut at %d: %q, want %q", in, cut, out.String(), want)
			}
		}
	}
	var out bytes.Buffer
	if _, err := Writer(&out).Write([]byte{0xc2, 0xff, 'x'}); err != nil || out.String() != "\xc2\xffx" {
		t.Errorf("bytes that are no characters: %q, %v", out.String(), err)
	}
}

func TestColumns(t *testing.T) {
	var out strings.Builder
	c := NewColumns(&out, 0)
	if n, err := io.WriteString(c, "交换\tA\nx\tB\n"); n != len("交换\tA\nx\tB\n") || err != nil {
		t.Fatal(n, err)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "交换  A\nx     B\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
