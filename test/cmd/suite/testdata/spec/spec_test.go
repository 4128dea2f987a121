package spec

import (
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
)

func TestSpecs(t *testing.T) { RunSpecs(t, "Specs") }

// first reports whether it is called for the first time with this name.
func first(name string) bool {
	mark := os.Getenv("SUITE_MARKS") + "/" + name
	_, err := os.Stat(mark)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		Fail(err.Error())
	}
	return err != nil
}

func once(name string) {
	if first(name) {
		Fail("the first time")
	}
}

var _ = Describe("A (spec)", func() {
	It("passes", func() {})
	It("passes the second time [1.5x]", Label("flaky"), func() { once("spec") })
	It("fails each time", Label("twice"), func() { Fail("each time") })
	It("panics the first time", Label("panics"), func() {
		if first("panic") {
			panic("in a spec")
		}
	})
	It("is skipped", Label("skips"), func() { Skip("this machine lacks it") })
})

var _ = Describe("In order", Ordered, Label("ordered"), func() {
	ready := false
	It("first", func() { ready = true })
	It("second", func() {
		if !ready {
			Fail("it needs the first")
		}
		once("ordered")
	})
	It("third", func() {})
})
