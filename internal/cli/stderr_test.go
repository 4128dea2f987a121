package cli

import (
	"bytes"
	"strings"
	"testing"
)

// A path of an export may have characters that change the order of others, or are invisible; also errors show them replaced.
func TestErrorsHaveNoControls(t *testing.T) {
	var out, errs bytes.Buffer
	if code := Run(t.Context(), []string{"get", "./\u202egnp.exe\u200b"}, &out, &errs); code == 0 || errs.Len() == 0 {
		t.Fatalf("%d, %q", code, errs.String())
	}
	if strings.ContainsAny(errs.String(), "\u202e\u200b") {
		t.Errorf("%q", errs.String())
	}
}
