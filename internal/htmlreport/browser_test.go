package htmlreport

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/test/chromium"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// browserPatience is the time limit for all steps on one page, on a busy machine.
const browserPatience = 2 * time.Minute

// tab is an open report.
type tab struct {
	context.Context
	t *testing.T

	mu sync.Mutex
	// complaints holds the messages of the browser's console, requests the URLs that the page requested.
	complaints, requests []string
}

// open opens a report from a file.
func open(t *testing.T, browser context.Context, html string) *tab {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, []byte(html), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, stop := chromedp.NewContext(browser)
	t.Cleanup(stop)
	ctx, stop = context.WithTimeout(ctx, browserPatience)
	t.Cleanup(stop)
	p := &tab{Context: ctx, t: t}
	err := chromedp.Listen(ctx, func(event any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			p.complaints = append(p.complaints, fmt.Sprintf("%s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
		case *runtime.EventConsoleAPICalled:
			p.complaints = append(p.complaints, fmt.Sprintf("console.%s", e.Type))
		case *log.EventEntryAdded:
			p.complaints = append(p.complaints, e.Entry.Text)
		case *network.EventRequestWillBeSent:
			p.requests = append(p.requests, e.Request.URL)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	p.run(call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}), chromedp.EmulateViewport(1280, 900), chromedp.Navigate("file://"+file))
	return p
}

// call returns a command of the DevTools protocol.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, command, params)
		return err
	})
}

