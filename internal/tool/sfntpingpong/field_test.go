package sfntpingpong

import (
	"testing"

	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/field"
	"github.com/tailgate-dev/tailgate/test/field/driven"
)

func TestField(t *testing.T) {
	field.Run(t, "tools", "internal/tool/sfntpingpong", func(t *testing.T, c field.Case) map[string]string {
		return driven.Parse(t, c, New(), tool.Output{})
	})
}
