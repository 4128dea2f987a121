// Package htmlreport writes results as one self-contained HTML file, whose content security policy
// forbids all else. It is pure and deterministic, and draws no conclusions: figures, ratios and
// verdicts come from report, compare and verdict. Every plot has its figures in a table below.
package htmlreport

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/internal/export"
)

var ErrNothingToShow = errors.New("nothing to show")

// The style, the scripts, and the licence of the library, which must be included in all copies.
var (
	//go:embed assets/uplot/uPlot.min.css
	libraryStyle string
	//go:embed assets/style.css
	ownStyle string
	//go:embed assets/uplot/uPlot.iife.min.js
	library string
	//go:embed assets/uplot/LICENSE
	licence string
	//go:embed assets/uplot/VERSION
	version string
	//go:embed assets/report.js
	script string
)

type page struct {
	Title                                  string
	Policy                                 string // allows exactly Style, Library and Script
	Style, Library, Script, LibraryVersion string
	Simulated                              bool // a benchmark was measured on a simulated NIC
	Benchmarks                             []benchmark
	Groups                                 []group
	SlowSamples                            bool
	Comparisons                            []comparison
	Evidence                               *evidence
	Data                                   data
}

// Write compares all with the first. It may return ErrNothingToShow or wrap result.ErrCorrupt.
func Write(w io.Writer, benchmarks []export.Benchmark) error {
	if len(benchmarks) == 0 {
		return ErrNothingToShow
	}
	p, err := newPage(benchmarks)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := document(p).Render(context.Background(), &out); err != nil {
		return fmt.Errorf("filling the template: %w", err)
	}
	_, err = w.Write(out.Bytes())
	return err
}

func newPage(all []export.Benchmark) (page, error) {
	names := namesOf(all)
	p := page{Title: strings.Join(names, ", ")}
	p.addAssets()
	for i, b := range all {
		one, err := newBenchmark(b, i, names[i])
		if err != nil {
			return page{}, fmt.Errorf("LatencyBenchmark %s/%s: %w", b.Object.Namespace, b.Object.Name, err)
		}
		p.Simulated = p.Simulated || one.Simulated
		p.Benchmarks = append(p.Benchmarks, one)
	}
	var err error
	if p.Groups, p.Data, err = newGroups(all, names); err != nil {
		return page{}, err
	}
	p.SlowSamples = slices.ContainsFunc(p.Groups, func(g group) bool {
		return slices.ContainsFunc(g.Strips, func(s strip) bool { return s.Slowest != nil })
	})
	if p.Comparisons, err = newComparisons(all, p.Benchmarks); err != nil {
		return page{}, err
	}
	p.Evidence = newEvidence(all, names)
	return p, nil
}

// namesOf names benchmarks, with numbers for equal names, as of exports around an upgrade.
func namesOf(all []export.Benchmark) []string {
	named := map[string][]int{}
	for i, b := range all {
		named[b.Object.Name] = append(named[b.Object.Name], i)
	}
	names := make([]string, len(all))
	for name, same := range named {
		for k, i := range same {
			names[i] = name
			if len(same) > 1 {
				names[i] = fmt.Sprintf("%s (%d)", name, k+1)
			}
		}
	}
	return names
}

func (p *page) addAssets() {
	p.Style, p.Library, p.Script = libraryStyle+ownStyle, "/*\n"+strings.TrimSpace(licence)+"\n*/\n"+library, script
	p.LibraryVersion = strings.TrimSpace(version)
	p.Policy = fmt.Sprintf("default-src 'none'; style-src %s; script-src %s %s; base-uri 'none'; form-action 'none'",
		hashed(p.Style), hashed(p.Library), hashed(p.Script))
}

// hashed returns the source of a policy for exactly this text, with LF as browsers read CRLF.
func hashed(text string) string {
	sum := sha256.Sum256([]byte(strings.ReplaceAll(text, "\r\n", "\n")))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
