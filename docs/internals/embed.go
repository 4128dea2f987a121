// Package internals has the pages that the command prints parts of.
package internals

import _ "embed"

// Reasons is the page of all reasons: "## ..." for each kind, and "| `Reason` | cause | remedy |".
//
//go:embed reasons.md
var Reasons string
