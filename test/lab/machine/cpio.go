package machine

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// File types of cpio.
const (
	typeRegular = 0o100000
	typeFolder  = 0o040000
	typeLink    = 0o120000
)

// CPIO writes an archive in the format of the Linux initramfs, "newc".
type CPIO struct {
	w       *bufio.Writer
	inode   int
	folders map[string]bool
}

// NewCPIO begins an archive.
func NewCPIO(w io.Writer) *CPIO {
	return &CPIO{w: bufio.NewWriter(w), folders: map[string]bool{"": true}}
}

// add writes an entry, after its missing parent folders.
func (c *CPIO) add(name string, mode, uid, gid int, size int64, content io.Reader) error {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if parent := strings.TrimPrefix(path.Dir("/"+name), "/"); !c.folders[parent] {
		if err := c.add(parent, typeFolder|0o755, 0, 0, 0, nil); err != nil {
			return err
		}
	}
	if mode&0o170000 == typeFolder {
		c.folders[name] = true
	}
	c.inode++
	// Magic, inode, mode, uid, gid, links, time, size, four device numbers, length of the name, checksum.
	fmt.Fprintf(c.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", c.inode, mode, uid, gid, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0)
	fmt.Fprintf(c.w, "%s\x00%s", name, padding(110+len(name)+1))
	if content != nil {
		if n, err := io.Copy(c.w, content); err != nil || n != size {
			return fmt.Errorf("copying %d bytes of %s: %d: %w", size, name, n, err)
		}
		fmt.Fprint(c.w, padding(int(size)))
	}
	return nil
}

// padding returns the bytes that make a length a multiple of four.
func padding(length int) string { return strings.Repeat("\x00", (4-length%4)%4) }

// File adds a file.
func (c *CPIO) File(name string, mode int, content []byte) error {
	return c.add(name, typeRegular|mode, 0, 0, int64(len(content)), strings.NewReader(string(content)))
}

// Copy adds a file of this machine, with its mode.
func (c *CPIO) Copy(name, source string) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	return c.File(name, int(info.Mode().Perm()), content)
}

// Image adds the files of a container image.
func (c *CPIO) Image(archive string) error {
	image, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		return fmt.Errorf("reading the image: %w", err)
	}
	flat := mutate.Extract(image)
	defer flat.Close()
	for in := tar.NewReader(flat); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the image: %w", err)
		}
		mode := int(h.Mode) & 0o7777
		switch h.Typeflag {
		case tar.TypeReg:
			err = c.add(h.Name, typeRegular|mode, h.Uid, h.Gid, h.Size, in)
		case tar.TypeDir:
			if !c.folders[strings.Trim(h.Name, "/")] {
				err = c.add(h.Name, typeFolder|mode, h.Uid, h.Gid, 0, nil)
			}
		case tar.TypeSymlink:
			err = c.add(h.Name, typeLink|0o777, h.Uid, h.Gid, int64(len(h.Linkname)), strings.NewReader(h.Linkname))
		case tar.TypeLink:
			err = c.add(h.Name, typeLink|0o777, h.Uid, h.Gid, int64(len(h.Linkname)+1), strings.NewReader("/"+h.Linkname))
		default:
			err = fmt.Errorf("it has the type %q", h.Typeflag)
		}
		if err != nil {
			return fmt.Errorf("copying %s of the image: %w", h.Name, err)
		}
	}
}

// Close writes the entry that marks the end of the archive.
func (c *CPIO) Close() error {
	if err := c.add("TRAILER!!!", 0, 0, 0, 0, nil); err != nil {
		return err
	}
	return c.w.Flush()
}
