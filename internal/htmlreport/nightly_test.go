//go:build nightly

package htmlreport

func init() { rendered = names }
