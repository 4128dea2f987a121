// Package mounted writes files as a kubelet mounts a Secret.
package mounted

import (
	"errors"
	"os"
	"path/filepath"
)

// Write puts files into a folder: links to links, of which one is replaced at once, so that a reader sees old or new files.
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
