package localcluster

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// traces holds everything that a cluster could leave behind, as sorted lines of text.
type traces struct {
	Mounts, Netns, Links, Addresses, Routes, Cgroups, Rules, Files, Sysctls []string
}

// ofClusters matches what a cluster, or a program of Kubernetes that runs in it, could leave: its own names, the addresses of its subnets,
// the names of its cards, and the paths and chains of Kubernetes.
var ofClusters = regexp.MustCompile(`(?i)tailgate|\b198\.19\.|kube|k8s|\bcni\b|containerd|multus|multinet|\betcd\b|^ens[1-4]f0(v\d+)?$|` +
	`^/run/netns$|^/var/run/cdi$|^/var/log/(pods|containers)$`)

var (
	// ofLab matches the traces of the lab, ofTheOthers those of the other clusters. They run side by side.
	ofLab       = regexp.MustCompile(`tailgate4\b|tailgate-localcluster-4|\b198\.19\.(1[6-9])\.`)
	ofTheOthers = regexp.MustCompile(`tailgate[0-3]?-(node|cp|fabric|a\b|b\b)|tailgate[0-3]\b|tailgate-localcluster(-[0-3])?(/|$|\s)|kubepods|` +
		`\b198\.19\.(\d|1[0-5])\.`)
)

// settings are the settings of the machine that programs of a cluster would change, with the values that they would write.
var settings = func() []string {
	lines := []string{"net/ipv4/ip_forward = 1\n", "net/ipv4/conf/all/forwarding = 1\n"}
	for name, value := range tunables {
		lines = append(lines, name+" = "+value+"\n")
	}
	return lines
}()

// changes compares the machine before and after a cluster, and returns "" if the cluster left nothing and took nothing away. What other
// programs do meanwhile does not count: a login makes a cgroup, a lease an address and a route, a container engine links, rules and
// mounts. They also enable controllers, which TestNodesInAContainer compares where no other program runs. lab is whether the cluster
// is the lab.
func changes(before, after traces, lab bool) string {
	// `ip netns add` makes a mount of the folder, which stays as long as there are namespaces.
	folder := func(line string) bool {
		return strings.Contains(line, "/run/netns") && !strings.Contains(line, "tailgate")
	}
	others := slices.ContainsFunc(after.Netns, func(name string) bool { return !strings.HasPrefix(name, "tailgate") })
	beside := ofLab
	if lab {
		beside = ofTheOthers
	}
	for _, m := range []*traces{&before, &after} {
		for _, lines := range []*[]string{&m.Mounts, &m.Netns, &m.Links, &m.Addresses, &m.Routes, &m.Cgroups, &m.Rules, &m.Files} {
			*lines = slices.DeleteFunc(slices.Clone(*lines), func(line string) bool {
				own := ofClusters.MatchString(line) || folder(line) && !others
				return !own || beside.MatchString(line) || others && folder(line)
			})
		}
		m.Cgroups = slices.DeleteFunc(m.Cgroups, func(line string) bool { return strings.Contains(line, " enables ") })
		m.Sysctls = slices.DeleteFunc(slices.Clone(m.Sysctls), func(line string) bool { return !slices.Contains(settings, line) })
	}
	return cmp.Diff(before, after, cmpopts.EquateEmpty())
}

