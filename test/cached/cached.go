// Package cached keeps downloads and builds of tests in the user's cache. Each folder is either complete or absent.
package cached

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// patience limits a download.
const patience = 5 * time.Minute

// pollInterval is the time between two attempts to take a lock.
const pollInterval = 100 * time.Millisecond

// Dir returns the folder of the project in the user's cache.
func Dir() (string, error) {
	dir, err := os.UserCacheDir() // $XDG_CACHE_HOME, or $HOME/.cache.
	if err != nil {
		return "", fmt.Errorf("looking for the cache folder: %w", err)
	}
	return filepath.Join(dir, "tailgate"), nil
}

// Folder returns the path of a folder in the user's cache, which Once fills.
func Folder(ctx context.Context, name string, fill func(tmp string) error) (string, error) {
	cache, err := Dir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, name)
	if err := Once(ctx, dir, fill); err != nil {
		return "", fmt.Errorf("filling %s: %w", dir, err)
	}
	return dir, nil
}

// Scratch returns an empty folder in the user's cache for temporary files. One process has it at a time. release removes it; if
// the process is killed, the next one does.
func Scratch(ctx context.Context, name string) (dir string, release func(), err error) {
	cache, err := Dir()
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(cache, name)
	unlock, err := Lock(ctx, dir+".lock")
	if err != nil {
		return "", nil, err
	}
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
		unlock()
		return "", nil, err
	}
	return dir, func() {
		_ = os.RemoveAll(dir) // if this fails, the next process removes it
		unlock()
	}, nil
}

// temporary begins the names of folders of Temporary.
const temporary = "tailgate-temporary-"

// Temporary returns a new folder in another one, such as os.TempDir(), and a function that removes it. If the process is killed,
// RemoveTemporary removes the folder.
func Temporary(parent string) (dir string, remove func(), err error) {
	fresh, err := os.MkdirTemp(parent, "tailgate-new-")
	if err != nil {
		return "", nil, fmt.Errorf("making a temporary folder: %w", err)
	}
	// It has its lock before it has the name by which RemoveTemporary finds it.
	dir = filepath.Join(parent, temporary+filepath.Base(fresh))
	unlock, err := lockFolder(fresh)
	if err == nil {
		err = os.Rename(fresh, dir)
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("making a temporary folder: %w", err), os.RemoveAll(fresh))
	}
	return dir, func() {
		_ = os.RemoveAll(dir) // RemoveTemporary tries again.
		unlock()
	}, nil
}

// RemoveTemporary removes what killed processes left of Temporary in a folder.
func RemoveTemporary(parent string) error {
	dirs, err := filepath.Glob(filepath.Join(parent, temporary+"*"))
	for _, dir := range dirs {
		if unlock, used := lockFolder(dir); used == nil {
			err = errors.Join(err, os.RemoveAll(dir))
			unlock()
		}
	}
	return err
}

// RemoveUnfinished removes the folders in the user's cache that killed processes were filling.
func RemoveUnfinished() error {
	cache, err := Dir()
	if err != nil {
		return err
	}
	dirs, err := filepath.Glob(filepath.Join(cache, "*.tmp"))
	ended, end := context.WithCancel(context.Background()) // It waits for no lock.
	end()
	for _, dir := range dirs {
		if unlock, used := Lock(ended, strings.TrimSuffix(dir, ".tmp")+".lock"); used == nil {
			err = errors.Join(err, os.RemoveAll(dir))
			unlock()
		}
	}
	return err
}

// lockFolder locks a folder, which must be no link, until the process ends at the latest.
func lockFolder(dir string) (unlock func(), err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	f := os.NewFile(uintptr(fd), dir)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "lock", Path: dir, Err: err}
	}
	return func() { f.Close() }, nil
}

// Lock takes an exclusive lock on the file, waiting until ctx ends. It creates the file, with its folder, if it does not exist. The
// lock dies with the process.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("creating the cache: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for errors.Is(err, unix.EWOULDBLOCK) {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-time.After(pollInterval):
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("waiting for the lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// Once fills the folder dir by calling fill with a temporary folder beside it, which is renamed when it is complete, so
// that dir is either absent or complete. Callers in several processes wait for each other. Once does nothing if dir
// exists.
func Once(ctx context.Context, dir string, fill func(tmp string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	unlock, err := Lock(ctx, dir+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil { // Another process was quicker.
		return nil
	}
	// This process holds the lock, so an existing folder was left by a process that died.
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("removing an unfinished folder: %w", err)
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return fmt.Errorf("creating a folder to fill: %w", err)
	}
	if err := fill(tmp); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("putting the folder in its place: %w", err)
	}
	return nil
}

// Download returns the content of a URL.
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
