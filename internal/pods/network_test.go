package pods

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
)

func TestNetworkName(t *testing.T) {
	ipam := &v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/sf_vf", IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: "10.0.0.0/24"}}}}
	cases := map[string]struct {
		spec     v1alpha1.Network
		variants []v1alpha1.Variant
		want     []string
	}{
		"one that exists, in the benchmark's namespace": {
			spec: v1alpha1.Network{Type: v1alpha1.NetworkNAD, NAD: &v1alpha1.NADNetwork{NetworkRef: v1alpha1.NetworkRef{Name: "macvlan"}}}, want: []string{"perf/macvlan"},
		},
		"one that exists, in another": {
			spec: v1alpha1.Network{Type: v1alpha1.NetworkNAD, NAD: &v1alpha1.NADNetwork{NetworkRef: v1alpha1.NetworkRef{Name: "macvlan", Namespace: "networks"}}},
			want: []string{"networks/macvlan"},
		},
		"one that the operator makes":                           {spec: *ipam, want: []string{"perf/x2522"}},
		"one that the operator makes, which two variants share": {spec: *ipam, variants: []v1alpha1.Variant{{Name: "a"}, {Name: "b"}}, want: []string{"perf/x2522", "perf/x2522"}},
		"variants with networks of their own, and one without": {
			spec: *ipam, variants: []v1alpha1.Variant{{Name: "a", Network: ipam}, {Name: "b"}, {Name: "default", Network: ipam}},
			want: []string{"perf/x2522-a", "perf/x2522", "perf/x2522-default"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := benchmark("pod")
			b.Spec.Network, b.Spec.Variants = c.spec, c.variants
			var got []string
			for _, v := range plan.Variants(b.Spec) {
				namespace, name := NetworkName(b, v)
				got = append(got, namespace+"/"+name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

// Every network that the operator creates can be read by a CNI runtime, belongs to the benchmark, and can be copied and written
// as the client does it.
func TestNetwork(t *testing.T) {
	made := 0
	for name := range benchmarks {
		e := endpoint(name, v1alpha1.RoleServer)
		network := Network(e.Benchmark, e.Variant)
		if (network != nil) != (e.Variant.Network.IPAM() != nil) {
			t.Fatalf("%s: the operator makes %v", name, network)
		}
		if network == nil {
			continue
		}
		made++
		network = network.DeepCopy()
		config, _, err := unstructured.NestedString(network.Object, "spec", "config")
		if err != nil {
			t.Fatal(err)
		}
		list, err := libcni.NetworkConfFromBytes([]byte(config))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if list.Name != network.GetName() {
			t.Errorf("%s: the network is named %s, its configuration %s", name, network.GetName(), list.Name)
		}
		if want := e.Variant.Network.MTU() != 0; (len(list.Plugins) == 2) != want {
			t.Errorf("%s: %d plugins; an MTU is asked for: %t", name, len(list.Plugins), want)
		}
		if got, want := list.Plugins[0].Network.Capabilities["ips"], e.Variant.Network.IPAM().Type == v1alpha1.IPAMStatic; got != want {
			t.Errorf("%s: it takes addresses from the pods: %t, want %t", name, got, want)
		}
		if !metav1.IsControlledBy(network, e.Benchmark) {
			t.Errorf("%s: the benchmark does not control it", name)
		}
		if network.GetAnnotations()[foreign.AnnotationResourceName] != e.Variant.Network.ResourceName() {
			t.Errorf("%s: the resource is not that of the variant: %v", name, network.GetAnnotations())
		}
	}
	if made != 3 {
		t.Errorf("%d networks are made, want 3", made)
	}
}

func TestStaticAddresses(t *testing.T) {
	cases := map[string]struct {
		subnet, start  string
		server, client string
		// wantErr is part of the error.
		wantErr string
	}{
		"the first two of a subnet":              {subnet: "192.168.40.0/24", server: "192.168.40.1/24", client: "192.168.40.2/24"},
		"a start without one after it":           {subnet: "192.168.40.0/24", start: "192.168.40.255", wantErr: "rangeStart"},
		"up to the last":                         {subnet: "192.168.40.0/24", start: "192.168.40.253", server: "192.168.40.253/24", client: "192.168.40.254/24"},
		"across a byte":                          {subnet: "10.0.0.0/16", start: "10.0.3.255", server: "10.0.3.255/16", client: "10.0.4.0/16"},
		"the broadcast address is for no host":   {subnet: "192.168.40.0/24", start: "192.168.40.254", wantErr: "rangeStart"},
		"nor is that of the network":             {subnet: "192.168.40.0/24", start: "192.168.40.0", wantErr: "rangeStart"},
		"the smallest subnet":                    {subnet: "10.0.0.4/30", server: "10.0.0.5/30", client: "10.0.0.6/30"},
		"the last subnet there is":               {subnet: "255.255.255.252/30", server: "255.255.255.253/30", client: "255.255.255.254/30"},
		"a subnet that is too small":             {subnet: "10.0.0.4/31", wantErr: "rangeStart"},
		"an address of another subnet":           {subnet: "192.168.40.0/24", start: "192.168.41.1", wantErr: "rangeStart"},
		"an address of another family":           {subnet: "192.168.40.0/24", start: "fd00::1", wantErr: "rangeStart"},
		"IPv6":                                   {subnet: "fd00:40::/64", server: "fd00:40::1/64", client: "fd00:40::2/64"},
		"IPv6 from a start":                      {subnet: "fd00:40::/64", start: "fd00:40::ffff", server: "fd00:40::ffff/64", client: "fd00:40::1:0/64"},
		"IPv6 has no broadcast address":          {subnet: "fd00:40::/126", start: "fd00:40::2", server: "fd00:40::2/126", client: "fd00:40::3/126"},
		"no address after the last IPv6 address": {subnet: "fd00:40::/126", start: "fd00:40::3", wantErr: "rangeStart"},
		"no address after the last IPv4 address": {subnet: "ffff::/16", start: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", wantErr: "rangeStart"},
		"no subnet":                              {subnet: "192.168.40.1", wantErr: "ipam.range:"},
		"no address":                             {subnet: "192.168.40.0/24", start: "first", wantErr: "rangeStart"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server, client, err := StaticAddresses(v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: c.subnet, RangeStart: c.start})
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Errorf("got %s, %s, error %v; want one about %s", server, client, err, c.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if server.String() != c.server || client.String() != c.client {
				t.Errorf("got %s and %s, want %s and %s", server, client, c.server, c.client)
			}
		})
	}
}

func TestStaticBlocks(t *testing.T) {
	cases := map[string]struct {
		subnet, start string
		limit         int
		want          []string
	}{
		"from the second address on":   {subnet: "192.168.40.0/29", limit: 9, want: []string{"192.168.40.1", "192.168.40.3", "192.168.40.5"}},
		"from the start given":         {subnet: "192.168.40.0/24", start: "192.168.40.250", limit: 9, want: []string{"192.168.40.250", "192.168.40.252"}},
		"no more than asked":           {subnet: "10.0.0.0/8", limit: 2, want: []string{"10.0.0.1", "10.0.0.3"}},
		"the smallest subnet":          {subnet: "10.0.0.4/30", limit: 9, want: []string{"10.0.0.5"}},
		"to the last of IPv6":          {subnet: "fd00:40::/64", start: "fd00:40::ffff:ffff:ffff:fffc", limit: 9, want: []string{"fd00:40::ffff:ffff:ffff:fffc", "fd00:40::ffff:ffff:ffff:fffe"}},
		"to the last of all addresses": {subnet: "ffff::/16", start: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", limit: 9, want: []string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"}},
		"a start without one after it": {subnet: "192.168.40.0/24", start: "192.168.40.254", limit: 9},
		"an invalid range":             {subnet: "192.168.40.0", limit: 9},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := StaticBlocks(v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: c.subnet, RangeStart: c.start}, c.limit)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("blocks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuildRefusesARangeWithoutRoom(t *testing.T) {
	e := endpoint("vf-static", v1alpha1.RoleServer)
	e.Variant.Network.IPAM().RangeStart = "192.168.40.254"
	if pod, err := Build(e); err == nil {
		t.Errorf("got %v", pod.Annotations)
	}
}

func TestAddress(t *testing.T) {
	// One definition may be attached twice, and the order has no meaning.
	const status = `[{"name":"perf/macvlan","interface":"net2","ips":["192.168.100.99"]},
		{"name":"cbr0","interface":"eth0","ips":["10.244.1.17"],"default":true},
		{"name":"perf/macvlan","interface":"net1","ips":["fd00:100::12","192.168.100.12"]},
		{"name":"perf/x2522","interface":"net1","ips":["fd00:40::100"]},
		{"name":"networks/sf-vf","interface":"net1"}]`
	cases := map[string]struct {
		// benchmark is a key of benchmarks.
		benchmark  string
		podIP      string
		annotation string
		want       string
		// wantMissing is part of the text about what is missing.
		wantMissing string
	}{
		"the pod network's is the pod's":                     {benchmark: "pod", podIP: "10.244.1.17", want: "10.244.1.17"},
		"the host network's is the pod's, which is the node": {benchmark: "host-interface", podIP: "10.0.0.1", want: "10.0.0.1"},
		"a pod without an address yet":                       {benchmark: "pod", wantMissing: "no address"},
		"of two families IPv4":                               {benchmark: "nad", podIP: "10.244.1.17", annotation: status, want: "192.168.100.12"},
		"IPv6, on a network that the operator made":          {benchmark: "pf-whereabouts", podIP: "10.244.1.17", annotation: status, want: "fd00:40::100"},
		"a pod of which Multus knows nothing":                {benchmark: "nad", podIP: "10.244.1.17", wantMissing: "Multus"},
		"a network without addresses":                        {benchmark: "vf-ref", podIP: "10.244.1.17", annotation: status, wantMissing: "ipam"},
		"a network that was not attached":                    {benchmark: "vf-ref", annotation: "[]", wantMissing: "networks/sf-vf"},
		"a status that is no JSON":                           {benchmark: "vf-ref", annotation: "?", wantMissing: foreign.AnnotationNetworkStatus},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "perf"}, Status: corev1.PodStatus{PodIP: c.podIP}}
			if c.annotation != "" {
				pod.Annotations = map[string]string{foreign.AnnotationNetworkStatus: c.annotation}
			}
			b := benchmark(c.benchmark)
			got, missing := Address(b, plan.Variants(b.Spec)[0], pod)
			if got != c.want || (missing == "") != (c.wantMissing == "") || !strings.Contains(missing, c.wantMissing) {
				t.Errorf("got %q, missing %q; want %q, missing %q", got, missing, c.want, c.wantMissing)
			}
		})
	}
}
