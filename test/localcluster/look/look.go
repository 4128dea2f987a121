// Package look finds what this machine lacks for the local cluster before anything is built or changed. hack/look.sh looks at files
// and commands; this package adds what only the kernel can answer, and installs missing packages where it can.
package look

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/test/environment"
)

// Check returns an error that lists everything that this machine lacks, each with its remedy. root is the root of the checkout.
func Check(ctx context.Context, root string) error {
	out, err := script(ctx, root, "-files")
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	list := strings.TrimSpace(out)
	if os.Geteuid() == 0 {
		list = strings.TrimSpace(strings.Join(append([]string{list}, Kernel()...), "\n"))
	}
	if list == "" && err != nil {
		return fmt.Errorf("looking at this machine: %w: %s", err, exit.Stderr)
	}
	if list != "" {
		return fmt.Errorf("this machine cannot run the local cluster yet, and nothing was changed:\n%s", list)
	}
	return nil
}

// Install installs the packages that are missing, without asking, if this is possible: as root on Debian and its derivatives. With
// names, it looks only at packages with these Debian names. A package that cannot be installed is an error.
func Install(ctx context.Context, log io.Writer, root string, only ...string) error {
	missing, err := missingPackages(ctx, root, only)
	if err != nil || len(missing) == 0 {
		return err
	}
	list := strings.Join(missing, " ")
	// On other systems than Debian, apt is a dependency of mmdebstrap and cannot install anything.
	_, noApt := exec.LookPath("apt-get")
	if _, err := os.Stat("/etc/debian_version"); err != nil || noApt != nil || os.Geteuid() != 0 {
		return fmt.Errorf("these packages (by their Debian names) are needed, please install them: %s", list)
	}
	fmt.Fprintf(log, "installing %s\n", list)
	// An archive of the user that cannot be read does not matter if the packages come from another one.
	update := aptGet(ctx, log, "update")
	if err := aptGet(ctx, log, append([]string{"install", "--yes", "--no-install-recommends"}, missing...)...); err != nil {
		return fmt.Errorf("%w; please install these packages: %s", errors.Join(update, err), list)
	}
	// A package can be installed without its files.
	if missing, err = missingPackages(ctx, root, only); err == nil && len(missing) > 0 {
		err = fmt.Errorf("files of these packages are missing, although they are installed: apt-get install --reinstall %s", strings.Join(missing, " "))
	}
	return err
}

// aptPatience limits the wait for another program that installs packages, such as unattended-upgrades after a boot.
const aptPatience = 5 * time.Minute

var aptInterval = 5 * time.Second

// aptGet runs apt-get. It waits for the locks of other programs, which apt-get itself does only for some of its locks.
func aptGet(ctx context.Context, log io.Writer, args ...string) error {
	for begin := time.Now(); ; {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"--quiet"}, args...)...)
		cmd.Env = environment.Tool()
		output, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		said := strings.TrimSpace(string(output))
		locked := strings.Contains(said, "Could not get lock") || strings.Contains(said, "locked by another process")
		if !locked || time.Since(begin) > aptPatience {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, said[strings.LastIndex(said, "\n")+1:])
		}
		fmt.Fprintln(log, "waiting for another program that installs packages")
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(aptInterval):
		}
	}
}

// missingPackages returns the Debian names of the packages that are missing; with names, only those among them.
func missingPackages(ctx context.Context, root string, only []string) ([]string, error) {
	out, err := script(ctx, root, "-packages")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strings.Fields(out), func(name string) bool { return len(only) > 0 && !slices.Contains(only, name) }), nil
}

// script runs hack/look.sh.
func script(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", append([]string{filepath.Join(root, "hack", "look.sh")}, args...)...)
	cmd.Env = environment.Tool()
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("running hack/look.sh: %w", err)
	}
	return string(out), err
}
