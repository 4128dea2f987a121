package foreign

import (
	"testing"

	"github.com/tailgate-dev/tailgate/test/field"
)

// Cases of other projects' objects on real clusters (test/field).
func TestField(t *testing.T) {
	field.Run(t, "neighbours", "internal/foreign", func(t *testing.T, c field.Case) map[string]string {
		config := c.Arguments["config"]
		if c.Input != "" {
			config = string(c.Read(t))
		}
		return map[string]string{"parent": Parent(config)}
	})
}
