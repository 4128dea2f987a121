package cni

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// maxPodResources is the maximum size of the kubelet's answer in bytes; gRPC's default limit of 4 MiB is too
// small for a node with many pods.
const maxPodResources = 16 << 20

// devices holds the device ids of one pod that no network has taken yet, by resource.
type devices map[string][]string

// podDevices asks the kubelet at socket for the devices of a pod.
func podDevices(ctx context.Context, socket, namespace, name string) (devices, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxPodResources)))
	if err != nil {
		return nil, fmt.Errorf("connecting to the kubelet's podresources: %w", err)
	}
	defer conn.Close()
	resp, err := podresources.NewPodResourcesListerClient(conn).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing the devices of pods at %s: %w", socket, err)
	}
	return devicesOf(resp, namespace, name), nil
}

// devicesOf returns the devices of one pod. They are sorted, as Multus sorts them, so the first network does not
// necessarily get the first device of the container's environment.
func devicesOf(resp *podresources.ListPodResourcesResponse, namespace, name string) devices {
	ds := devices{}
	for _, pod := range resp.PodResources {
		if pod.Namespace != namespace || pod.Name != name {
			continue
		}
		for _, container := range pod.Containers {
			for _, d := range container.Devices {
				ds[d.ResourceName] = append(ds[d.ResourceName], d.DeviceIds...)
			}
		}
	}
	for _, ids := range ds {
		slices.Sort(ids)
	}
	return ds
}

// take removes and returns the next device of a resource, or "" when none is left. Multus also continues with an
// empty id and leaves the error to the plugin.
func (d devices) take(resource string) string {
	ids := d[resource]
	if len(ids) == 0 {
		return ""
	}
	d[resource] = ids[1:]
	return ids[0]
}
