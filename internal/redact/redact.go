// Package redact replaces names and addresses in documents, each by the same word everywhere.
package redact

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Names are the words that replace what was added.
type Names struct {
	words map[string]string
	count map[string]int
	order []string // the replaced names, the longest first; nil after a change
}

func New() *Names { return &Names{words: map[string]string{}, count: map[string]int{}} }

// public are names that say nothing about their owner.
var public = []string{"", "default", "kube-system", "kube-public", "kube-node-lease", "tailgate-system", "localhost", "true", "false", "enabled", "yes", "no"}

// Add gives a name a word of a kind, such as node-1, unless it has one or is public.
func (n *Names) Add(kind, name string) {
	if n.words[name] != "" || slices.Contains(public, name) || len(name) < 2 && kind != "node" {
		return
	}
	n.count[kind]++
	n.words[name], n.order = word(kind, n.count[kind]), nil
}

// word returns a name that is valid where the original was: addresses are those of documentation.
func word(kind string, i int) string {
	switch kind {
	case "address":
		return netip.AddrFrom4([4]byte{198, 51, byte(100 + i/250), byte(i%250 + 1)}).String()
	case "address6":
		return fmt.Sprintf("2001:db8::%x", i)
	case "mac":
		return fmt.Sprintf("02:00:00:00:%02x:%02x", i/256%256, i%256)
	case "id":
		return fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
	case "mail":
		return fmt.Sprintf("user-%d@example.com", i)
	case "registry":
		return fmt.Sprintf("registry-%d.example.com", i)
	}
	return fmt.Sprintf("%s-%d", kind, i)
}

