package localcluster

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// inThread calls f on a thread of its own, whose namespaces f may change for itself and for what it starts.
func inThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread never ends, and is what others see of our process: in a node's namespaces it would
			// pass for a part of the cluster. While we hold it, f gets another.
			result <- inThread(f)
			runtime.UnlockOSThread()
			return
		}
		result <- f() // Never unlocked, the thread ends with the goroutine.
	}()
	return <-result
}
