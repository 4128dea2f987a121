package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVerified(t *testing.T) {
	root := t.TempDir()
	for path, content := range map[string]string{"proc/sys/kernel/random/boot_id": "b-1\n", "proc/sys/kernel/osrelease": "6.1.0\n"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		root string
		args []string
		// want is a part of the error; empty: there is none.
		want string
	}{
		"as it was verified":                {root, []string{"BootID=b-1", "Kernel=6.1.0"}, ""},
		"nothing counts":                    {root, nil, ""},
		"booted":                            {root, []string{"BootID=b-0", "Kernel=6.1.0"}, `BootID was "b-0" and is "b-1"`},
		"another kernel":                    {root, []string{"BootID=b-1", "Kernel=6.0.0"}, `Kernel was "6.0.0" and is "6.1.0"`},
		"a boot of which nothing was known": {root, []string{"BootID="}, `BootID was "" and is "b-1"`},
		"a key that it cannot see":          {root, []string{"Kubelet=v1"}, `"Kubelet=v1"`},
		"no key":                            {root, []string{"b-1"}, `"b-1"`},
		"a node that it cannot see":         {t.TempDir(), []string{"BootID=b-1"}, "reading what the node runs"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := Verified(c.root, c.args)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
