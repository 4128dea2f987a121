package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is the modification time of every file in the images, so that the same content always gives the same digest.
var epoch = time.Unix(0, 0)

// file is a regular file of an image, owned by root.
type file struct {
	// path is absolute.
	path string
	mode int64
	data []byte
}

// userFiles returns the files that give the images' user a name.
func userFiles() []file {
	return []file{
		{path: "/etc/passwd", mode: 0o644, data: []byte("nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		{path: "/etc/group", mode: 0o644, data: []byte("nonroot:x:65532:\n")},
	}
}

// writeFiles writes files and their parent folders, in the order of their paths.
func writeFiles(w *tar.Writer, files []file) error {
	files = slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.path, b.path) })
	done := map[string]bool{"": true}
	for _, f := range files {
		name := strings.TrimPrefix(path.Clean(f.path), "/")
		for i, c := range name {
			if c != '/' || done[name[:i]] {
				continue
			}
			done[name[:i]] = true
			h := &tar.Header{Typeflag: tar.TypeDir, Name: name[:i+1], Mode: 0o755, ModTime: epoch}
			if err := w.WriteHeader(h); err != nil {
				return fmt.Errorf("writing folder %s: %w", name[:i], err)
			}
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: f.mode, Size: int64(len(f.data)), ModTime: epoch}
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("writing %s: %w", f.path, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return fmt.Errorf("writing %s: %w", f.path, err)
		}
	}
	return nil
}

// fileLayer returns a layer with files.
func fileLayer(files ...file) (v1.Layer, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	if err := writeFiles(w, files); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("ending a layer: %w", err)
	}
	return tarLayer(buffer.Bytes())
}

// tarLayer returns a layer with the content of a tar archive. The compression is fast instead of good, because most layers stay on
// this machine.
func tarLayer(archive []byte) (v1.Layer, error) {
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive)), nil
	}, tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("making a layer: %w", err)
	}
	return layer, nil
}

// unwanted lists paths that no tool reads when it runs: documentation, translations, character sets, package
// management, and paths that the container runtime provides. Scanners read the list of packages in var/lib/dpkg/status.d.
var unwanted = []string{
	"dev", "proc", "sys", "run",
	"etc/apt", "etc/dpkg", "etc/fstab", "etc/hostname", "etc/resolv.conf",
	"usr/lib/*/gconv", "usr/share/bash-completion", "usr/share/doc-base", "usr/share/gcc", "usr/share/gdb",
	"usr/share/info", "usr/share/lintian", "usr/share/locale", "usr/share/man", "usr/share/sockperf",
	"var/cache", "var/lib/apt", "var/lib/dpkg/alternatives", "var/lib/dpkg/arch", "var/lib/dpkg/info", "var/lib/dpkg/status",
	"var/lib/dpkg/triggers", "var/lib/dpkg/updates", "var/log",
}

// wanted reports whether the file or folder with this relative path belongs into an image. Copyright notices are the only
// documentation that stays.
func wanted(name string) bool {
	parts := strings.Split(name, "/")
	for _, pattern := range unwanted {
		depth := strings.Count(pattern, "/") + 1
		if len(parts) < depth {
			continue
		}
		if match, _ := path.Match(pattern, strings.Join(parts[:depth], "/")); match {
			return false
		}
	}
	if rest, ok := strings.CutPrefix(name, "usr/share/doc/"); ok {
		return !strings.Contains(rest, "/") || path.Base(rest) == "copyright"
	}
	return true
}

// filterRootfs copies the archive of a root file system without unwanted files, modification times, names of owners, and
// devices. It adds the files of the images' user.
func filterRootfs(in io.Reader, out io.Writer) error {
	r, w := tar.NewReader(in), tar.NewWriter(out)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading the root file system: %w", err)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		switch {
		case name == "", !wanted(name):
			continue
		case h.Typeflag == tar.TypeLink && !wanted(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")):
			continue
		case h.Typeflag == tar.TypeChar, h.Typeflag == tar.TypeBlock:
			continue
		}
		if h.Typeflag == tar.TypeDir {
			name += "/"
		}
		clean := &tar.Header{
			Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode,
			Uid: h.Uid, Gid: h.Gid, ModTime: epoch,
		}
		if err := w.WriteHeader(clean); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		if _, err := io.Copy(w, r); err != nil {
			return fmt.Errorf("copying %s: %w", name, err)
		}
	}
	if err := writeFiles(w, userFiles()); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("ending the root file system: %w", err)
	}
	return nil
}
