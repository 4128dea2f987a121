package agent

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const (
	// strayLimit bounds how long the processes that a program left behind may take to end.
	strayLimit     = 5 * time.Second
	maxStraysNamed = 3
)

// started has the numbers of the agent's own processes that have not ended.
var started sync.Map

// adoptStrays makes the agent the parent of processes that outlive their own: none leaves its sight.
func adoptStrays() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// endStrays ends the processes that a user's program left behind, and adds their CPU time. It is a failure that there were any: nothing shows
// what they did meanwhile. Only a server's own group, which is killed with it, may be left.
func (e *endpoint) endStrays(p *process) error {
	if !e.driver.Limits().Opaque {
		return nil
	}
	left, group := map[int]string{}, strconv.Itoa(p.cmd.Process.Pid)
	for begun := time.Now(); time.Since(begun) < strayLimit; time.Sleep(listenPoll) {
		all := strays()
		if len(all) == 0 {
			break
		}
		for pid, stat := range all {
			if stat.state != "Z" && !(e.Task.Role == v1alpha1.RoleServer && stat.group == group) {
				left[pid] = fmt.Sprintf("%s (%d)", stat.name, pid)
			}
			_ = unix.Kill(pid, unix.SIGKILL)
			var usage unix.Rusage
			if reaped, _ := unix.Wait4(pid, nil, unix.WNOHANG, &usage); reaped == pid {
				e.watch.add("tool.cpu-ns", usage.Utime.Nano()+usage.Stime.Nano())
			}
		}
	}
	if len(left) == 0 && len(strays()) == 0 {
		return nil
	}
	return tool.Fail(v1alpha1.OutcomeToolFailed, "the %s's program left processes running, which were killed: %s; let it stay in the foreground, and wait for its children: %s",
		e.Task.Role, text.List(slices.Sorted(maps.Values(left)), maxStraysNamed, ", "), p.lastWords())
}

type strayStat struct{ name, state, group string }

// strays returns the agent's children that it did not start.
func strays() map[int]strayStat {
	h, all := host{root: "/"}, map[int]strayStat{}
	for _, dir := range h.glob("proc/[0-9]*") {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		stat := h.read(filepath.Join(dir, "stat"))
		name, after, _ := strings.Cut(stat, "(")
		end := strings.LastIndex(after, ")")
		if _, own := started.Load(pid); own || name == "" || end < 0 {
			continue
		}
		if fields := strings.Fields(after[end+1:]); len(fields) > 2 && fields[1] == strconv.Itoa(unix.Getpid()) {
			all[pid] = strayStat{name: line(after[:end], maxKey), state: fields[0], group: fields[2]}
		}
	}
	return all
}