// TestChanges has a machine on which other programs work during the test, and finds only what a cluster left, or took away.
func TestChanges(t *testing.T) {
	before := traces{
		Mounts: []string{"{/ / ext4 rw}"}, Links: []string{"eth0", "lo"}, Addresses: []string{"10.0.0.5/24"}, Routes: []string{"via 10.0.0.1"},
		Cgroups: []string{"/sys/fs/cgroup/user.slice/session-1.scope", "/sys/fs/cgroup enables cpu"}, Rules: []string{"-A INPUT -j ACCEPT\n"},
		Files: []string{"/etc/passwd", "/var/lib/kubelet"}, Sysctls: []string{"net/ipv4/ip_forward = 0\n", "kernel/panic = 0\n"},
	}
	disturbed := traces{
		Mounts: []string{"{/ / ext4 rw}", "{/ /run/user/0 tmpfs rw}", "{/netns /run/netns tmpfs rw}", "{net:[1] /run/netns/vpn nsfs rw}"},
		Netns:  []string{"vpn"}, Links: []string{"eth0", "lo", "docker0", "veth12"}, Addresses: []string{"10.0.0.6/24", "172.17.0.1/16", "fe80::1/64"},
		Routes: []string{"via 10.0.0.2"}, Cgroups: []string{"/sys/fs/cgroup/user.slice/session-2.scope", "/sys/fs/cgroup enables cpu io"},
		Rules: []string{"-A DOCKER -j RETURN\n", "ip_tables_names nat\n"}, Files: []string{"/etc/passwd.lock", "/run/dhclient.pid", "/var/lib/kubelet", "/run/netns"},
		Sysctls: []string{"net/ipv4/ip_forward = 0\n", "kernel/panic = 5\n", "net/netfilter/nf_conntrack_max = 65536\n"},
	}
	if diff := changes(before, disturbed, false); diff != "" {
		t.Errorf("other programs count: %s", diff)
	}
	for name, leave := range map[string]func(*traces){
		"a mount":                            func(m *traces) { m.Mounts = append(m.Mounts, "{/ /var/lib/tailgate-localcluster/ns tmpfs rw}") },
		"a mount of a pod":                   func(m *traces) { m.Mounts = append(m.Mounts, "{/ /var/lib/kubelet/pods/1 tmpfs rw}") },
		"a namespace":                        func(m *traces) { m.Netns = append(m.Netns, "tailgate-a") },
		"a pod's namespace":                  func(m *traces) { m.Netns = append(m.Netns, "cni-0123") },
		"the link":                           func(m *traces) { m.Links = append(m.Links, "tailgate0") },
		"a card":                             func(m *traces) { m.Links = append(m.Links, "ens1f0v2") },
		"an address":                         func(m *traces) { m.Addresses = append(m.Addresses, "198.19.0.2/24") },
		"a route":                            func(m *traces) { m.Routes = append(m.Routes, "{Dst: 198.19.1.0/24}") },
		"a cgroup":                           func(m *traces) { m.Cgroups = append(m.Cgroups, "/sys/fs/cgroup/tailgate-node-a/kubepods") },
		"a chain":                            func(m *traces) { m.Rules = append(m.Rules, "-N KUBE-FIREWALL\n") },
		"a folder":                           func(m *traces) { m.Files = append(m.Files, "/run/containerd") },
		"a setting":                          func(m *traces) { m.Sysctls = append(m.Sysctls, "kernel/panic = 10\n") },
		"forwarding":                         func(m *traces) { m.Sysctls = append(m.Sysctls, "net/ipv4/ip_forward = 1\n") },
		"a folder of the machine taken away": func(m *traces) { m.Files = nil },
	} {
		after := disturbed
		leave(&after)
		if changes(before, after, false) == "" {
			t.Errorf("%s is not found", name)
		}
	}
	after := before
	after.Mounts = append(slices.Clone(before.Mounts), "{/run/netns /run/netns tmpfs rw}")
	if changes(before, after, false) == "" {
		t.Error("a mount of the folder without namespaces is not found")
	}
	beside := map[bool][]string{true: {"tailgate0", "tailgate3", "tailgate-node"}, false: {"tailgate4"}}
	for lab, links := range maps.All(beside) {
		if diff := changes(traces{}, traces{Links: links}, lab); diff != "" {
			t.Errorf("lab %v: the clusters beside it count: %s", lab, diff)
		}
		if changes(traces{}, traces{Links: beside[!lab]}, lab) == "" {
			t.Errorf("lab %v: its own link is not found", lab)
		}
	}
}
