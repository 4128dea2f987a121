package images

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// RepositoryRoot returns the checkout that contains the working directory. It does not look for a go.mod, because the modules nested
// in the checkout have their own.
func RepositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the checkout: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "test", "localcluster", "binaries", "kubernetes", "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("this must be run inside the Tailgate checkout")
		}
		dir = parent
	}
}
