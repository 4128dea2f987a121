package agent

import (
	"context"
	"strings"
	"testing"
)

func TestReach(t *testing.T) {
	i := Inspector{PodIP: "127.0.0.1", Peer: "127.0.0.1", Root: "/"}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- i.Answer(ctx) }()
	if r := i.reach(t.Context()); r.Route+r.Control+r.Data+r.Datagram != "" || r.Bytes != maxDatagram {
		t.Errorf("a peer that answers: %+v", r)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	r := i.reach(t.Context())
	if r.Route != "" || !strings.Contains(r.Control, "22047: connect: connection refused") || !strings.Contains(r.Data, "22048: connect: connection refused") ||
		!strings.Contains(r.Datagram, "a datagram of 65507 bytes does not return, nor does one of 64 bytes") {
		t.Errorf("a peer that does not listen: %+v", r)
	}
	i.PodIP = "192.0.2.1"
	if r := i.reach(t.Context()); !strings.Contains(r.Route, "no interface has the address 192.0.2.1") {
		t.Errorf("a pod without its address: %+v", r)
	}
}
