package images

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/bench-image/pinger"
)

// suiteLibc is the minor version of the suite's C library, glibc 2.36.
const suiteLibc = 36

// pingerProgram compiles the pinger: for a release with the compiler of the image's suite, otherwise with the compiler of this machine.
// The pinger is linked dynamically. If it imports symbols that are newer than the image's C library, pingerProgram returns no files
// and logs it.
func pingerProgram(ctx context.Context, o Options) ([]file, error) {
	dir, err := os.MkdirTemp("", "tailgate-build-")
	if err != nil {
		return nil, fmt.Errorf("making a folder to build in: %w", err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, pinger.Program)
	if o.Release {
		err = CrossCompile(ctx, o, program)
	} else {
		err = pinger.Build(ctx, o.Root, program)
	}
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("reading the pinger: %w", err)
	}
	needed, err := libcNeeded(data)
	if err != nil {
		return nil, err
	}
	if needed > suiteLibc {
		fmt.Fprintf(o.Log, "the pinger is left out: compiled here it needs glibc 2.%d, and %s has 2.%d; the Dockerfile's build has it\n", needed, suite, suiteLibc)
		return nil, nil
	}
	return []file{{path: "/usr/local/bin/" + pinger.Program, mode: 0o755, data: data}}, nil
}

// libcNeeded returns the minor version of the newest glibc 2 symbol that a program imports.
func libcNeeded(program []byte) (int, error) {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return 0, fmt.Errorf("reading the pinger's symbols: %w", err)
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return 0, fmt.Errorf("reading the pinger's symbols: %w", err)
	}
	newest := 0
	for _, s := range symbols {
		version, ok := strings.CutPrefix(s.Version, "GLIBC_2.")
		if !ok {
			continue
		}
		minor, _, _ := strings.Cut(version, ".")
		n, err := strconv.Atoi(minor)
		if err != nil {
			return 0, fmt.Errorf("reading the pinger's symbols: version %q of %s: %w", s.Version, s.Name, err)
		}
		newest = max(newest, n)
	}
	return newest, nil
}
