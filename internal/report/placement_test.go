package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/test/golden"
)

func TestPlacement(t *testing.T) {
	verified, not := v1alpha1.Endpoint{Placement: v1alpha1.PlacementVerified}, v1alpha1.Endpoint{}
	for _, c := range []struct {
		endpoints []v1alpha1.Endpoint
		want      v1alpha1.PlacementState
	}{
		{nil, ""},
		{[]v1alpha1.Endpoint{verified, verified}, v1alpha1.PlacementVerified},
		{[]v1alpha1.Endpoint{verified, verified, verified, not}, v1alpha1.PlacementUnverified},
	} {
		if got := summary.Placement(c.endpoints); got != c.want {
			t.Errorf("%d endpoints: %q, want %q", len(c.endpoints), got, c.want)
		}
	}
}

// TestTableOfVariants checks that the comparison and its proof fit into 126 columns.
func TestTableOfVariants(t *testing.T) {
	b := compared(t, 5, 200_000, func(run plan.Run, c *result.Cell) {
		if run.Variant.Name == "pod" && run.Round == 2 {
			c.Lost = 3
		}
	})
	line := func(check string, state v1alpha1.ProofState, expected, found string) v1alpha1.ProofLine {
		return v1alpha1.ProofLine{Check: check, State: state, Expected: expected, Found: found}
	}
	for i := range b.Status.Endpoints {
		e := &b.Status.Endpoints[i]
		e.Placement = summary.PlacementState(e.Variant == "host-kernel")
		e.Proof = []v1alpha1.ProofLine{
			line("CPUsExclusive", v1alpha1.ProofProved, "1 exclusive CPU", "CPU 3 of the node's 0-7"),
			line("CPUIsolated", v1alpha1.ProofNoted, "", "no isolated CPUs"),
		}
		switch {
		case e.Variant == "pod" && e.Role == v1alpha1.RoleServer:
			e.Proof = append(e.Proof, line("CFSQuota", v1alpha1.ProofUnknown, "off, or not throttled", ""))
		case e.Variant == "vf-onload" && e.Role == v1alpha1.RoleClient:
			e.Proof = append(e.Proof, line("MTU", v1alpha1.ProofProved, "1500", "1500"), line("NUMALocal", v1alpha1.ProofProved, "NUMA node 1", "NUMA node 1"),
				line("OnloadSockets", v1alpha1.ProofUnknown, "every socket accelerated", "the tool tells nothing of its sockets"))
		case e.Variant == "vf-onload":
			e.CPUNUMANode = 0
			e.Proof = append(e.Proof, line("MTU", v1alpha1.ProofProved, "1500", "1500"), line("NUMALocal", v1alpha1.ProofFailed, "NUMA node 1", "NUMA node 0"),
				line("OnloadSockets", v1alpha1.ProofFailed, "every socket accelerated",
					"libonload.so cannot be preloaded (/opt/onload/usr/lib64/libonload-of-another-version.so): ignored"))
		}
	}
	var got bytes.Buffer
	if err := Table(&got, b); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "variants.txt", got.String())
	for text := range strings.Lines(got.String()) {
		isWarning := strings.Contains(text, v1alpha1.WarningMessagesLost)
		if n := utf8.RuneCountInString(strings.TrimSuffix(text, "\n")); n > 126 && !isWarning {
			t.Errorf("%d columns: %s", n, text)
		}
	}
}

func TestWrap(t *testing.T) {
	word := strings.Repeat("µ", foundWidth)
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", []string{""}},
		{"a b", []string{"a b"}},
		{"one  two\nthree", []string{"one two three"}},
		{word, []string{word}},
		{word + " two", []string{word, "two"}},
		{"a " + word + "long b", []string{"a", word, "long b"}},
		{word + word, []string{word, word}},
	} {
		if diff := cmp.Diff(c.want, wrap(c.text, foundWidth)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, diff)
		}
	}
}
