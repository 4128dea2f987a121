package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// entry holds the fields of an initramfs entry that the kernel uses.
type entry struct {
	Name, Content string
	Mode          int64
}

// readCPIO reads an archive as the kernel does (Documentation/driver-api/early-userspace/buffer-format.rst).
func readCPIO(t *testing.T, archive []byte) (entries []entry) {
	t.Helper()
	align := func(n int64) int64 { return (n + 3) &^ 3 }
	for at := int64(0); ; {
		field := func(i int64) int64 {
			n, err := strconv.ParseInt(string(archive[at+6+8*i:at+14+8*i]), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if string(archive[at:at+6]) != "070701" {
			t.Fatalf("no entry at %d: %q", at, archive[at:at+6])
		}
		mode, size, length := field(1), field(6), field(11)
		name := string(archive[at+110 : at+110+length-1])
		at = align(at + 110 + length)
		if name == "TRAILER!!!" {
			return entries
		}
		entries = append(entries, entry{name, string(archive[at : at+size]), mode})
		at = align(at + size)
	}
}

func TestInitramfs(t *testing.T) {
	var archive bytes.Buffer
	c := NewCPIO(&archive)
	if err := c.File("/a", 0o644, []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := c.File("/lab/modules/b.ko", 0o600, []byte("12345")); err != nil {
		t.Fatal(err)
	}
	if err := c.File("/lab/init", 0o755, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	want := []entry{
		{"a", "1", 0o100644},
		{"lab", "", 0o040755}, {"lab/modules", "", 0o040755}, {"lab/modules/b.ko", "12345", 0o100600},
		{"lab/init", "", 0o100755},
	}
	if diff := cmp.Diff(want, readCPIO(t, archive.Bytes())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestModules checks the order of modules with dependencies in the format of the kernel's build.
func TestModules(t *testing.T) {
	tree := t.TempDir()
	module := func(path, depends string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("gcc", "-x", "c", "-c", "-o", path, "-")
		cmd.Stdin = strings.NewReader(`const char info[] __attribute__((section(".modinfo"))) = "license=GPL\0depends=` + depends + `";`)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	module(tree+"/net/virtio_net.ko", "virtio,net_failover")
	module(tree+"/net/net_failover.ko", "failover")
	module(tree+"/core/failover.ko", "")
	module(tree+"/i2c/i2c-algo-bit.ko", "")
	own := filepath.Join(tree, "own.ko")
	module(own, "i2c-algo-bit,other")
	files := map[string]string{"/onload/own.ko": own}
	got, err := Modules([]string{"virtio_net", "failover", "/onload/own.ko debug=1"}, tree, files)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/lab/modules/failover.ko", "/lab/modules/net_failover.ko", "/lab/modules/virtio_net.ko", "/lab/modules/i2c_algo_bit.ko", "/onload/own.ko debug=1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, m := range want {
		path, _, _ := strings.Cut(m, " ")
		if files[path] == "" {
			t.Errorf("%s is not among the guest's files", path)
		}
	}
}

func TestBoot(t *testing.T) {
	for _, tt := range []struct {
		name        string
		fails, want int
		wantNoBoot  bool
	}{
		{"never", 0, 1, false},
		{"once", 1, 2, false},
		{"always", 100, MaxBoots, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			starts := 0
			err := Boot(t.Output(), func() error {
				if starts++; starts <= tt.fails {
					return fmt.Errorf("wrapped: %w", ErrNoBoot)
				}
				return nil
			})
			if starts != tt.want || errors.Is(err, ErrNoBoot) != tt.wantNoBoot || (err != nil) != tt.wantNoBoot {
				t.Errorf("%d starts, error %v; want %d starts", starts, err, tt.want)
			}
		})
	}
}

func TestBooting(t *testing.T) {
	const idleLimit = time.Second
	for name, tt := range map[string]struct {
		args []string
		want error
	}{
		"idle": {[]string{"sleep", "60"}, ErrNoBoot},
		"busy": {[]string{"sh", "-c", "while :; do :; done"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guest := exec.CommandContext(t.Context(), tt.args[0], tt.args[1:]...)
			if err := guest.Start(); err != nil {
				t.Fatal(err)
			}
			booting, booted := Booting(t.Context(), guest.Process.Pid, idleLimit)
			defer booted()
			select {
			case <-booting.Done():
			case <-time.After(3*idleLimit + idleLimit/2):
			}
			if err := context.Cause(booting); !errors.Is(err, tt.want) {
				t.Errorf("after some time: %v, want %v", err, tt.want)
			}
			booted()
			if err := guest.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = guest.Wait() // as it was killed
		})
	}
}
