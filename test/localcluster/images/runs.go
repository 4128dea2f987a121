package images

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// machines holds the ELF machine of each architecture.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// libraryFolders lists the folders in which Debian's loader looks for libraries when there is no cache of their paths.
var libraryFolders = map[string][]string{
	"amd64": {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib", "/usr/lib"},
	"arm64": {"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib", "/usr/lib"},
}

// maxLinks limits the symbolic links in a path, as the kernel does.
const maxLinks = 40

// contents is the root file system of an image. The zero value is empty: only static programs run in it.
type contents struct {
	files map[string][]byte // by absolute path
	links map[string]string // the targets of symbolic links
}

// readContents reads the archive of a root file system.
func readContents(archive []byte) (contents, error) {
	c := contents{map[string][]byte{}, map[string]string{}}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return c, fmt.Errorf("reading the root file system: %w", err)
		}
		name := path.Clean("/" + h.Name)
		switch h.Typeflag {
		case tar.TypeSymlink:
			c.links[name] = h.Linkname
		case tar.TypeLink:
			c.files[name] = c.files[path.Clean("/"+h.Linkname)]
		case tar.TypeReg:
			if c.files[name], err = io.ReadAll(r); err != nil {
				return c, fmt.Errorf("reading %s of the root file system: %w", name, err)
			}
		}
	}
}

// file returns the content of the file at an absolute path, following symbolic links.
func (c contents) file(name string) ([]byte, bool) {
	rest, at, links := strings.Split(path.Clean(name), "/")[1:], "/", 0
	for len(rest) > 0 {
		at, rest = path.Join(at, rest[0]), rest[1:]
		target, link := c.links[at]
		if !link {
			continue
		}
		if links++; links > maxLinks {
			return nil, false
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(at), target)
		}
		rest, at = append(strings.Split(path.Clean(target), "/")[1:], rest...), "/"
	}
	content, ok := c.files[at]
	return content, ok
}

// library returns the library that the loader finds under a name, or nil if there is none.
func (c contents) library(arch, name string) (*elf.File, error) {
	for _, dir := range libraryFolders[arch] {
		content, ok := c.file(path.Join(dir, name))
		if !ok {
			continue
		}
		f, err := elf.NewFile(bytes.NewReader(content))
		if err != nil {
			return nil, fmt.Errorf("reading the image's %s: %w", name, err)
		}
		return f, nil
	}
	return nil, nil
}

// requireRuns returns an error unless every program can start in an image with this root: the image has the program's interpreter
// and libraries, and the libraries define the versions of symbols that the program needs.
func requireRuns(c contents, arch string, programs ...file) error {
	for _, p := range programs {
		if err := runs(c, arch, p.data); err != nil {
			return fmt.Errorf("%s does not run in the image: %w", p.path, err)
		}
	}
	return nil
}

func runs(c contents, arch string, program []byte) error {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("it is not an ELF program: %w", err)
	}
	if f.Machine != machines[arch] {
		return fmt.Errorf("it is for %s, the image for %s", f.Machine, arch)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
		if err != nil {
			return fmt.Errorf("reading its interpreter: %w", err)
		}
		interpreter := string(bytes.TrimRight(name, "\x00"))
		if _, ok := c.file(interpreter); !ok || !path.IsAbs(interpreter) {
			return fmt.Errorf("the image has no %s, the interpreter that it names; a compiler for another C library or system made it", interpreter)
		}
	}
	return hasLibraries(c, arch, f)
}

// hasLibraries compares the libraries and versions that a program needs with those of an image.
func hasLibraries(c contents, arch string, f *elf.File) error {
	names, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("reading the libraries that it needs: %w", err)
	}
	libraries := map[string]*elf.File{}
	for _, name := range names {
		library, err := c.library(arch, name)
		if err != nil {
			return err
		}
		if library == nil {
			return fmt.Errorf("the image has no %s, a library that it needs", name)
		}
		libraries[name] = library
	}
	needed, err := versionsNeeded(f)
	if err != nil {
		return err
	}
	for _, from := range needed {
		library := libraries[from.Name]
		if library == nil {
			return fmt.Errorf("it needs a version of %s, a library that it does not name", from.Name)
		}
		defined, err := library.DynamicVersions()
		if err != nil {
			return fmt.Errorf("reading the versions in the image's %s: %w", from.Name, err)
		}
		for _, need := range from.Needs {
			known := func(v elf.DynamicVersion) bool { return v.Name == need.Dep }
			if need.Flags&elf.VER_FLG_WEAK == 0 && !slices.ContainsFunc(defined, known) {
				return fmt.Errorf("it needs %s of %s, which the image's does not have; a compiler for a newer system made it", need.Dep, from.Name)
			}
		}
	}
	return nil
}

// versionsNeeded returns the versions of symbols that a program needs. A program without any has no section for them.
func versionsNeeded(f *elf.File) ([]elf.DynamicVersionNeed, error) {
	dynamic := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_DYNAMIC })
	if dynamic && f.SectionByType(elf.SHT_DYNAMIC) == nil {
		return nil, errors.New("its section headers are stripped, so that the libraries that it needs cannot be read")
	}
	if f.SectionByType(elf.SHT_GNU_VERNEED) == nil {
		return nil, nil
	}
	needed, err := f.DynamicVersionNeeds()
	if err != nil {
		return nil, fmt.Errorf("reading the versions of symbols that it needs: %w", err)
	}
	return needed, nil
}
