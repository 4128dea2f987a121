package htmlreport

import (
	"testing"

	"github.com/tailgate-dev/tailgate/internal/result"
)

// The evidence has the frequencies of all cells and rounds in one row, if there are any.
func TestFrequencies(t *testing.T) {
	document := func(mhz ...int32) result.Document {
		var d result.Document
		for i := 0; i < len(mhz); i += 2 {
			d.Evidence.Paths = append(d.Evidence.Paths, result.Path{MHzBefore: mhz[i], MHzAfter: mhz[i+1]})
		}
		return d
	}
	row := func(documents ...result.Document) []string {
		for _, r := range counters([]column{{documents: documents}, {documents: []result.Document{{}}}}) {
			if r.Key == result.KeyFrequency {
				if r.Meaning == "" {
					t.Error("the row has no meaning")
				}
				return r.Values
			}
		}
		return nil
	}
	if got := row(document(), document(0, 0)); got != nil {
		t.Errorf("without a frequency: %q", got)
	}
	if got := row(document(3900, 3900, 0, 4800), document(3900, 3900)); len(got) != 2 || got[0] != "3,900 (3,900 to 4,800)" || got[1] != missing {
		t.Errorf("got %q", got)
	}
}
