package result

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestTermination(t *testing.T) {
	cases := map[string]struct {
		in   Termination
		want string // the message that is read back; "cut" for the beginning of the given message
	}{
		"a failure":      {Termination{Reason: "ToolFailed", Message: "it \"failed\"\nbadly"}, "it \"failed\"\nbadly"},
		"nothing":        {Termination{}, ""},
		"a long message": {Termination{Reason: "ToolFailed", Message: strings.Repeat("x", 10_000)}, "cut"},
		"a long message of many bytes a character":  {Termination{Reason: "ToolFailed", Message: strings.Repeat("µ世🙂", 2_000)}, "cut"},
		"a long message that JSON makes far longer": {Termination{Reason: "ToolFailed", Message: strings.Repeat("&<", 3_000)}, "cut"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "termination-log")
			if err := c.in.WriteFile(path); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > 4096 || c.want == "cut" && len(b) < 4080 {
				t.Errorf("%d bytes", len(b))
			}
			got, err := ParseTermination(string(b))
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "cut" {
				begins, ok := strings.CutSuffix(got.Message, "…")
				if !ok || !strings.HasPrefix(c.in.Message, begins) || !utf8.ValidString(got.Message) {
					t.Errorf("cut to %q", got.Message)
				}
				c.want = got.Message
			}
			c.in.Message = c.want
			if diff := cmp.Diff(c.in, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTerminationThatCannotBeCut(t *testing.T) {
	if b, err := (Termination{Reason: strings.Repeat("0", 5000)}).Encode(); err == nil {
		t.Errorf("%d bytes", len(b))
	}
}

func TestParseTerminationRefuses(t *testing.T) {
	for _, message := range []string{"", "OCI runtime error", `"text"`, `{"reason":`, `[]`, `{"message":"` + strings.Repeat("x", maxTermination) + `"}`} {
		if got, err := ParseTermination(message); err == nil {
			t.Errorf("%q became %+v", message, got)
		}
	}
}
