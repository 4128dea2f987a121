// Package cached keeps what tests download in the user's cache: each folder is there completely or not at all.
package cached

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a download may take.
const patience = 5 * time.Minute

// Folder is the path of a folder of the user's cache. If it is not there, fill writes its content into a temporary one
// beside it, which is then renamed. Other processes wait meanwhile.
func Folder(name string, fill func(tmp string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("looking for the cache folder: %w", err)
	}
	dir := filepath.Join(cache, "tailgate", name)
	if err := once(dir, fill); err != nil {
		return "", fmt.Errorf("filling %s: %w", dir, err)
	}
	return dir, nil
}

// Scratch is an empty folder of the user's cache for temporary files, which one process has at a time. Release removes it.
// If the process is killed, the next one does.
func Scratch(name string) (dir string, release func(), err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", nil, fmt.Errorf("looking for the cache folder: %w", err)
	}
	dir = filepath.Join(cache, "tailgate", name)
	lock, err := locked(dir)
	if err != nil {
		return "", nil, err
	}
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
		return "", nil, errors.Join(err, lock.Close())
	}
	return dir, func() {
		_ = os.RemoveAll(dir) // or else the next process does
		lock.Close()
	}, nil
}

// locked waits until no other process has the lock of a folder, and takes it.
func locked(dir string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for another process that fills it: %w", err), lock.Close())
	}
	return lock, nil
}

func once(dir string, fill func(tmp string) error) error {
	lock, err := locked(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	// A process that died while it filled the folder left this one.
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return err
	}
	if err := fill(tmp); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return os.Rename(tmp, dir)
}

// Download reads a URL.
func Download(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	return io.ReadAll(response.Body)
}