func (p *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// value evaluates an expression and returns its value.
func value[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// screenshot saves an image of the whole page beside the cache, for people to inspect.
func (p *tab) screenshot(name string) {
	p.t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		p.t.Fatal(err)
	}
	dir := filepath.Join(cache, "tailgate", "report-screenshots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	png, err := chromedp.Run(p, chromedp.FullScreenshot(100))
	if err != nil {
		p.t.Fatal(err)
	}
	if len(png) < 10_000 {
		p.t.Errorf("the picture of %s has %d bytes: is there anything on it?", name, len(png))
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// quiet checks that the console is empty and that the page requested only its own file.
func (p *tab) quiet() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.complaints) > 0 {
		p.t.Errorf("the console has %q", p.complaints)
	}
	if len(p.requests) != 1 || !strings.HasPrefix(p.requests[0], "file://") {
		p.t.Errorf("the page asked for %q, and may for itself alone", p.requests)
	}
}

// pictured holds the reports that also have screenshots in dark mode and in print.
var pictured = map[string]bool{"percentile-ladder": true, "fail": true, "all-pairs": true}

// rendered returns the reports that TestReportInABrowser and TestReportOnPaper open: one, and with the build tag nightly all.
var rendered = func(map[string]func(*testing.T) []export.Benchmark) []string { return []string{"percentile-ladder"} }

// TestReportInABrowser opens a report of each kind in light mode, in dark mode and in print.
func TestReportInABrowser(t *testing.T) {
	b := chromium.Start(t, browserPatience)
	all := samples()
	for _, name := range rendered(all) {
		t.Run(name, func(t *testing.T) {
			benchmarks := all[name](t)
			html := written(t, benchmarks)
			p := open(t, b, html)
			if got, want := value[string](p, "document.title"), strings.Join(namesOf(benchmarks), ", ")+" – latency report"; got != want {
				t.Errorf("the title is %q, want %q", got, want)
			}
			figuresHold(p, benchmarks)
			p.screenshot(name)
			p.run(call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}))
			if got := value[string](p, "getComputedStyle(document.body).backgroundColor"); got != "rgb(18, 22, 27)" {
				t.Errorf("in the dark the page is %s", got)
			}
			if pictured[name] {
				p.screenshot(name + "-dark")
			}
			p.run(call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"}))
			if got := value[string](p, "getComputedStyle(document.body).backgroundColor"); got != "rgb(255, 255, 255)" {
				t.Errorf("on paper the page is %s", got)
			}
			if pdf, err := chromedp.Run(p, chromedp.PrintToPDF(chromedp.PDFPreferCSSPageSize())); err != nil || len(pdf) < 10_000 {
				t.Errorf("what is printed has %d bytes, %v", len(pdf), err)
			}
			if pictured[name] {
				p.screenshot(name + "-print")
			}
			// Only elements with their own scroll bar may be wider than the window.
			if value[bool](p, "document.documentElement.scrollWidth > innerWidth") {
				t.Error("the page is wider than the window")
			}
			p.quiet()
			t.Logf("%d kB", (len(html)+999)/1000)
		})
	}
}

// TestReportOnPaper checks that everything fits on A4, that all cells are drawn, and that folded parts keep their headings.
func TestReportOnPaper(t *testing.T) {
	b := chromium.Start(t, browserPatience)
	all := samples()
	for _, name := range rendered(all) {
		t.Run(name, func(t *testing.T) {
			benchmarks := all[name](t)
			p := open(t, b, written(t, benchmarks))
			cells := value[int](p, `document.querySelectorAll(".group").length`)
			folded := value[[]string](p, `Array.from(document.querySelectorAll("details:not([open]) > summary"), (s) => s.textContent)`)
			// A4 with margins of 12 mm has 703 pixels of CSS.
			p.run(chromedp.EmulateViewport(703, 995), call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"}))
			p.until(`Array.from(document.querySelectorAll(".group")).every((g) => g.querySelector(".paper .u-over, .paper .plot:not(:empty)")) && Array.from(document.querySelectorAll("canvas")).every((c) => c.clientWidth <= innerWidth)`)
			for _, wide := range value[[]string](p, `Array.from(document.querySelectorAll("table, pre, canvas, p"), (e) => [e, e.getBoundingClientRect()])
				.filter(([e, r]) => r.right > innerWidth + 1 || r.left < -1).map(([e, r]) => e.tagName + " " + (e.caption || e).textContent.slice(0, 60) + ": " + r.left + " to " + r.right)`) {
				t.Errorf("wider than the paper: %s", wide)
			}
			if got := value[int](p, `Array.from(document.querySelectorAll(".group")).filter((g) => g.checkVisibility() && (g.querySelector(".paper canvas") || g.querySelector(".paper .plot").textContent)).length`); got != cells {
				t.Errorf("%d of %d cells are on paper", got, cells)
			}
			if got := value[[]string](p, `Array.from(document.querySelectorAll("details:not([open]) > summary")).filter((s) => s.checkVisibility() && getComputedStyle(s, "::after").content.includes("not printed")).map((s) => s.textContent)`); !cmp.Equal(got, folded) {
				t.Errorf("the headings of folded parts are %q, want %q", got, folded)
			}
			// Back on the screen, one cell is shown.
			p.run(chromedp.EmulateViewport(1280, 900), call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{}))
			p.until(fmt.Sprintf(`Array.from(document.querySelectorAll(".group")).filter((g) => g.checkVisibility()).length === %d`, min(cells, 1)))
			p.quiet()
		})
	}
}

// TestReportOnAPhone checks that nothing but tables with their own scroll bar is wider than the window, that words stay whole, and that
// labels of the axis do not lie over each other; and with a palette of the system, that colours with a meaning stay.
func TestReportOnAPhone(t *testing.T) {
	b := chromium.Start(t, browserPatience)
	all := samples()
	for _, name := range names(all) {
		t.Run(name, func(t *testing.T) {
			p := open(t, b, written(t, all[name](t)))
			const colours = `JSON.stringify(Array.from(document.querySelectorAll(".heat td, .legend i, .swatch, .share rect, .bar rect, .bar line, .bar path"), (e) => [e.getAttribute("class"), getComputedStyle(e).backgroundColor, getComputedStyle(e).fill, getComputedStyle(e).stroke]))`
			usual := value[string](p, colours)
			p.run(call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}}}))
			if !value[bool](p, `matchMedia("(forced-colors: active)").matches`) {
				t.Fatal("the browser does not force colours")
			}
			if forced := value[string](p, colours); forced != usual {
				t.Errorf("with a palette of the system, colours are lost: %s", cmp.Diff(usual, forced))
			}
			p.run(call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{}), chromedp.EmulateViewport(360, 740))
			p.until(`Array.from(document.querySelectorAll("canvas")).every((c) => c.clientWidth <= innerWidth)`)
			if value[bool](p, "document.documentElement.scrollWidth > innerWidth") {
				t.Errorf("the page is wider than the window: %q", value[[]string](p, `Array.from(document.querySelectorAll("body *")).filter((e) => !e.closest(".scroll") && e.getBoundingClientRect().right > innerWidth).map((e) => e.tagName + " " + e.className + " " + e.textContent.slice(0, 30))`))
			}
			if hidden := value[[]string](p, `Array.from(document.querySelectorAll(".rules .bar, .rules td"), (e) => [e.className.baseVal || e.className, e.getBoundingClientRect()]).filter(([, r]) => r.right > innerWidth || r.height > 200).map(String)`); len(hidden) > 0 {
				t.Errorf("rules that are not in sight: %q", hidden)
			}
			if thin := value[[]string](p, `Array.from(document.querySelectorAll("table.text td:not(.state):not(:empty), table.text th")).filter((c) => c.checkVisibility()).map((c) => [c.textContent, c.clientWidth]).filter(([text, w]) => text.length > 12 && w < 80).map(String)`); len(thin) > 0 {
				t.Errorf("narrow columns: %q", thin)
			}
		})
	}
}

