package main

import (
	"os"
	"regexp"
	"testing"
)

// command keeps main in the test's program.
var command func()

// A program that executes templates of the standard library calls methods by names that the linker does not know, so that it contains
// every exported method of all its packages. That was a fifth of the plugin, which has 40 MB without them.
func TestExecutesNoTemplates(t *testing.T) {
	command = main
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	// The names of the functions of a program; an expression does not match itself.
	for function, want := range map[string]bool{`internal/cli\.Run\b`: true, `text/template\.\(\*state\)\.walk`: false} {
		if got := regexp.MustCompile(function).Match(program); got != want {
			t.Errorf("%s is in the program: %v", function, got)
		}
	}
}
