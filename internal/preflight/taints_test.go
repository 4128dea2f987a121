package preflight

import (
	"testing"

	"github.com/tailgate-dev/tailgate/test/field"
)

// TestField tries the taints of public bug reports.
func TestFieldTaints(t *testing.T) {
	field.Run(t, "gates", "internal/preflight", func(_ *testing.T, c field.Case) map[string]string {
		return map[string]string{"owner": Passing(c.Arguments["taint"])}
	})
}
