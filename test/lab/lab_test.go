package lab

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRelay(t *testing.T) {
	for _, tt := range []struct {
		name, in, out, wantErr string
		code, boots            int
	}{
		{name: "all passed", in: bootMark + "\n=== RUN\nok\n" + exitMark + "0\n", out: "=== RUN\nok\n", boots: 1},
		{name: "one failed", in: "--- FAIL\n" + exitMark + "1\n", out: "--- FAIL\n", code: 1},
		{name: "the guest crashed", in: "=== RUN\nhalf a li", out: "=== RUN\n", wantErr: "ended before"},
		{name: "no number", in: exitMark + "x\n", wantErr: "exit code"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			boots := 0
			code, err := relay(strings.NewReader(tt.in), &out, func() { boots++ })
			if (err != nil) != (tt.wantErr != "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error %v, want one with %q", err, tt.wantErr)
			}
			if code != tt.code || boots != tt.boots || out.String() != tt.out {
				t.Errorf("exit code %d, %d boots, output %q; want %d, %d, %q", code, boots, out.String(), tt.code, tt.boots, tt.out)
			}
		})
	}
}

func TestFlagsForTheGuest(t *testing.T) {
	got := testFlags([]string{"-test.paniconexit0", "-test.testlogfile=/tmp/x", "-test.v=true", "-test.coverprofile=c", "-test.run=A/b c"})
	if diff := cmp.Diff([]string{"-test.paniconexit0", "-test.v=true", "-test.run=A/b c"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
