package agent

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFirmwareVariant(t *testing.T) {
	cases := map[string]struct{ driver, firmware, want string }{
		"full feature":             {"sfc", "8.5.2.1000 rx0 tx0", "full-feature"},
		"low latency":              {"sfc", "6.2.7.1000 rx1 tx1", "ultra-low-latency"},
		"dpdk":                     {"sfc", "8.5.2.1000 rx6 tx6", "dpdk"},
		"a number without a name":  {"sfc", "8.5.2.1000 rx10a tx0", ""},
		"a driver that cannot ask": {"sfc", "8.5.2.1000 rx? tx?", ""},
		"a version alone":          {"sfc", "8.5.2.1000", ""},
		"another driver":           {"ice", "4.40 rx1", ""},
		"nothing":                  {"", "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := firmwareVariant(c.driver, c.firmware); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestFeatureFacts(t *testing.T) {
	f := facts{}
	names := make([]string, 40)
	names[2], names[33], names[34] = "rx-lro", "rx-gro", "unknown-to-us"
	// There are two blocks; bit 1 in the third number of the second block belongs to rx-gro.
	featureFacts(f, names, []uint32{^uint32(0), 0, 0, 0, 0, 0, 1 << 1, 0})
	if diff := cmp.Diff(facts{"nic.feature.rx-lro": "off", "nic.feature.rx-gro": "on"}, f); diff != "" {
		t.Errorf("features (-want +got):\n%s", diff)
	}
}

func FuzzFeatures(f *testing.F) {
	f.Add([]byte("rx-gro\x00\x00"), []byte{1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, names, blocks []byte) {
		var words []uint32
		for ; len(blocks) >= 4; blocks = blocks[4:] {
			words = append(words, binary.NativeEndian.Uint32(blocks))
		}
		found := facts{}
		split := splitNames(names)
		featureFacts(found, split, words)
		if len(found) > len(features) {
			t.Errorf("more features than there are: %v", found)
		}
		if len(words) > 0 {
			bits(words[0], split)
		}
	})
}

func TestBits(t *testing.T) {
	cases := map[string]struct {
		set  uint32
		want string
	}{
		"nothing":              {0, "none"},
		"two":                  {1<<2 | 1<<3, "off,rs"},
		"one without a name":   {1, "none"},
		"beyond what is named": {1<<31 | 1<<4, "baser"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := bits(c.set, fecModes); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// The kernel reports the features of any interface; a request that does not apply to loopback has no answer.
func TestEthtoolOfLoopback(t *testing.T) {
	f := facts{}
	ethtoolFacts(f, "lo")
	if f["nic.feature.tx-tcp-segmentation"] != "on" || f["nic.feature.rx-checksum"] != "on" {
		t.Errorf("loopback's features: %v", f)
	}
	for _, key := range []string{"nic.ring.rx", "nic.coalesce.rx-usecs", "nic.channels.rx", "nic.fec", "nic.private-flags"} {
		if value, ok := f[key]; ok {
			t.Errorf("loopback has %s %q", key, value)
		}
	}
	f = facts{}
	if ethtoolFacts(f, "no-such-iface"); len(f) > 0 {
		t.Errorf("an interface that is not there: %v", f)
	}
}

// The names are those of the sfc driver (efx_ef10_stat_desc in ef10.c).
func TestOfDatapath(t *testing.T) {
	for name, c := range map[string]struct{ names, want []string }{
		"an 8000":     {names: []string{"port_tx_packets", "tx_unicast", "fec_corrected_errors"}},
		"no NIC":      {},
		"a veth":      {names: []string{"peer_ifindex", "rx_queue_0_xdp_packets"}},
		"another NIC": {names: []string{"rx_exp_a", "tx_ctpio_success"}},
		"an X2": {
			[]string{"port_tx_packets", "ctpio_vi_busy_fallback", "ctpio_underflow_fail", "ctpio_success", "ctpio_fallback", "ctpio_poison", "ctpio_erase"},
			[]string{"ctpio_vi_busy_fallback", "ctpio_underflow_fail", "ctpio_success", "ctpio_fallback", "ctpio_poison", "ctpio_erase"},
		},
		"an X4": {
			[]string{"port_rx_packets", "exp_rx_packets", "rx_unicast", "exp_ctpio_packets", "exp_ctpio_underflow_packets"},
			[]string{"exp_rx_packets", "exp_ctpio_packets", "exp_ctpio_underflow_packets"},
		},
	} {
		var got []string
		for _, n := range c.names {
			if ofDatapath(n) {
				got = append(got, n)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestFactsAtAnyDepth: what the kernel fills in moves with the goroutine's stack.
func TestFactsAtAnyDepth(t *testing.T) {
	var down func(depth int, do func())
	down = func(depth int, do func()) {
		var frame [64]byte
		if depth > 0 {
			down(depth-1, do)
		} else {
			do()
		}
		runtime.KeepAlive(&frame)
	}
	for depth := range 700 {
		f, done := facts{}, make(chan struct{})
		go func() {
			defer close(done)
			down(depth, func() { ethtoolFacts(f, "lo") })
		}()
		<-done
		if f["nic.feature.tx-tcp-segmentation"] != "on" {
			t.Fatalf("%d calls below a new goroutine, the facts are %v", depth, f)
		}
	}
}
