package deviceplugin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// EnvName returns the environment variable that lists a container's devices of a resource, named as the SR-IOV
// device plugin names it: upper case, "." and "/" as "_". Hyphens stay, so a shell cannot read the variables of
// some resources; programs must read their environment block.
func EnvName(resource string) string {
	return "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer(".", "_", "/", "_").Replace(resource))
}

// envs returns the variables of a container that received these devices, in the order of allocation.
func envs(resource string, ids []string) (map[string]string, error) {
	type generic struct {
		DeviceID string `json:"deviceID"`
	}
	type info struct {
		Generic generic `json:"generic"`
	}
	infos := make(map[string]info, len(ids))
	for _, id := range ids {
		infos[id] = info{Generic: generic{DeviceID: id}}
	}
	text, err := json.Marshal(infos)
	if err != nil {
		return nil, fmt.Errorf("describing the devices of %s: %w", resource, err)
	}
	name := EnvName(resource)
	return map[string]string{name: strings.Join(ids, ","), name + "_INFO": string(text)}, nil
}

// server answers the kubelet for one resource.
type server struct {
	api.UnimplementedDevicePluginServer
	resource Resource
	// stop ends every ListAndWatch. Otherwise, a graceful stop of the gRPC server would wait forever.
	stop <-chan struct{}
}

func (s *server) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends the devices once: the set is fixed and every device is always healthy.
func (s *server) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	if err := stream.Send(&api.ListAndWatchResponse{Devices: s.devices()}); err != nil {
		return fmt.Errorf("sending the devices of %s: %w", s.resource.Name, err)
	}
	select {
	case <-stream.Context().Done():
	case <-s.stop:
	}
	return nil
}

func (s *server) devices() []*api.Device {
	devices := make([]*api.Device, 0, len(s.resource.Devices))
	for _, d := range s.resource.Devices {
		device := &api.Device{ID: d.ID, Health: api.Healthy}
		if d.NUMANode != nil && *d.NUMANode >= 0 {
			device.Topology = &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: *d.NUMANode}}}
		}
		devices = append(devices, device)
	}
	return devices
}

func (s *server) Allocate(_ context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	known := make(map[string]bool, len(s.resource.Devices))
	for _, d := range s.resource.Devices {
		known[d.ID] = true
	}
	var resp api.AllocateResponse
	for _, c := range req.ContainerRequests {
		for _, id := range c.DevicesIds {
			if !known[id] {
				return nil, status.Errorf(codes.NotFound, "%s has no device %q", s.resource.Name, id)
			}
		}
		env, err := envs(s.resource.Name, c.DevicesIds)
		if err != nil {
			return nil, err
		}
		resp.ContainerResponses = append(resp.ContainerResponses, &api.ContainerAllocateResponse{Envs: env})
	}
	return &resp, nil
}