var (
	mails  = regexp.MustCompile(`[\w.+-]+@[\w-]+(\.[\w-]+)+`)
	tokens = regexp.MustCompile(`[\w.:-]+`)
	ids    = regexp.MustCompile(`(?i)^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// Text replaces names and addresses, except public IPv4 ones, which look like versions.
func (n *Names) Text(s string) string {
	s = mails.ReplaceAllStringFunc(s, func(m string) string { n.Add("mail", m); return n.words[m] })
	return tokens.ReplaceAllStringFunc(s, n.token)
}

func (n *Names) token(t string) string {
	core := strings.TrimRight(t, ".:-")
	end := t[len(core):]
	if n.words[core] == "" {
		addr, err := netip.ParseAddr(core)
		hardware, macErr := net.ParseMAC(core)
		switch {
		case err == nil && addr.Is4() && addr.IsPrivate():
			n.Add("address", core)
		case err == nil && addr.Is6() && !addr.IsUnspecified() && !addr.IsLoopback():
			n.Add("address6", core)
		case macErr == nil && len(hardware) == 6 && strings.Contains(core, ":"):
			n.Add("mac", core)
		case ids.MatchString(core):
			n.Add("id", core)
		}
	}
	if w := n.words[core]; w != "" {
		return w + end
	}
	if host, port, found := strings.Cut(core, ":"); found && n.words[host] != "" {
		return n.words[host] + ":" + port + end
	}
	if n.order == nil {
		n.order = slices.SortedFunc(maps.Keys(n.words), func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	}
	// Names of pods and runs contain that of their benchmark.
	for _, name := range n.order {
		if i := strings.Index(core, name); len(name) > 2 && i >= 0 && bounded(core, i, i+len(name)) {
			return n.token(core[:i]) + n.words[name] + n.token(core[i+len(name):]) + end
		}
	}
	return t
}

func bounded(s string, from, to int) bool {
	return (from == 0 || strings.ContainsRune("-._:", rune(s[from-1]))) && (to == len(s) || strings.ContainsRune("-._:", rune(s[to])))
}

// dropped fields say nothing about a fault, and may contain secrets.
var dropped = []string{"managedFields", "env", "envFrom", "args", "command", "images", "ownerReferences", "selfLink"}

// named are the fields that hold a name, or a reference with one, with the kind of its word.
var named = map[string]string{
	"nodeName": "node", "clientNode": "node", "serverNode": "node", "node": "node", "hostname": "node", "kubernetes.io/hostname": "node",
	"namespace": "namespace", "providerID": "provider", "machineID": "id", "systemUUID": "id", "bootID": "id", "uid": "id", "user": "user",
	"serviceAccountName": "account", "serviceAccount": "account", "topology.kubernetes.io/zone": "zone",
	"topology.kubernetes.io/region": "region", "hostIP": "address", "podIP": "address",
	"benchmark": "benchmark", "matrix": "matrix", "gate": "gate", "gateName": "gate", "networkRef": "network", "configMapName": "object",
	"configMap": "object", "peer": "node", "requestedBy": "user",
}

var labelled = []string{"labels", "matchLabels", "nodeSelector"}

// Collect adds the names in a JSON document's fields, and removes what is not to be published:
// others' annotations, containers' environments and arguments; values of notes become words.
func (n *Names) Collect(v any) {
	switch v := v.(type) {
	case []any:
		for _, each := range v {
			n.Collect(each)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n.field(v, key, v[key])
		}
	}
}

func (n *Names) field(in map[string]any, key string, value any) {
	text, isText := value.(string)
	fields, _ := value.(map[string]any)
	reference, refers := fields["name"].(string)
	switch {
	case slices.Contains(dropped, key):
		delete(in, key)
		return
	case isText && named[key] != "":
		n.Add(named[key], text)
	case refers && named[key] != "":
		n.Add(named[key], reference)
	case isText && (key == "image" || key == "Image" || key == "imageID" || key == "ImageID"):
		n.image(text)
	case key == "annotations":
		maps.DeleteFunc(fields, func(name string, _ any) bool { return !ofProjects(name) || strings.Contains(name, "last-applied") })
	case key == "notes":
		notes, _ := value.([]any)
		for _, note := range notes {
			if note, ok := note.(map[string]any); ok {
				if text, ok := note["value"].(string); ok {
					n.Add("note", text)
				}
			}
		}
	case slices.Contains(labelled, key):
		for _, label := range slices.Sorted(maps.Keys(fields)) {
			if text, ok := fields[label].(string); ok && !ofProjects(label) {
				n.Add("label", label)
				n.Add("value", text)
			}
		}
	case key == "addresses":
		list, _ := value.([]any)
		for _, each := range list {
			if address, ok := each.(map[string]any); ok {
				n.address(fmt.Sprint(address["address"]))
			}
		}
	}
	n.Collect(value)
}

func (n *Names) image(reference string) {
	parts := strings.Split(reference, "/")
	if len(parts) < 2 || !strings.ContainsAny(parts[0], ".:") {
		return
	}
	n.Add("registry", parts[0])
	for _, folder := range parts[1 : len(parts)-1] {
		n.Add("folder", folder)
	}
}

func (n *Names) address(text string) {
	switch addr, err := netip.ParseAddr(text); {
	case err != nil:
		n.Add("node", text)
	case addr.Is4():
		n.Add("address", text)
	default:
		n.Add("address6", text)
	}
}

// ofProjects reports whether a label or annotation is of Kubernetes or a project with public names.
func ofProjects(name string) bool {
	domain, _, qualified := strings.Cut(name, "/")
	return qualified && slices.ContainsFunc([]string{"kubernetes.io", "k8s.io", "tailgate.dev", "openshift.io", "amd.com", "cncf.io"}, func(project string) bool {
		return domain == project || strings.HasSuffix(domain, "."+project)
	})
}

// Apply returns a document of JSON with all names replaced, also in keys.
func (n *Names) Apply(v any) any {
	switch v := v.(type) {
	case string:
		if w := n.words[v]; w != "" {
			return w
		}
		return n.Text(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = n.Apply(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out[cmp.Or(n.words[key], key)] = n.Apply(v[key])
		}
		return out
	}
	return v
}
