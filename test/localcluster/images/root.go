package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// RepositoryRoot is the nearest folder upwards from the working directory with a go.mod.
func RepositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the repository: %w", err)
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		switch {
		case err == nil:
			return dir, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("looking for the repository: %w", err)
		case dir == filepath.Dir(dir):
			return "", errors.New("there is no go.mod in this folder or above it; run this inside the repository")
		}
		dir = filepath.Dir(dir)
	}
}
