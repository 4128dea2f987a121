package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// fakeDelegate logs its call and answers with an address of its own interface. It fails while a file named
// fail-COMMAND-INTERFACE is in its folder.
const fakeDelegate = `#!/bin/sh
dir=$(dirname "$0")
conf=$(cat)
echo "$CNI_COMMAND $(basename "$0") $CNI_IFNAME ns=${CNI_NETNS:+yes}" >>"$dir/log"
echo "$conf" >"$dir/conf-$CNI_COMMAND-$(basename "$0")-$CNI_IFNAME"
if [ -e "$dir/fail-$CNI_COMMAND-$CNI_IFNAME" ]; then
	echo '{"cniVersion":"1.0.0","code":100,"msg":"made to fail"}'
	exit 1
fi
if [ "$CNI_COMMAND" = ADD ]; then
	echo '{"cniVersion":"1.0.0","interfaces":[{"name":"'"$CNI_IFNAME"'","mac":"02:00:00:00:00:01","mtu":1400,"sandbox":"/ns"}],
		"ips":[{"interface":0,"address":"10.0.0.2/24"}],"dns":{}}'
fi
`

// world is a simulated node for the plugin.
type world struct {
	t      *testing.T
	dir    string
	client *fake.FakeDynamicClient
	plugin *Plugin
	conf   []byte
}

type fakePodResources struct {
	podresources.UnimplementedPodResourcesListerServer
}

func (fakePodResources) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{
		Namespace: "home", Name: "p", Containers: []*podresources.ContainerResources{{
			Devices: []*podresources.ContainerDevices{
				{ResourceName: "x/vf", DeviceIds: []string{"0000:3b:02.3", "0000:3b:02.1"}},
			},
		}},
	}}}, nil
}

func object(apiVersion, kind, name string, annotations map[string]string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	o.SetNamespace("home")
	o.SetName(name)
	o.SetUID("u1")
	o.SetAnnotations(annotations)
	return o
}

