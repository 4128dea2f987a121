// Package mounted writes files in the way in which a kubelet mounts a Secret.
package mounted

import (
	"errors"
	"os"
	"path/filepath"
)

// Write writes files to a folder as links through another link, which is replaced atomically, so that a reader sees either
// old or new files.
func Write(folder string, files map[string][]byte) error {
	data := filepath.Join(folder, "..data")
	before, beforeErr := os.Readlink(data)
	version, err := os.MkdirTemp(folder, "..version-")
	if err != nil {
		return err
	}
	err = os.Symlink(filepath.Base(version), data+"_tmp")
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(version, name), content, 0o600))
		if beforeErr != nil {
			err = errors.Join(err, os.Symlink(filepath.Join("..data", name), filepath.Join(folder, name)))
		}
	}
	err = errors.Join(err, os.Rename(data+"_tmp", data))
	if beforeErr == nil {
		err = errors.Join(err, os.RemoveAll(filepath.Join(folder, before)))
	}
	return err
}
