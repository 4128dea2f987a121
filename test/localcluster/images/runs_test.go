package images

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/test/field"
)

// loaders holds the path of the C library's loader by architecture.
var loaders = map[string]string{"amd64": "/lib64/ld-linux-x86-64.so.2", "arm64": "/lib/ld-linux-aarch64.so.1"}

// gcc compiles C source text without the C library of this machine, which stands for the compiler of any other machine.
func gcc(t *testing.T, path, source string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("gcc", append([]string{"-nostdlib", "-x", "c", "-o", path, "-"}, args...)...)
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// library compiles a stand-in for a library that defines versions; it has one function for each.
func library(t *testing.T, dir, name string, versions ...string) []byte {
	t.Helper()
	var source, script strings.Builder
	for i, v := range versions {
		fmt.Fprintf(&source, "void f%d(void) {}\n", i)
		fmt.Fprintf(&script, "%s { f%d; };\n", v, i)
	}
	list := filepath.Join(dir, name+".versions")
	if err := os.WriteFile(list, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return gcc(t, filepath.Join(dir, name), source.String(), "-shared", "-fPIC", "-Wl,-soname,"+name, "-Wl,--version-script="+list)
}

// needing compiles a program with an interpreter that needs a version of a library.
func needing(t *testing.T, interpreter, name, version string) []byte {
	t.Helper()
	dir := t.TempDir()
	library(t, dir, name, version)
	return gcc(t, filepath.Join(dir, "program"), "void f0(void); void _start(void) { f0(); }",
		"-fPIE", "-pie", "-Wl,--dynamic-linker="+interpreter, "-L"+dir, "-l:"+name)
}

// bookworm is a root file system with the C library of Debian 12, as far as the loader reads it.
func bookworm(t *testing.T, arch string) contents {
	t.Helper()
	loader, folder := loaders[arch], libraryFolders[arch][1]
	return contents{
		files: map[string][]byte{
			folder + "/libc.so.6":                library(t, t.TempDir(), "libc.so.6", "GLIBC_2.17", "GLIBC_2.34", "GLIBC_2.36"),
			folder + "/" + filepath.Base(loader): []byte("the loader"),
		},
		links: map[string]string{
			"/lib": "usr/lib", "/lib64": "usr/lib64",
			"/usr" + loader: "/" + strings.TrimPrefix(folder, "/usr/") + "/" + filepath.Base(loader),
		},
	}
}

// TestField tries programs of other compilers and machines in the image.
func TestField(t *testing.T) {
	field.Run(t, "machines", "test/localcluster/images", func(t *testing.T, c field.Case) map[string]string {
		interpreter := c.Arguments["interpreter"]
		if interpreter == "" {
			interpreter = loaders[runtime.GOARCH]
		}
		program := needing(t, interpreter, c.Arguments["library"], c.Arguments["version"])
		err := requireRuns(bookworm(t, runtime.GOARCH), runtime.GOARCH, file{path: "/usr/local/bin/program", data: program})
		if err == nil {
			return map[string]string{"answer": "runs"}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("more than one line: %q", err)
		}
		return map[string]string{"answer": err.Error()}
	})
}

func TestRequireRunsRefusesWhatItCannotRead(t *testing.T) {
	image := bookworm(t, runtime.GOARCH)
	good := needing(t, loaders[runtime.GOARCH], "libc.so.6", "GLIBC_2.36")
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	stripped := append([]byte{}, good...)
	clear(stripped[40:48]) // e_shoff
	clear(stripped[58:64]) // e_shentsize, e_shnum, e_shstrndx
	static := gcc(t, filepath.Join(t.TempDir(), "static"), "void _start(void) { }", "-static")
	loop := contents{links: map[string]string{"/lib64": "/usr/lib64", "/usr/lib64": "/lib64", "/lib": "/lib64"}}
	for name, tt := range map[string]struct {
		root    contents
		arch    string
		program []byte
		want    string
	}{
		"good":                      {image, runtime.GOARCH, good, ""},
		"static in an empty image":  {contents{}, runtime.GOARCH, static, ""},
		"dynamic in an empty image": {contents{}, runtime.GOARCH, good, "the interpreter that it names"},
		"links without an end":      {loop, runtime.GOARCH, good, "the interpreter that it names"},
		"a text":                    {image, runtime.GOARCH, []byte("#!/bin/sh\n"), "not an ELF program"},
		"cut off":                   {image, runtime.GOARCH, good[:60], "not an ELF program"},
		"another architecture":      {image, other, good, "the image for " + other},
		"without section headers":   {image, runtime.GOARCH, stripped, "section headers are stripped"},
	} {
		t.Run(name, func(t *testing.T) {
			err := requireRuns(tt.root, tt.arch, file{path: "/p", data: tt.program})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestPinger compiles the pinger while PATH and the environment have a compiler whose programs do not run in the image.
func TestPinger(t *testing.T) {
	newer := needing(t, loaders[runtime.GOARCH], "libc.so.6", "GLIBC_2.38")
	wrong := t.TempDir()
	for _, name := range []string{"gcc", "cc", "make", "ld"} {
		if err := os.WriteFile(filepath.Join(wrong, name), []byte("#!/bin/sh\nexit 9\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", wrong+":"+os.Getenv("PATH"))
	t.Setenv("CFLAGS", "-march=none")
	t.Setenv("MAKEFLAGS", "--question")
	cache, err := DefaultOptions(root, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	files, err := pingerProgram(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 1 || files[0].path != "/usr/local/bin/tailgate-pinger" || files[0].mode != 0o755 {
		t.Fatalf("got %d files, %q", len(files), files[0].path)
	}
	archive, err := benchRootfs(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	inside, err := readContents(archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := requireRuns(inside, cache.Arch, files...); err != nil {
		t.Error(err)
	}
	// The same check on Debian's own programs, and on one for a C library that is newer than Debian's.
	sockperf, ok := inside.file("/usr/bin/sockperf")
	if err := requireRuns(inside, cache.Arch, file{path: "sockperf", data: sockperf}); err != nil || !ok {
		t.Errorf("sockperf: %v, %v", ok, err)
	}
	if err := requireRuns(inside, cache.Arch, file{path: "p", data: newer}); err == nil || !strings.Contains(err.Error(), "GLIBC_2.38 of libc.so.6") {
		t.Errorf("error %v, want one with the version", err)
	}
}

// TestGoProgramsAreStatic builds a program of an image while GOFLAGS asks for one that needs a loader, as many distributions do.
func TestGoProgramsAreStatic(t *testing.T) {
	t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -buildmode=pie")
	if _, err := goProgram(t.Context(), Options{Root: root, Arch: runtime.GOARCH, Log: io.Discard}, "./test/localcluster/cmd/pause"); err != nil {
		t.Error(err)
	}
}
