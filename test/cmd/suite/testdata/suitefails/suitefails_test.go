package suitefails

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
)

func TestSpecs(t *testing.T) { RunSpecs(t, "Specs") }

var _ = BeforeSuite(func() { Fail("before all specs") })

var _ = It("would pass", func() {})
