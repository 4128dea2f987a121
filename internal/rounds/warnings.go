package rounds

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const (
	// mostTold is the number of different warnings of the tools that are reported, and maxTold the maximum length of each, in
	// bytes.
	mostTold, maxTold = 4, 400
	// maxTexts is the number of different warnings that are distinguished, to count those that are not reported.
	maxTexts = 1024
)

// toolWarnings holds the tools' own warnings, each different text once.
type toolWarnings struct {
	known map[[sha256.Size]byte]int
	texts []toolWarning
}

// toolWarning is one text, with the first measurement that has it and the number of further ones.
type toolWarning struct {
	text, first string
	more        int
}

func newToolWarnings() toolWarnings {
	return toolWarnings{known: map[[sha256.Size]byte]int{}}
}

func (w *toolWarnings) add(said, from string) {
	key := sha256.Sum256([]byte(said))
	place, known := w.known[key]
	switch {
	case known && place < mostTold:
		w.texts[place].more++
	case known || len(w.known) == maxTexts:
	default:
		w.known[key] = len(w.known)
		if len(w.texts) < mostTold {
			w.texts = append(w.texts, toolWarning{text: strings.Clone(text.Shorten(said, maxTold)), first: from})
		}
	}
}

// ToolWarnings returns the first different warnings of the tools, each with the first measurement that has it and the number of
// further ones; the stored results contain all warnings. It is empty if no tool warned.
func (c *Collection) ToolWarnings() string {
	var told []string
	for _, w := range c.tools.texts {
		from := w.first
		if w.more > 0 {
			from = fmt.Sprintf("%s and %d more", from, w.more)
		}
		told = append(told, fmt.Sprintf("%s (%s)", w.text, from))
	}
	if rest := len(c.tools.known) - len(told); rest > 0 {
		told = append(told, fmt.Sprintf("%d other warnings are in the stored results", rest))
	}
	return strings.Join(told, "; ")
}

// addReports records what a run reports besides its measurements.
func (c *Collection) addReports(run result.Stored) {
	for _, cell := range run.Client.Cells {
		for _, said := range cell.Warnings {
			c.tools.add(said, run.Client.Run+", "+cell.Name)
		}
	}
	for _, captured := range run.Server.Captured {
		if captured.Incomplete != "" && c.Incomplete == "" {
			c.Incomplete = fmt.Sprintf("%s, %s: %s", run.Server.Run, captured.Cell, captured.Incomplete)
		}
	}
	for _, d := range []result.Document{run.Client, run.Server} {
		if len(d.Reduced) > 0 && c.Reduced == "" {
			c.Reduced = fmt.Sprintf("%s, %s: the result was too large to be kept whole: %s", d.Run, d.Role, strings.Join(d.Reduced, "; "))
		}
	}
}