// newWorld returns a world with the pod home/p with the given networks, and the networks vf (with devices of x/vf),
// plain, and asked (which lets pods request addresses).
func newWorld(t *testing.T, networks string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "cni") // t.TempDir is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"fake-default", "fake-device", "fake-tuning", "fake-ipam"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(fakeDelegate), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(g, fakePodResources{})
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)

	w := &world{t: t, dir: dir}
	w.client = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			podResource: "PodList", eventResource: "EventList", nadResource: "NetworkAttachmentDefinitionList",
		},
		object("v1", "Pod", "p", map[string]string{AnnotationNetworks: networks}, nil),
	)
	// Created through the client, because the fake cannot derive the resource from the kind.
	for _, nad := range []*unstructured.Unstructured{
		object("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "vf", map[string]string{AnnotationResource: "x/vf"},
			map[string]any{"config": `{"cniVersion":"1.0.0","type":"fake-device","ipam":{"type":"fake-ipam"}}`}),
		object("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "plain", nil,
			map[string]any{"config": `{"cniVersion":"1.0.0","name":"plain-net","plugins":[{"type":"fake-device"}]}`}),
		object("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "asked", nil,
			map[string]any{"config": `{"cniVersion":"1.0.0","plugins":[
				{"type":"fake-device","capabilities":{"ips":true},"ipam":{"type":"fake-ipam"}},{"type":"fake-tuning","mtu":9000}]}`}),
	} {
		_, err := w.client.Resource(nadResource).Namespace("home").Create(t.Context(), nad, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.plugin = &Plugin{
		newKube: func(string) (kube, error) { return kube{w.client}, nil },
		// No interface is found, because the fakes create none.
		links: func(string, string) (bool, error) { return false, nil },
	}
	w.conf = fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"podnet","type":"multinet","kubeconfig":"/none",
		"podResourcesSocket":"%[1]s/kubelet.sock","stateDir":"%[1]s/state",
		"delegate":{"type":"fake-default"}}`, dir)
	return w
}

func (w *world) args(netns string) *skel.CmdArgs {
	return &skel.CmdArgs{
		ContainerID: "c1", Netns: netns, IfName: "eth0", StdinData: w.conf, Path: w.dir,
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=home;K8S_POD_NAME=p;K8S_POD_UID=u1;K8S_POD_INFRA_CONTAINER_ID=c1",
	}
}

func (w *world) add() error {
	conf, err := LoadConf(w.conf)
	if err != nil {
		return err
	}
	_, err = w.plugin.attach(w.t.Context(), conf, w.args("/proc/self/ns/net"))
	return err
}

// log returns the calls of the delegates since the last time.
func (w *world) log() []string {
	w.t.Helper()
	path := filepath.Join(w.dir, "log")
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		w.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// received returns the configuration of a call of a delegate, such as ADD-fake-device-net1.
func (w *world) received(call string) map[string]any {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "conf-"+call))
	if err != nil {
		w.t.Fatal(err)
	}
	var conf map[string]any
	if err := json.Unmarshal(text, &conf); err != nil {
		w.t.Fatal(err)
	}
	return conf
}

func (w *world) fail(what string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, "fail-"+what), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wantLog(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.log()); diff != "" {
		w.t.Errorf("calls of the delegates (-want +got):\n%s", diff)
	}
}

func (w *world) wantNoState() {
	w.t.Helper()
	if files, _ := filepath.Glob(filepath.Join(w.dir, "state", "*")); len(files) > 0 {
		w.t.Errorf("state is left: %v", files)
	}
}

func (w *world) statuses() []NetworkStatus {
	w.t.Helper()
	pod, err := w.client.Resource(podResource).Namespace("home").Get(w.t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var s []NetworkStatus
	if err := json.Unmarshal([]byte(pod.GetAnnotations()[AnnotationStatus]), &s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

func TestAddAndDel(t *testing.T) {
	w := newWorld(t, `[{"name":"vf","interface":"fast"},{"name":"plain"},{"name":"vf"},{"name":"vf"}]`)
	if err := w.add(); err != nil {
		t.Fatal(err)
	}
	w.wantLog("ADD fake-default eth0 ns=yes", "ADD fake-device fast ns=yes", "ADD fake-device net2 ns=yes",
		"ADD fake-device net3 ns=yes", "ADD fake-device net4 ns=yes")
	status := func(name, ifName, device string) NetworkStatus {
		s := NetworkStatus{Name: name, Interface: ifName, IPs: []string{"10.0.0.2"}, MAC: "02:00:00:00:00:01", MTU: 1400}
		if device != "" {
			s.DeviceInfo = &DeviceInfo{Type: "pci", Version: "1.1.0", PCI: PCIDevice{Address: device}}
		}
		return s
	}
	want := []NetworkStatus{
		status("podnet", "eth0", ""), status("home/vf", "fast", "0000:3b:02.1"), status("home/plain", "net2", ""),
		status("home/vf", "net3", "0000:3b:02.3"), status("home/vf", "net4", ""), // two devices for three networks
	}
	want[0].Default = true
	if diff := cmp.Diff(want, w.statuses()); diff != "" {
		t.Errorf("network status (-want +got):\n%s", diff)
	}
	if got := w.received("ADD-fake-device-net3")["deviceID"]; got != "0000:3b:02.3" {
		t.Errorf("the plugin got the device %v", got)
	}

	if err := w.plugin.Funcs().Check(w.args("/proc/self/ns/net")); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	w.log()

	// The pod and its network may have been deleted before DEL.
	w.plugin.newKube = func(string) (kube, error) { t.Error("DEL asks the API server"); return kube{}, nil }
	w.fail("DEL-net3") // its interface does not exist, so del ignores the error
	if err := w.plugin.Funcs().Del(w.args("/proc/self/ns/net")); err != nil {
		t.Errorf("DEL: %v", err)
	}
	w.wantLog("DEL fake-device net4 ns=yes", "DEL fake-device net3 ns=yes", "DEL fake-device net2 ns=yes",
		"DEL fake-device fast ns=yes", "DEL fake-default eth0 ns=yes")
	w.wantNoState()
	if err := w.plugin.Funcs().Del(w.args("/proc/self/ns/net")); err != nil {
		t.Errorf("second DEL: %v", err)
	}
	w.wantLog("DEL fake-default eth0 ns=yes")
}

// TestAddressesAskedFor checks that only the plugin that declares the capability receives the addresses of the
// annotation in its configuration, where its IPAM plugin also reads them.
func TestAddressesAskedFor(t *testing.T) {
	w := newWorld(t, `[{"name":"asked","ips":["198.18.5.1/24","fd00::1/64"]},{"name":"vf","ips":["198.18.5.2/24"]},{"name":"asked"}]`)
	if err := w.add(); err != nil {
		t.Fatal(err)
	}
	asked := map[string]any{"ips": []any{"198.18.5.1/24", "fd00::1/64"}}
	if diff := cmp.Diff(any(asked), w.received("ADD-fake-device-net1")["runtimeConfig"]); diff != "" {
		t.Errorf("runtimeConfig (-want +got):\n%s", diff)
	}
	for _, call := range []string{"ADD-fake-tuning-net1", "ADD-fake-device-net2", "ADD-fake-device-net3"} {
		if got, ok := w.received(call)["runtimeConfig"]; ok {
			t.Errorf("%s got runtimeConfig %v", call, got)
		}
	}
	if err := w.plugin.Funcs().Del(w.args("/proc/self/ns/net")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any(asked), w.received("DEL-fake-device-net1")["runtimeConfig"]); diff != "" {
		t.Errorf("runtimeConfig of DEL (-want +got):\n%s", diff)
	}
}

func TestDelWithoutNamespace(t *testing.T) {
	for _, netns := range []string{"", "/none/such"} {
		w := newWorld(t, "vf")
		if err := w.add(); err != nil {
			t.Fatal(err)
		}
		w.log()
		if err := w.plugin.Funcs().Del(w.args(netns)); err != nil {
			t.Errorf("DEL: %v", err)
		}
		w.wantLog("DEL fake-ipam net1 ns=", "DEL fake-device net1 ns=", "DEL fake-default eth0 ns=")
		w.wantNoState()
	}
}

func TestDelKeepsWhatFailed(t *testing.T) {
	w := newWorld(t, "plain")
	if err := w.add(); err != nil {
		t.Fatal(err)
	}
	w.plugin.links = func(string, string) (bool, error) { return true, nil }
	w.fail("DEL-eth0")
	err := w.plugin.Funcs().Del(w.args("/proc/self/ns/net"))
	if err == nil || !strings.Contains(err.Error(), "made to fail") {
		t.Errorf("DEL: %v, want the delegate's error", err)
	}
	w.log()
	if err := os.Remove(filepath.Join(w.dir, "fail-DEL-eth0")); err != nil {
		t.Fatal(err)
	}
	if err := w.plugin.Funcs().Del(w.args("/proc/self/ns/net")); err != nil {
		t.Errorf("DEL: %v", err)
	}
	w.wantLog("DEL fake-default eth0 ns=yes")
	w.wantNoState()
}

func TestPartialFailureIsUndone(t *testing.T) {
	w := newWorld(t, "plain,vf")
	w.fail("ADD-net2")
	err := w.add()
	if err == nil || !strings.Contains(err.Error(), "made to fail") || !strings.Contains(err.Error(), "[home/p/u1]: home/vf") {
		t.Errorf("ADD: %v, want the delegate's error, the pod and the network", err)
	}
	w.wantLog("ADD fake-default eth0 ns=yes", "ADD fake-device net1 ns=yes", "ADD fake-device net2 ns=yes",
		"DEL fake-device net2 ns=yes", "DEL fake-device net1 ns=yes", "DEL fake-default eth0 ns=yes")
	w.wantNoState()
}

func TestErrorsNamePodAndNetwork(t *testing.T) {
	w := newWorld(t, "vf")
	w.fail("ADD-net1")
	err := w.plugin.Funcs().Add(w.args("/proc/self/ns/net"))
	var cniErr *types.Error
	if !errors.As(err, &cniErr) {
		t.Fatalf("error %v is not one of CNI", err)
	}
	const want = `[home/p/u1]: home/vf: error adding container to network "vf": `
	if cniErr.Code != 100 || !strings.HasPrefix(cniErr.Msg, want) || !strings.Contains(cniErr.Msg, "made to fail") {
		t.Errorf("error %d %q, want 100 and %q", cniErr.Code, cniErr.Msg, want)
	}
}

func TestMissingNetwork(t *testing.T) {
	w := newWorld(t, "vf,lab/nowhere")
	err := w.add()
	const want = "cannot find a network-attachment-definition (nowhere) in namespace (lab): "
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("ADD: %v, want %q", err, want)
	}
	w.wantLog()
	events, err := w.client.Resource(eventResource).Namespace("home").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(events.Items) != 1 {
		t.Fatalf("%d events, want 1", len(events.Items))
	}
	event := events.Items[0].Object
	if event["reason"] != "NoNetworkFound" || event["type"] != "Warning" || !strings.HasPrefix(event["message"].(string), want) {
		t.Errorf("event %v", event)
	}
}

func TestOtherPodOfThatName(t *testing.T) {
	w := newWorld(t, "")
	conf, err := LoadConf(w.conf)
	if err != nil {
		t.Fatal(err)
	}
	args := w.args("/proc/self/ns/net")
	args.Args = strings.ReplaceAll(args.Args, "UID=u1", "UID=u0")
	if _, err := w.plugin.attach(w.t.Context(), conf, args); err == nil || !strings.Contains(err.Error(), `expected pod home/p UID "u0"`) {
		t.Errorf("ADD: %v, want a complaint about the uid", err)
	}
}

func TestGC(t *testing.T) {
	w := newWorld(t, "plain")
	if err := w.add(); err != nil {
		t.Fatal(err)
	}
	w.log()
	args := w.args("")
	withValid := func(valid string) []byte {
		return []byte(strings.Replace(string(w.conf), `"name"`, `"cni.dev/valid-attachments":`+valid+`,"name"`, 1))
	}
	args.StdinData = withValid(`[{"containerID":"c1","ifname":"eth0"}]`)
	if err := w.plugin.Funcs().GC(args); err != nil {
		t.Fatal(err)
	}
	w.wantLog()
	args.StdinData = withValid(`[]`)
	if err := w.plugin.Funcs().GC(args); err != nil {
		t.Fatal(err)
	}
	w.wantLog("DEL fake-device net1 ns=yes", "DEL fake-default eth0 ns=yes")
	w.wantNoState()
}
