//go:build site

package site

import (
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tailgate-dev/tailgate/test/chromium"
)

// built is the folder to which `make site` writes the site.
const built = "../../bin/site"

// page holds the properties of a page in the browser.
type page struct {
	Title, Heading string
	IDs, Links     []string
}

// Every link leads to a page and a heading that exist, and axe-core finds no violation, on a wide and on a narrow screen.
func TestSite(t *testing.T) {
	files := filesIn(t, built, ".html")
	// The pages for contributors are not on the site.
	sources := slices.DeleteFunc(filesIn(t, "../../docs", ".md"), func(name string) bool { return strings.HasPrefix(name, "internals/") })
	if len(files) != len(sources) {
		t.Fatalf("%d pages of %d files in docs/", len(files), len(sources))
	}
	axe, err := chromium.Axe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	browser := chromium.Start(t, 2*time.Minute)
	pages := map[string]page{}
	for _, file := range files {
		pages[file] = visit(t, browser, file, axe)
	}
	for name, p := range pages {
		for _, link := range p.Links {
			to, anchor, _ := strings.Cut(link, "#")
			if to == "" {
				to = name
			} else {
				to = path.Join(path.Dir(name), to)
			}
			if target, ok := pages[to]; !ok && !exists(to) {
				t.Errorf("%s: there is no page for the link %s", name, link)
			} else if ok && anchor != "" && !slices.Contains(target.IDs, anchor) {
				t.Errorf("%s: %s has no heading for the link %s", name, to, link)
			}
		}
	}
}

// filesIn returns the files of a folder and its folders that end in ext, with slashes.
func filesIn(t *testing.T, folder, ext string) []string {
	t.Helper()
	var files []string
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ext {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(built, name))
	return err == nil
}

// visit opens the page with a name and checks it on its own.
func visit(t *testing.T, browser context.Context, name, axe string) page {
	t.Helper()
	ctx, stop := chromedp.NewContext(browser)
	defer stop()
	ctx, stop = context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	file, err := filepath.Abs(filepath.Join(built, name))
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []int64{1280, 400} {
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 900), chromedp.Navigate("file://"+file)); err != nil {
			t.Fatal(err)
		}
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](axe+"; true")); err != nil {
			t.Fatalf("%s: loading axe-core: %v", name, err)
		}
		violations, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](
			`axe.run().then(r => r.violations.map(v => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map(n => n.html).join(" ")))`, chromedp.EvalAwaitPromise))
		if err != nil {
			t.Fatalf("%s: running axe-core: %v", name, err)
		}
		for _, v := range violations {
			t.Errorf("%s, %d pixels wide: %s", name, width, v)
		}
		if name == "index.html" || name == "tutorial-kubeadm.html" {
			picture(t, ctx, filepath.Join(built, strings.TrimSuffix(name, ".html"))+map[int64]string{1280: "-wide.png", 400: "-narrow.png"}[width])
		}
	}
	p, err := chromedp.Run(ctx, chromedp.Evaluate[page](`({
		Title: document.title, Heading: document.querySelector("main h1").textContent,
		IDs: [...document.querySelectorAll("[id], a[name]")].map(e => e.id || e.name),
		Links: [...document.querySelectorAll("a[href], img[src]")].map(e => decodeURIComponent(e.getAttribute("href") || e.getAttribute("src"))).filter(h => !/^[a-z]+:/.test(h)),
	})`))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if p.Title != p.Heading+" · Tailgate" || len(p.Links) < 20 {
		t.Errorf("%s: title %q, heading %q, %d links", name, p.Title, p.Heading, len(p.Links))
	}
	return p
}

// picture saves a screenshot of the top of the page.
func picture(t *testing.T, ctx context.Context, file string) {
	t.Helper()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, png, 0o644); err != nil {
		t.Fatal(err)
	}
}
