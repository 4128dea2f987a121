package agent

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const (
	preloadVariable = "LD_PRELOAD"
	// onloadPrefix begins the names of all of Onload's variables.
	onloadPrefix = "EF_"
)

// environment returns the tools' environment: the container's, without options of tools and settings of Onload that an image or a shell may
// set, and the task's. Only the tools preload the library: the agent is linked statically and ignores LD_PRELOAD. The agent's own sockets
// belong to the kernel.
func environment(container []string, task plan.Task) []string {
	all := map[string]string{}
	for _, entry := range container {
		if name, value, ok := strings.Cut(entry, "="); ok {
			all[name] = value
		}
	}
	maps.DeleteFunc(all, func(name, _ string) bool {
		return begins(name, optionPrefixes) || strings.HasPrefix(name, onloadPrefix)
	})
	maps.Copy(all, task.Env)
	if task.Acceleration == v1alpha1.AccelerationOnload {
		// AMD's device plugin preloads its own library, even if the image's is meant.
		all[preloadVariable] = strings.TrimSuffix(task.Library+":"+withoutOnload(all[preloadVariable]), ":")
	} else {
		maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasPrefix(name, onloadPrefix) })
		if all[preloadVariable] = withoutOnload(all[preloadVariable]); all[preloadVariable] == "" {
			delete(all, preloadVariable)
		}
	}
	return text.Of(slices.Sorted(maps.Keys(all)), func(name string) string { return name + "=" + all[name] })
}

func withoutOnload(list string) string {
	return strings.Join(slices.DeleteFunc(preloads(list), onload.IsLibrary), ":")
}

func preloads(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ':' || unicode.IsSpace(r) })
}

// preloadFile returns Onload's library in /etc/ld.so.preload, which is loaded into every process.
func (h host) preloadFile() string {
	for _, path := range preloads(h.read("etc/ld.so.preload")) {
		if onload.IsLibrary(path) {
			return path
		}
	}
	return ""
}