// TestNothingToDraw checks that there is no axis without data, and a sentence in its place.
func TestNothingToDraw(t *testing.T) {
	b := chromium.Start(t, browserPatience)
	for _, samples := range []int64{0, 1} {
		all := emptySample(t, samples)
		if samples > 0 {
			for i := range all[0].Runs {
				all[0].Runs[i].Client.Cells[0].Lost = 0
			}
		}
		p := open(t, b, written(t, all))
		if n := value[int](p, `document.querySelectorAll("#curves canvas").length`); n > 0 {
			t.Errorf("%d samples: an axis", n)
		}
		if text := value[string](p, `document.getElementById("curves").textContent`); !strings.HasPrefix(text, "There is nothing to draw: no percentile has ten samples beyond it") {
			t.Errorf("%d samples: %q", samples, text)
		}
		p.tabTo("#curves")
		p.press(kb.ArrowRight, 2)
		if text := value[string](p, `document.getElementById("curves-at").textContent`); text != "" {
			t.Errorf("%d samples: the keyboard announces %q", samples, text)
		}
		p.quiet()
	}
	p := open(t, b, written(t, ladderSample(t)))
	value[bool](p, `(() => { for (const box of document.querySelectorAll("#lines input")) box.click(); return true; })()`)
	if text := value[string](p, `document.getElementById("curves").textContent`); text != "All lines are hidden." {
		t.Errorf("all lines are hidden, and the plot says %q", text)
	}
	p.quiet()
}

// figuresHold compares the figures in tables and plots of the page with the stored ones.
func figuresHold(p *tab, benchmarks []export.Benchmark) {
	p.t.Helper()
	type line struct{ Group, Name string }
	tables := map[line][][]string{}
	for _, table := range value[[]struct {
		Group, Name string
		Rows        [][]string
	}](p, `Array.from(document.querySelectorAll("table[data-line]"), (t) => ({Group: t.closest(".group").querySelector(".cellname").textContent, Name: t.dataset.line,
		Rows: Array.from(t.tBodies[0].rows, (r) => Array.from(r.cells, (c) => c.textContent))}))`) {
		// The first of several tables with rounds has all rounds together, in its first column.
		if key := (line{table.Group, table.Name}); tables[key] == nil {
			tables[key] = table.Rows
		}
	}
	drawn := value[data](p, `(() => { const d = document.getElementById("data"); return d ? JSON.parse(d.textContent) : {x: [], groups: []}; })()`)
	checked := 0
	for i, b := range benchmarks {
		for _, c := range report.AllSeries(b.Object, b.Runs) {
			key := line{c.Cell + " " + c.Counts(), lineName(namesOf(benchmarks), i, b, c.Variant.Name)}
			var histograms []result.Histogram
			var lost int64
			for _, r := range c.Rounds {
				histograms = append(histograms, r.Histogram)
				lost += r.Lost
			}
			stored, err := resulttest.Merge(histograms...)
			if err != nil {
				p.t.Fatal(err)
			}
			g := slices.IndexFunc(drawn.Groups, func(g groupData) bool { return g.Label == key.Group })
			l := slices.IndexFunc(drawn.Groups[g].Lines, func(l lineData) bool { return l.Name == key.Name })
			curve := drawn.Groups[g].Lines[l].All
			for _, row := range tables[key] {
				named, ok := stats.Named(row[0])
				if !ok {
					continue
				}
				want := stored.Percentile(named, lost)
				text := row[1]
				at := slices.IndexFunc(grid(), func(q stats.Percentile) bool { return q.Num*named.Den == named.Num*q.Den })
				switch {
				case want.Lost && (text != "lost" || at < len(curve)):
					p.t.Errorf("%v: %s is shown as %s, and is lost", key, named.Name, text)
				case want.Needs > 0 && (!strings.HasPrefix(text, "needs ") || at < len(curve)):
					p.t.Errorf("%v: %s is shown as %s, and has too few samples", key, named.Name, text)
				case want.Needs == 0 && !want.Lost:
					ns := c.Shown(want.Ns)
					shown := strings.ReplaceAll(text, ",", "")
					if shown != fmt.Sprintf("%d.%03d", ns/1000, ns%1000) || curve[at] != ns {
						p.t.Errorf("%v: %s is %d ns, shown as %s and drawn at %d", key, named.Name, ns, text, curve[at])
					}
				}
				checked++
			}
		}
	}
	if checked < 3*len(tables) {
		p.t.Errorf("%d percentiles of %d tables were looked at", checked, len(tables))
	}
}

