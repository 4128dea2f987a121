package admit

import (
	"testing"

	"github.com/tailgate-dev/tailgate/test/admission"
)

// A spec of test/integration requires the same of a real API server.
func TestCases(t *testing.T) {
	for _, c := range admission.Cases() {
		if err := c.Check(Object(t.Context(), c.Object), c.Admit); err != nil {
			t.Error(err)
		}
	}
}
