package deviceplugin

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// fakeKubelet accepts registrations on the kubelet's socket.
type fakeKubelet struct {
	api.UnimplementedRegistrationServer
	registered chan *api.RegisterRequest
}

func (k *fakeKubelet) Register(_ context.Context, req *api.RegisterRequest) (*api.Empty, error) {
	k.registered <- req
	return &api.Empty{}, nil
}

// startKubelet empties the folder and then listens, as a starting kubelet does.
func startKubelet(t *testing.T, dir string) (*fakeKubelet, *grpc.Server) {
	t.Helper()
	old, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	k := &fakeKubelet{registered: make(chan *api.RegisterRequest, 10)}
	g := grpc.NewServer()
	api.RegisterRegistrationServer(g, k)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return k, g
}

func (k *fakeKubelet) next(t *testing.T) *api.RegisterRequest {
	t.Helper()
	select {
	case req := <-k.registered:
		return req
	case <-time.After(time.Minute):
		t.Fatal("no plugin registered")
		return nil
	}
}

// dial connects to the endpoint that was registered, as the kubelet does.
func dial(t *testing.T, dir string, req *api.RegisterRequest) api.DevicePluginClient {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, req.Endpoint),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return api.NewDevicePluginClient(conn)
}

func TestRun(t *testing.T) {
	dir, err := os.MkdirTemp("", "dp") // t.TempDir is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	node0, unknown := int64(0), int64(-1)
	config := Config{KubeletDir: dir, Resources: []Resource{{
		Name: "tailgate.test/sf_vf",
		Devices: []Device{
			{ID: "0000:3b:02.0", NUMANode: &node0}, {ID: "0000:3b:02.1", NUMANode: &unknown}, {ID: "0000:3b:02.2"},
		},
	}}}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	// Started before the kubelet, as happens on a booting node.
	go func() { defer close(done); Run(ctx, config, slog.New(slog.DiscardHandler)) }()
	kubelet, server := startKubelet(t, dir)

	req := kubelet.next(t)
	want := &api.RegisterRequest{
		Version: "v1beta1", Endpoint: "tailgate.test_sf_vf.sock", ResourceName: "tailgate.test/sf_vf",
		Options: &api.DevicePluginOptions{},
	}
	if diff := cmp.Diff(want, req, protocmp.Transform()); diff != "" {
		t.Errorf("registration (-want +got):\n%s", diff)
	}

	client := dial(t, dir, req)
	stream, err := client.ListAndWatch(ctx, &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	wantList := &api.ListAndWatchResponse{Devices: []*api.Device{
		{ID: "0000:3b:02.0", Health: "Healthy", Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 0}}}},
		{ID: "0000:3b:02.1", Health: "Healthy"},
		{ID: "0000:3b:02.2", Health: "Healthy"},
	}}
	if diff := cmp.Diff(wantList, list, protocmp.Transform()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}

	resp, err := client.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{
		{DevicesIds: []string{"0000:3b:02.2", "0000:3b:02.0"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	wantEnv := map[string]string{
		"PCIDEVICE_TAILGATE_TEST_SF_VF": "0000:3b:02.2,0000:3b:02.0",
		"PCIDEVICE_TAILGATE_TEST_SF_VF_INFO": `{"0000:3b:02.0":{"generic":{"deviceID":"0000:3b:02.0"}},` +
			`"0000:3b:02.2":{"generic":{"deviceID":"0000:3b:02.2"}}}`,
	}
	if diff := cmp.Diff(wantEnv, resp.ContainerResponses[0].Envs); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	_, err = client.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{
		{DevicesIds: []string{"0000:ff:02.0"}},
	}})
	if status.Code(err) != codes.NotFound {
		t.Errorf("Allocate of a foreign device: %v, want NotFound", err)
	}

	// A restarted kubelet has removed every socket and forgotten every plugin.
	server.Stop()
	kubelet, _ = startKubelet(t, dir)
	req = kubelet.next(t)
	if _, err := dial(t, dir, req).GetDevicePluginOptions(ctx, &api.Empty{}); err != nil {
		t.Errorf("after the kubelet's restart: %v", err)
	}

	// A user removes only the plugin's socket.
	if err := os.Remove(filepath.Join(dir, req.Endpoint)); err != nil {
		t.Fatal(err)
	}
	req = kubelet.next(t)
	if _, err := dial(t, dir, req).GetDevicePluginOptions(ctx, &api.Empty{}); err != nil {
		t.Errorf("after the loss of the socket: %v", err)
	}

	cancel()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("Run does not end")
	}
	if _, err := os.Stat(filepath.Join(dir, req.Endpoint)); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}
