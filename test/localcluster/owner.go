package localcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockDir is where all users of the machine meet. It is not the cache of a user. The lock files are removed after use.
const lockDir = "/run"

const (
	// usePatience limits how long a command waits for another command of the cluster; `make e2e` takes up to 16 minutes.
	usePatience = 40 * time.Minute
	// lockPatience is the same limit for a change of one cluster; the lab needs up to a quarter of an hour.
	lockPatience = 20 * time.Minute
)

// grace is how long a command waits for Ctrl-C before it removes a cluster that may still be of use.
var grace = 5 * time.Second

// Use reserves the machine's clusters, but not the lab, for a command that depends on them for a while, such as a demo or a suite of
// tests. It waits for other such commands, of any user. what names the command in their messages.
func Use(ctx context.Context, log io.Writer, what string) (release func(), err error) {
	if err := requireRoot(); err != nil {
		return nil, err
	}
	return hold(ctx, filepath.Join(lockDir, "tailgate-localcluster.use"), usePatience, log, what)
}

// UseContainer does the same for the container of test/container, whose cluster is beside those of the machine.
func UseContainer(ctx context.Context, log io.Writer, what string) (release func(), err error) {
	return hold(ctx, filepath.Join(lockDir, "tailgate-container.use"), usePatience, log, what)
}

// lock prevents two processes from changing a cluster at once.
func lock(ctx context.Context, o Options, s site, what string) (unlock func(), err error) {
	return hold(ctx, filepath.Join(lockDir, s.name("localcluster.lock")), lockPatience, o.log(), what)
}

// hold takes an exclusive lock on a file, which names its holder. It waits until ctx ends, and no longer than patience. The lock dies
// with the process.
func hold(ctx context.Context, path string, patience time.Duration, log io.Writer, what string) (release func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it did not end within %s", patience))
	defer cancel()
	var held *os.File
	said := false
	err = poll(ctx, func() (bool, error) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return false, fmt.Errorf("opening the lock of the local cluster: %w", err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && sameFile(f, path) {
			held = f
			return true, nil
		}
		defer f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return false, fmt.Errorf("locking %s: %w", path, err)
		}
		if err != nil && !said {
			said = true
			fmt.Fprintf(log, "waiting for another command that uses the local cluster: %s\n", holder(path))
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for another command that uses the local cluster (%s): %w", holder(path), err)
	}
	// The text is for people only, so it does not matter if it cannot be written.
	_ = held.Truncate(0)
	_, _ = held.WriteAt(fmt.Appendf(nil, "%s of %s in %s, process %d", what, currentUser(), checkout(), os.Getpid()), 0)
	return func() {
		_ = os.Remove(path) // Processes that wait open the file again.
		held.Close()
	}, nil
}

// sameFile reports whether the open file is still the file at path, and not one that its last holder removed.
func sameFile(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(open, named)
}

// holder returns the description of the command that has the lock.
func holder(path string) string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return "it is unknown which"
	}
	return string(text[:min(len(text), 500)])
}

// currentUser returns the name of the user who runs this command, also under sudo.
func currentUser() string {
	if name := os.Getenv("SUDO_USER"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprintf("user %d", os.Getuid())
}

// ownerFile names the user and the checkout that started the cluster, and the time, in three lines.
func (p paths) ownerFile() string { return p.join("owner") }

func noteOwner(p paths) error {
	text := fmt.Sprintf("%s\n%s\n%s\n", currentUser(), checkout(), time.Now().Format(time.DateTime))
	if err := os.WriteFile(p.ownerFile(), []byte(text), 0o644); err != nil {
		return fmt.Errorf("noting who starts the cluster: %w", err)
	}
	return nil
}

// owner describes who started the cluster, and whether it is the user and the checkout of this command.
func owner(p paths) (description string, own bool) {
	text, err := os.ReadFile(p.ownerFile())
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) < 3 {
		return "it is unknown who started it", false
	}
	own = lines[0] == currentUser() && lines[1] == checkout()
	return fmt.Sprintf("%s started it from %s at %s", lines[0], lines[1], lines[2]), own
}

// warn says that the cluster will be removed and why, and waits for Ctrl-C.
func warn(ctx context.Context, o Options, p paths, why string) error {
	who, _ := owner(p)
	fmt.Fprintf(o.log(), "removing the local cluster in %s with all its objects and results in %s: %s; %s. Ctrl-C keeps it.\n", p.state, grace, why, who)
	select {
	case <-ctx.Done():
		return fmt.Errorf("the cluster is kept: %w", cmp.Or(context.Cause(ctx), ctx.Err()))
	case <-time.After(grace):
		return nil
	}
}
