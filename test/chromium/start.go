package chromium

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Start starts a browser for all pages of a test.
func Start(t *testing.T, patience time.Duration) context.Context {
	t.Helper()
	b, err := Install(t.Context(), os.Stderr)
	if err != nil {
		t.Fatalf("this is tested in a browser, and there is none: %v", err)
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(b.Path), chromedp.Env(b.Env...), chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Headless,
		// Tests run as root, for which there is no sandbox. They open only pages that they wrote themselves.
		chromedp.NoSandbox, chromedp.Flag("no-zygote", true), chromedp.DisableGPU, chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("font-render-hinting", "none"), chromedp.Flag("hide-scrollbars", true),
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(patience),
	}
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("starting %s: %v", b.Path, err)
	}
	return ctx
}
