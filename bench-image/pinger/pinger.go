// Package pinger compiles Tailgate's own measuring tool, whose C sources are in the folder src. What it does is
// described in src/main.c, and what it takes by tailgate-pinger --help.
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

// Build compiles the tool into the file at path, with make and gcc, for the CPU and the C library of this machine.
// root is the root of the repository; variables go to make, as NAME=value. The error holds what the compiler said.
func Build(ctx context.Context, root, path string, variables ...string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("compiling the pinger: %w", err)
	}
	args := append([]string{"-C", filepath.Join(root, "bench-image", "pinger"), "PROGRAM=" + path, path}, variables...)
	cmd := exec.CommandContext(ctx, "make", args...)
	// Flags of a make that runs us are not for the one that we run.
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
