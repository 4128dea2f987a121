// Command standin passes each call to a test; see package standin.
package main

import (
	"os"

	"github.com/tailgate-dev/tailgate/test/standin"
)

func main() { os.Exit(standin.Main(os.Args, os.Stdout, os.Stderr)) }
