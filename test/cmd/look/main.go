// Command look asks the kernel for what the local cluster needs, and prints what this machine lacks. hack/look.sh calls it after its
// own part. With -install it installs missing packages instead, where it can.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/tailgate-dev/tailgate/test/localcluster/look"
)

func main() {
	if slices.Contains(os.Args[1:], "-install") {
		if err := look.Install(context.Background(), os.Stderr, "."); err != nil {
			fmt.Fprintln(os.Stderr, "look:", err)
			os.Exit(1)
		}
		return
	}
	for _, line := range look.Kernel() {
		fmt.Println(line)
	}
}
