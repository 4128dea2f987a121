package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// seen holds the files in which a container sees what its node runs, by identity key.
var seen = map[v1alpha1.IdentityKey]string{
	v1alpha1.IdentityBootID: "proc/sys/kernel/random/boot_id",
	v1alpha1.IdentityKernel: "proc/sys/kernel/osrelease",
}

// Verified returns an error unless the node has the identity that was verified, as KEY=VALUE.
func Verified(root string, verified []string) error {
	for _, arg := range verified {
		key, was, ok := strings.Cut(arg, "=")
		path := seen[v1alpha1.IdentityKey(key)]
		if !ok || path == "" {
			return fmt.Errorf("%q is not %s=ID or %s=RELEASE", arg, v1alpha1.IdentityBootID, v1alpha1.IdentityKernel)
		}
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return fmt.Errorf("reading what the node runs: %w", err)
		}
		if is := strings.TrimSpace(string(data)); is != was {
			return fmt.Errorf("the node has changed since it was verified: %s was %q and is %q", key, was, is)
		}
	}
	return nil
}
