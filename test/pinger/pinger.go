// Package pinger compiles Tailgate's own measuring tool, whose C sources are in bench-image/pinger/src. src/main.c describes
// the tool, and tailgate-pinger --help its arguments.
package pinger

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Program is the tool's name in the bench image.
const Program = "tailgate-pinger"

// Build compiles the tool into the file at path, with make and gcc, for the CPU and the C library of this machine. root
// is the root of the repository; variables are passed to make, as NAME=value. The error contains the compiler's output.
func Build(ctx context.Context, root, path string, variables ...string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("compiling the pinger: %w", err)
	}
	args := append([]string{"-C", filepath.Join(root, "bench-image", "pinger"), "PROGRAM=" + path, path}, variables...)
	cmd := exec.CommandContext(ctx, "make", args...)
	// The flags of a make that runs this process do not apply to the make started here.
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name != "MAKEFLAGS" && name != "MFLAGS" && name != "MAKELEVEL" && name != "CFLAGS" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the pinger (it takes gcc and make): %w: %s", err, strings.TrimSpace(string(output)))
	}
	return nil
}
