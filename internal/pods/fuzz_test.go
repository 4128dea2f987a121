package pods

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// FuzzChanged compares the operator's pod with any other pod of the API. The list is bounded, each entry is one line, and no
// entry contains the value of an environment variable.
func FuzzChanged(f *testing.F) {
	const secret = "hunter2-of-the-user"
	built := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: Container, Image: "bench:1", Command: []string{"agent"}, Env: []corev1.EnvVar{{Name: "TASK", Value: "ours"}},
	}}}}
	for _, spec := range []string{
		`{}`, `{"hostNetwork":true,"volumes":[{"name":"x","hostPath":{"path":"/"}}],"containers":[{"name":"` + Container + `","image":"bench:2"}]}`,
		`{"containers":[{"name":"` + Container + `","image":"a\nb","env":[{"name":"TASK","value":"theirs"},{"name":"MORE\u2028\u0007"}],` +
			`"resources":{"limits":{"cpu":"1e9","memory":"3Gi"}}},{"name":"` + strings.Repeat("é", 300) + `"}]}`,
		`{"volumes":[` + strings.Repeat(`{"name":"a","hostPath":{}},`, 40) + `{"name":"b"}],"initContainers":[{"name":"i","env":[{}]}]}`,
		`{"initContainers":[` + strings.TrimSuffix(strings.Repeat(`{"name":"NUMBER"},`, 40), ",") + `]}`,
	} {
		f.Add([]byte(spec))
	}
	f.Fuzz(func(t *testing.T, spec []byte) {
		got := &corev1.Pod{}
		if json.Unmarshal(spec, &got.Spec) != nil || strings.Contains(string(spec), secret) {
			return
		}
		for i := range got.Spec.Containers {
			for k := range got.Spec.Containers[i].Env {
				got.Spec.Containers[i].Env[k].Value = secret
			}
		}
		if len(spec)%2 == 0 { // many of one kind
			for _, name := range strings.Split(strings.Repeat("x ", 50), " ") {
				got.Spec.InitContainers = append(got.Spec.InitContainers, corev1.Container{Name: name + string(rune('a'+len(got.Spec.InitContainers)))})
			}
		}
		changes := Changed(built, got)
		if len(changes) > maxChanges+1 || !slices.IsSorted(changes[:min(len(changes), maxChanges)]) {
			t.Errorf("%d changes: %q", len(changes), changes)
		}
		for _, c := range changes {
			if len(c) > maxChange || !utf8.ValidString(c) || strings.ContainsFunc(c, unicode.IsControl) || strings.Contains(c, secret) {
				t.Errorf("entry %q", c)
			}
		}
		if again := Changed(got, got); len(again) > 0 {
			t.Errorf("a pod differs from itself: %q", again)
		}
	})
}

// FuzzStaticAddresses tries arbitrary ranges. Both addresses are host addresses: neither is the subnet's or the broadcast
// address. The blocks of several pairs share no address.
func FuzzStaticAddresses(f *testing.F) {
	f.Add("192.168.40.0/24", "192.168.40.253")
	f.Add("0.0.0.0/0", "255.255.255.254")
	f.Add("fd00:40::/126", "fd00:40::2")
	f.Add("::ffff:192.0.2.0/126", "")
	f.Add("fe80::/64", "fe80::1%eth0")
	f.Fuzz(func(t *testing.T, subnet, start string) {
		ipam := v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: subnet, RangeStart: start}
		server, client, err := StaticAddresses(ipam)
		if err != nil {
			return
		}
		of := netip.MustParsePrefix(subnet).Masked()
		if client.Addr() != server.Addr().Next() || server.Masked() != of || client.Masked() != of || server.Addr() == of.Addr() {
			t.Errorf("%s from %q: %s and %s", subnet, start, server, client)
		}
		if client.Addr().Is4() && !of.Contains(client.Addr().Next()) {
			t.Errorf("%s from %q: %s is the broadcast address", subnet, start, client)
		}
		seen := map[netip.Addr]bool{}
		for _, block := range StaticBlocks(ipam, 4) {
			ipam.RangeStart = block
			server, client, err := StaticAddresses(ipam)
			if err != nil || seen[server.Addr()] || seen[client.Addr()] {
				t.Errorf("%s: block %s: %s and %s, %v", subnet, block, server, client, err)
			}
			seen[server.Addr()], seen[client.Addr()] = true, true
		}
	})
}
