// Package thread runs functions that change the namespaces, the CPUs or the privileges of their thread.
package thread

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Run calls f on a separate thread, which ends afterwards. f may change this thread, for itself and for processes that it starts.
func Run(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread never ends, and its namespaces are the ones that others see of this process: in a node's
			// namespaces, it would look like a part of the cluster. While it is locked, f gets another thread.
			result <- Run(f)
			runtime.UnlockOSThread()
			return
		}
		result <- f() // The thread is never unlocked, so it ends with the goroutine.
	}()
	return <-result
}