// TestSlowSamples checks that the tables have every stored slow sample, and the strips as many marks in their colours, in
// light mode, in dark mode and in print.
func TestSlowSamples(t *testing.T) {
	benchmarks := ladderSample(t)
	p := open(t, chromium.Start(t, browserPatience), written(t, benchmarks))
	const group = `document.querySelector(".group:not([hidden])")`
	var want, got []string
	marks := map[string]map[string]int{}
	for _, c := range report.AllSeries(benchmarks[0].Object, benchmarks[0].Runs) {
		for _, r := range c.Rounds {
			if r.Attribution == nil {
				continue
			}
			for _, o := range r.Attribution.Slowest {
				place := places[slices.IndexFunc(places, func(p place) bool { return p.where == o.Where })].Name
				server := "–"
				if o.ServerGapNs != nil {
					server = micros(*o.ServerGapNs)
				}
				want = append(want, fmt.Sprintf("%s r%d %.6f %s %d %s %s %s", c.Variant.Name, r.Number, float64(o.AtNs)/1e9, micros(o.RTTNs), o.Samples, place, micros(o.ClientGapNs), server))
				if marks[c.Variant.Name] == nil {
					marks[c.Variant.Name] = map[string]int{}
				}
				marks[c.Variant.Name][place]++
			}
		}
	}
	for _, table := range value[[]struct {
		Name   string
		Rounds []struct {
			Number string
			Rows   [][]string
		}
	}](p, `Array.from(`+group+`.querySelectorAll("table[data-slowest]"), (t) => ({Name: t.dataset.slowest, Rounds: Array.from(t.tBodies, (b) =>
		({Number: b.rows[0].cells[0].textContent, Rows: Array.from(b.rows, (r) => Array.from(r.querySelectorAll("td"), (c) => c.textContent))}))}))`) {
		for _, r := range table.Rounds {
			for _, row := range r.Rows {
				got = append(got, fmt.Sprintf("%s r%s %s", table.Name, r.Number, strings.Join(row, " ")))
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 6*64 {
		t.Errorf("%d in the tables (-want +got):\n%s", len(got), diff)
	}
	for _, media := range []emulation.SetEmulatedMediaParams{
		{}, {Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}, {Media: "print"},
	} {
		p.run(call(emulation.SetEmulatedMedia, media))
		for i, strip := range value[[]struct {
			Name, Label string
			Keys        []string
			Colored     []int
		}](p, `Array.from(`+group+`.querySelectorAll(".strips .strip"), (strip) => {
			const canvas = strip.querySelector("canvas"), key = strip.nextElementSibling;
			const copy = Object.assign(document.createElement("canvas"), {width: canvas.width, height: canvas.height}).getContext("2d", {willReadFrequently: true});
			copy.drawImage(canvas, 0, 0);
			const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
			const keys = Array.from(key.querySelectorAll(".place"));
			return {Name: strip.previousElementSibling.textContent, Label: strip.getAttribute("aria-label"), Keys: keys.map((k) => k.textContent),
				Colored: keys.map((k) => {
					const [r, g, b] = getComputedStyle(k.querySelector("path")).fill.match(/\d+/g).map(Number);
					let n = 0;
					for (let i = 0; i < pixels.length; i += 4) if (pixels[i] === r && pixels[i + 1] === g && pixels[i + 2] === b) n++;
					return n;
				})};
		})`) {
			var keys []string
			for _, place := range places {
				if n := marks[strip.Name][place.Name]; n > 0 {
					keys = append(keys, fmt.Sprintf("%s %d", place.Name, n))
				}
			}
			if diff := cmp.Diff(keys, strip.Keys); diff != "" {
				t.Errorf("%+v: marks of %s (-want +got):\n%s", media, strip.Name, diff)
			}
			if !strings.Contains(strip.Label, "with 192 slow samples marked") {
				t.Errorf("strip %d is labelled %q", i, strip.Label)
			}
			for k, n := range strip.Colored {
				if n < 50 {
					t.Errorf("%+v: %d points of the strip of %s have the colour of %q", media, n, strip.Name, strip.Keys[k])
				}
			}
		}
	}
	value[bool](p, `(() => { for (const d of document.querySelectorAll("details.slowest")) d.open = true; return true; })()`)
	p.screenshot("slow-samples-print")
	if value[bool](p, "document.documentElement.scrollWidth > innerWidth") {
		t.Error("the page is wider than the window")
	}
	p.quiet()
}

// until waits until an expression is true; the script draws after the browser has laid out the page.
func (p *tab) until(expression string) {
	p.t.Helper()
	for !value[bool](p, expression) {
		if p.Err() != nil {
			p.t.Fatalf("never: %s", expression)
		}
		if _, err := chromedp.Run(p, chromedp.Evaluate[bool](`new Promise((done) => setTimeout(() => done(true), 20))`, chromedp.EvalAwaitPromise)); err != nil {
			p.t.Fatalf("%s: %v", expression, err)
		}
	}
}

// press presses a key a number of times.
func (p *tab) press(key string, times int) {
	p.t.Helper()
	for range times {
		p.run(chromedp.KeyEvent(key))
	}
}

// tabTo presses the Tab key until an element has the focus.
func (p *tab) tabTo(selector string) {
	p.t.Helper()
	for range 100 {
		p.run(chromedp.KeyEvent(kb.Tab))
		if value[bool](p, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
			return
		}
	}
	p.t.Fatalf("the tabulator does not lead to %s", selector)
}

// TestReportByKeyboard uses every control without a mouse.
func TestReportByKeyboard(t *testing.T) {
	p := open(t, chromium.Start(t, browserPatience), written(t, ladderSample(t)))
	state := func() string { return value[string](p, `document.getElementById("curves").dataset.drawn`) }
	seen := []string{state()}
	p.tabTo("#cell")
	p.press(kb.ArrowDown, 1)
	seen = append(seen, value[string](p, `document.querySelector(".group:not([hidden]) .cellname").textContent`), state())
	p.press(kb.ArrowUp, 1)
	p.tabTo("#scale-log")
	p.press(kb.ArrowRight, 1)
	seen = append(seen, state())
	p.tabTo("#rounds")
	p.press(" ", 1)
	seen = append(seen, state())
	p.tabTo("#lines input")
	p.press(" ", 1)
	seen = append(seen, state())
	p.tabTo("#curves")
	// p0, p50 and p75 come before p90, in addition to the points of the first power of ten.
	p.press(kb.ArrowRight, pointsPerDecade+3)
	seen = append(seen, value[string](p, `document.getElementById("curves-at").textContent`))
	on := ladderSample(t)[0]
	var histograms []result.Histogram
	for _, c := range report.AllSeries(on.Object, on.Runs) {
		if c.Variant.Name == "on" && c.Counts() == "RTT from the intended send" {
			for _, r := range c.Rounds {
				histograms = append(histograms, r.Histogram)
			}
		}
	}
	stored, err := resulttest.Merge(histograms...)
	if err != nil {
		t.Fatal(err)
	}
	// The number of plots, the number of lines in the first one, and its scale. There are two variants of three rounds, each
	// with its course over time.
	want := []string{
		"3 8 log", "tcp-256-at-23000 RTT from the actual send", "1 8 log", "3 8 linear", "3 2 linear", "2 1 linear",
		"p90  on " + micros(stored.Percentile(stats.P90, 0).Ns) + " µs",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.quiet()
}

// Arrow keys move through a matrix, whose fields describe their pairs.
func TestMatrixByKeyboard(t *testing.T) {
	p := open(t, chromium.Start(t, browserPatience), written(t, pairsSample(t, 60)))
	p.tabTo("table.heat td")
	p.press(kb.ArrowRight, 1)
	p.press(kb.ArrowDown, 2)
	got := value[string](p, `document.querySelector(".readout").textContent`)
	pair, told, _ := strings.Cut(got, ": ")
	focus := value[string](p, "document.activeElement.textContent")
	if pair != "rack-03 to rack-02" || told != map[string]string{"": "no pair"}[focus] && told != focus+" µs" {
		t.Errorf("the field with %q tells %q", focus, got)
	}
	p.quiet()
}

// Markup in names and evidence is shown as text; the policy would also refuse a script in it.
func TestReportIsHarmless(t *testing.T) {
	p := open(t, chromium.Start(t, browserPatience), written(t, hostileSample(t)))
	if n := value[int](p, `document.querySelectorAll("img, b.evil").length`); n > 0 {
		t.Errorf("%d elements came from names", n)
	}
	if got := value[string](p, "document.title"); !strings.HasSuffix(got, "– latency report") {
		t.Errorf("the title is %q", got)
	}
	p.quiet()
	// The policy of the page also refuses a script that is added later.
	value[bool](p, `(() => { const s = document.createElement("script"); s.textContent = "document.title = 'owned'"; document.body.append(s); return true; })()`)
	if value[string](p, "document.title") == "owned" {
		t.Error("a script that was put in was run")
	}
}
