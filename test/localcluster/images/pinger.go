package images

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/pinger"
)

// pingerProgram compiles the pinger with the compiler and the C library of the image's suite, whatever this machine has. The pinger
// is linked dynamically.
func pingerProgram(ctx context.Context, o Options) ([]file, error) {
	dir, remove, err := cached.Temporary(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("making a folder to build in: %w", err)
	}
	defer remove()
	program := filepath.Join(dir, pinger.Program)
	if err := Compile(ctx, o, program); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("reading the pinger: %w", err)
	}
	return []file{{path: "/usr/local/bin/" + pinger.Program, mode: 0o755, data: data}}, nil
}
