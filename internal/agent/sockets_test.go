package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// The lines are those of onload_stackdump in an emulated machine, with other numbers.
func TestAddSockets(t *testing.T) {
	const udp = "UDP 6:2043 lcl=192.0.2.2:22048 rmt=0.0.0.0:0 UDP\n  rcvbuf=212992 sndbuf=212992\n  TX timestamping queue: q_pkts=0 reap=0 tot_pkts=9\n" +
		"  udpflags: FILT MCAST_LOOP \n  rcv: q_pkts=1 reap=0 tot_pkts=5157\n  rcv: oflow_drop=0(0%) mem_drop=0 eagain=3 pktinfo=0 q_max_pkts=1024\n" +
		"  rcv: os=60(1%) os_slow=0 os_error=0\n  snd: q=0+0 ul=5150 os=7(0%)\n"
	const tcp = "TCP 6:2044 lcl=192.0.2.2:55569 rmt=192.0.2.1:53807 ESTABLISHED\n  TX timestamping queue: q_pkts=0 reap=0 tot_pkts=0\n" +
		"  rcv: bytes=77 tot_pkts=9a rob_pkts=0 q_pkts=2+0 usr=0\n----\nAUXBUFS 6:2046 \n  rcv: q_pkts=1 reap=0 tot_pkts=7\n"
	udpOnly := func(sockets int64) map[string]int64 {
		return map[string]int64{"socket.in": sockets * 5157, "socket.out": sockets * 5150, "socket.kernel-in": sockets * 60, "socket.kernel-out": sockets * 7}
	}
	for name, c := range map[string]struct {
		dump     string
		protocol v1alpha1.Protocol
		want     map[string]int64
	}{
		"nothing":          {},
		"UDP":              {tcp + udp, v1alpha1.ProtocolUDP, udpOnly(1)},
		"multicast":        {udp + udp, v1alpha1.ProtocolMulticast, udpOnly(2)},
		"TCP":              {udp + tcp + tcp, v1alpha1.ProtocolTCP, map[string]int64{"socket.in": 308, "socket.out": 308}},
		"beyond the range": {"UDP 6:1 x UDP\n  rcv: tot_pkts=ff\n  rcv: os=99999999999999999999\n", v1alpha1.ProtocolUDP, map[string]int64{"socket.kernel-in": 1<<39 - 1}},
		"before a socket":  {"  rcv: os=4\n", v1alpha1.ProtocolUDP, nil},
	} {
		got := map[string]int64{}
		addSockets(got, []byte(c.dump), c.protocol)
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func FuzzAddSockets(f *testing.F) {
	f.Add([]byte("UDP 6:1 x UDP\n  rcv: q_pkts=1 reap=0 tot_pkts=5157\n  snd: q=0+0 ul=5150 os=7(0%)\n"))
	f.Fuzz(func(t *testing.T, dump []byte) {
		for _, p := range []v1alpha1.Protocol{v1alpha1.ProtocolUDP, v1alpha1.ProtocolTCP} {
			addSockets(map[string]int64{}, dump, p)
		}
	})
}
