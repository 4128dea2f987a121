package cli

import (
	"context"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/doctor"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

// connect lets nodes try the way to each other on the pod network and on each network that they have: two by two in the order of
// their names, and the last with the first if their number is odd. The networks follow one another, because a node may have only one
// free device.
func (d *doctorCall) connect(ctx context.Context, o *doctor.Observed) {
	for _, network := range append([]doctor.Network{{}}, o.Networks...) {
		var ends []*doctor.Node
		for n := range o.Nodes {
			if o.Nodes[n].Attached(network.Name) {
				ends = append(ends, &o.Nodes[n])
			}
		}
		tried := make([]doctor.Connection, (len(ends)+1)/2)
		var group errgroup.Group
		group.SetLimit(d.parallel)
		for n := 0; n+1 < len(ends); n += 2 {
			group.Go(func() error {
				tried[n/2] = d.pair(ctx, network, ends[n], ends[n+1])
				return nil
			})
		}
		_ = group.Wait() // no function returns an error
		switch last := len(ends) - 1; {
		case last < 1:
			continue
		case last%2 == 0:
			tried[last/2] = d.pair(ctx, network, ends[last], ends[0])
		}
		o.Connections = append(o.Connections, tried...)
	}
}

// pair lets a pod on a node try the way to a pod on another one.
func (d *doctorCall) pair(ctx context.Context, network doctor.Network, server, from *doctor.Node) doctor.Connection {
	c := doctor.Connection{Network: network.Name, Server: server.Node.Name, Client: from.Node.Name}
	var end *corev1.Pod
	if end, c.Trouble = d.launch(ctx, server, network.Name, pods.Inspection{Devices: network.Resources(), Answers: true}); end != nil {
		defer d.end(ctx, end)
	}
	if c.Trouble != nil {
		return c
	}
	address, missing := pods.AddressOn(end, network.Name)
	if missing != "" {
		c.Trouble = &pods.Trouble{Outcome: v1alpha1.OutcomeNetworkFailed, Said: missing}
		return c
	}
	l := d.look(ctx, from, doctor.Look{Network: network.Name}, pods.Inspection{Devices: network.Resources(), Peer: address})
	if c.Trouble = l.Trouble; l.Inspection == nil {
		return c
	}
	c.Reach = l.Inspection.Reach
	// A pod that answers runs until it is deleted.
	if err := d.api.Get(ctx, client.ObjectKeyFromObject(end), end); err == nil {
		c.Trouble = doctor.TroubleOf(end, nil)
	}
	return c
}
