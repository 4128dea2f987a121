//go:build e2e

package localcluster

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

// TestLabLeavesNothing starts `make lab` LAB_KILLS times, kills it and all processes of the cluster at a random moment, and compares
// the state of the machine after Down with the state before. LAB_KILLS_WITHIN is the latest moment, LAB_KILLS_SEED repeats the moments
// of another run.
func TestLabLeavesNothing(t *testing.T) {
	kills, _ := strconv.Atoi(os.Getenv("LAB_KILLS"))
	if kills == 0 {
		t.Skip("LAB_KILLS is not the number of times that make lab is to be killed")
	}
	within := 10 * time.Minute
	if text := os.Getenv("LAB_KILLS_WITHIN"); text != "" {
		var err error
		if within, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("LAB_KILLS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(seed, 0))
	moments := make([]time.Duration, kills)
	for i := range moments {
		moments[i] = time.Duration(random.Int64N(int64(within))).Round(time.Second)
	}
	t.Logf("LAB_KILLS_SEED=%d: make lab is killed after %s", seed, moments)
	if err := Down(t.Context(), Options{Log: t.Output(), Lab: true}); err != nil {
		t.Fatal(err)
	}
	for _, after := range moments {
		killLab(t, after)
	}
}

// killLab kills `make lab` after some time.
func killLab(t *testing.T, after time.Duration) {
	t.Helper()
	o := Options{Log: t.Output(), Lab: true}
	root, err := images.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	before := observeMachine(t)
	lab := exec.Command("make", "lab")
	lab.Dir, lab.Env = root, append(os.Environ(), "TMPDIR="+t.TempDir()) // A killed compiler leaves its files there.
	lab.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var said strings.Builder
	lab.Stdout, lab.Stderr = &said, &said
	if err := lab.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- lab.Wait() }()
	select {
	case err := <-ended:
		t.Fatalf("make lab ended before it was killed after %s: %v; last lines:\n%s", after, err, tail(said.String(), 20))
	case <-time.After(after):
	}
	running, err := findProcesses(ours(o.paths()))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(-lab.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := killAll(t.Context(), ours(o.paths())); err != nil {
		t.Fatal(err)
	}
	<-ended
	t.Logf("killed after %s, with %d processes of the cluster; last lines:\n%s", after, len(running), tail(said.String(), 3))
	if err := Down(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	left, err := findProcesses(func(f found) bool {
		group, _ := syscall.Getpgid(f.PID)
		return f.State == o.paths().state || group == lab.Process.Pid
	})
	if err != nil || len(left) > 0 {
		t.Errorf("processes are left: %v, %v", left, err)
	}
	if diff := changes(before, observeMachine(t), true); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}
