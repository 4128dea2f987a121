//go:build e2e

package localcluster

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tailgate-dev/tailgate/test/localcluster/cni"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

// createNetwork creates a network with the devices of a resource.
func createNetwork(ctx context.Context, t *testing.T, client *kubernetes.Clientset, name, resource, config string) {
	t.Helper()
	network, err := json.Marshal(map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{"name": name, "annotations": map[string]string{cni.AnnotationResource: resource}},
		"spec":     map[string]any{"config": config},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = client.RESTClient().Post().AbsPath("/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions").
		SetHeader("Content-Type", "application/json").Body(network).Do(ctx).Error()
	if err != nil {
		t.Fatal(err)
	}
}

// createPod creates a pod on node-a with one exclusive CPU, one device of each resource and the networks of its annotation.
func createPod(ctx context.Context, t *testing.T, client *kubernetes.Clientset, name, networks string, resources ...corev1.ResourceName) {
	t.Helper()
	limits := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("32Mi")}
	for _, r := range resources {
		limits[r] = resource.MustParse("1")
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{cni.AnnotationNetworks: networks}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"kubernetes.io/hostname": "node-a"},
			Containers: []corev1.Container{{
				Name: "pause", Image: images.PauseRef, Resources: corev1.ResourceRequirements{Limits: limits},
			}},
		},
	}
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// podInPhase waits until the pod is in a phase.
func podInPhase(ctx context.Context, t *testing.T, client *kubernetes.Clientset, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var pod *corev1.Pod
	err := poll(ctx, func() (done bool, err error) {
		pod, err = client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == phase, nil
	})
	if err != nil {
		t.Fatalf("pod %s is not %s: %v; its status is %s", name, phase, err, pod.Status.String())
	}
	return pod
}

// removePod deletes the pod, and waits until its devices and CPUs are free.
func removePod(ctx context.Context, t *testing.T, client *kubernetes.Clientset, name string) {
	t.Helper()
	pods := client.CoreV1().Pods("default")
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := poll(ctx, func() (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		return err == nil && len(list.Items) == 0, nil
	})
	if err != nil {
		t.Fatalf("pod %s stays: %v", name, err)
	}
}

// processesOf returns the processes of a pod's sandbox and container.
func processesOf(t *testing.T, pod *corev1.Pod) []found {
	t.Helper()
	var processes []found
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := poll(ctx, func() (done bool, err error) { // A container is running a moment before runc becomes its program.
		processes, err = findProcesses(func(f found) bool { return f.Exe == "pause" && strings.Contains(f.Cgroup, string(pod.UID)) })
		return len(processes) == 2, err
	})
	if err != nil {
		t.Fatalf("pod %s has the processes %v, want those of its sandbox and its container: %v", pod.Name, processes, err)
	}
	return processes
}

// interfaceOf returns the link and the addresses of an interface of a pod.
func interfaceOf(t *testing.T, pod *corev1.Pod, name string) (*netlink.LinkAttrs, []string) {
	t.Helper()
	ns, err := netns.GetFromPid(processesOf(t, pod)[0].PID)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFD(int(ns))
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	link, err := h.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	list, err := h.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, a := range list {
		addresses = append(addresses, a.IPNet.String())
	}
	return link.Attrs(), addresses
}

// ownsCPUs reports whether the container of a pod is bound to the one CPU that it requested. Its sandbox never is.
func ownsCPUs(t *testing.T, pod *corev1.Pod) bool {
	t.Helper()
	return slices.ContainsFunc(processesOf(t, pod), func(f found) bool {
		var cpus unix.CPUSet
		if err := unix.SchedGetaffinity(f.PID, &cpus); err != nil {
			t.Fatal(err)
		}
		return cpus.Count() == 1
	})
}

func networkStatuses(t *testing.T, pod *corev1.Pod) []cni.NetworkStatus {
	t.Helper()
	var statuses []cni.NetworkStatus
	if err := json.Unmarshal([]byte(pod.Annotations[cni.AnnotationStatus]), &statuses); err != nil {
		t.Fatal(err)
	}
	return statuses
}

// allocatable returns the number of devices of a resource that node-a can allocate.
func allocatable(ctx context.Context, t *testing.T, client *kubernetes.Clientset, name corev1.ResourceName) int64 {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(ctx, "node-a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	quantity := node.Status.Allocatable[name]
	return quantity.Value()
}

// testPods checks the devices, networks and CPUs that pods get, and the faults that change them.
func testPods(t *testing.T, o Options) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, err := existing(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	client, err := c.client()
	if err != nil {
		t.Fatal(err)
	}
	a := c.nodes[0]

	t.Run("a VF with an address that the pod asks for and an MTU of its network", func(t *testing.T) {
		createNetwork(ctx, t, client, "asked", ResourceVF, `{"cniVersion":"1.0.0","name":"asked","plugins":[
			{"type":"sriov","vlan":0,"capabilities":{"ips":true},"ipam":{"type":"static"}},{"type":"tuning","mtu":9000}]}`)
		createPod(ctx, t, client, "asked", `[{"name":"asked","namespace":"default","interface":"net1","ips":["198.18.5.1/24"]}]`, ResourceVF)
		defer removePod(ctx, t, client, "asked")
		pod := podInPhase(ctx, t, client, "asked", corev1.PodRunning)
		link, addresses := interfaceOf(t, pod, "net1")
		if link.MTU != 9000 || !slices.Contains(addresses, "198.18.5.1/24") {
			t.Errorf("net1 has MTU %d and addresses %q", link.MTU, addresses)
		}
		got := networkStatuses(t, pod)
		if len(got) != 2 || got[1].DeviceInfo == nil {
			t.Fatalf("network status %+v, want those of two networks, the second with a device", got)
		}
		device := got[1].DeviceInfo.PCI.Address
		want := cni.NetworkStatus{
			// The MTU is the one before tuning changed it, as with Multus and sriov-cni.
			Name: "default/asked", Interface: "net1", IPs: []string{"198.18.5.1"}, MAC: link.HardwareAddr.String(), MTU: mtu,
			DeviceInfo: &cni.DeviceInfo{Type: "pci", Version: "1.1.0", PCI: cni.PCIDevice{Address: device}},
		}
		if diff := cmp.Diff(want, got[1]); diff != "" {
			t.Errorf("network status (-want +got):\n%s", diff)
		}
		if !slices.ContainsFunc(a.nics()[0].VFs, func(vf nic) bool { return vf.BDF == device }) {
			t.Errorf("the pod has %s, which is no VF beside its CPUs", device)
		}
		if !ownsCPUs(t, pod) {
			t.Error("the pod has no CPU of its own")
		}
	})

	t.Run("a PF without VFs", func(t *testing.T) {
		createPod(ctx, t, client, "pf", "sf-pf", ResourcePF)
		defer removePod(ctx, t, client, "pf")
		got := networkStatuses(t, podInPhase(ctx, t, client, "pf", corev1.PodRunning))
		want := cni.NetworkStatus{
			Name: "default/sf-pf", Interface: "net1",
			DeviceInfo: &cni.DeviceInfo{Type: "pci", Version: "1.1.0", PCI: cni.PCIDevice{Address: a.nics()[2].BDF}},
		}
		if diff := cmp.Diff(want, got[1], cmpopts.IgnoreFields(cni.NetworkStatus{}, "IPs", "MAC")); diff != "" {
			t.Errorf("network status (-want +got):\n%s", diff)
		}
	})

	t.Run("a network's device that the pod did not ask for", func(t *testing.T) {
		createPod(ctx, t, client, "none", "sf-vf")
		defer removePod(ctx, t, client, "none")
		wait, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err := poll(wait, func() (bool, error) {
			events, err := client.CoreV1().Events("default").List(ctx, metav1.ListOptions{
				FieldSelector: "involvedObject.name=none,reason=FailedCreatePodSandBox",
			})
			return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
				return strings.Contains(e.Message, "VF pci addr is required")
			}), nil
		})
		if err != nil {
			t.Errorf("no event has the words of sriov-cni: %v", err)
		}
	})

	t.Run("VFs far from the CPUs, with and without a hint", func(t *testing.T) {
		const config = `{"cniVersion":"1.0.0","name":"far","type":"sriov","ipam":{"type":"static","addresses":[{"address":"198.18.6.1/24"}]}}`
		createNetwork(ctx, t, client, "sf-vf-far", ResourceVFFar, config)
		createNetwork(ctx, t, client, "sf-vf-nohint", ResourceVFNoHint, config)
		createPod(ctx, t, client, "far", "sf-vf-far", ResourceVFFar)
		defer removePod(ctx, t, client, "far")
		if pod := podInPhase(ctx, t, client, "far", corev1.PodFailed); pod.Status.Reason != "TopologyAffinityError" {
			t.Errorf("the pod failed with %q: %s", pod.Status.Reason, pod.Status.Message)
		}
		createPod(ctx, t, client, "nohint", "sf-vf-nohint", ResourceVFNoHint)
		defer removePod(ctx, t, client, "nohint")
		podInPhase(ctx, t, client, "nohint", corev1.PodRunning)
	})

	t.Run("a device plugin that dies and comes back", func(t *testing.T) {
		for _, step := range []struct {
			do   func(context.Context, Options, string) error
			want int64
		}{{KillDevicePlugin, 0}, {StartDevicePlugin, 4}} {
			if err := step.do(ctx, o, "node-a"); err != nil {
				t.Fatal(err)
			}
			wait, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			err := poll(wait, func() (bool, error) { return allocatable(ctx, t, client, ResourceVF) == step.want, nil })
			if err != nil {
				t.Fatalf("the node does not have %d VFs to give: %v", step.want, err)
			}
		}
	})

	t.Run("a kubelet that does not pin", func(t *testing.T) {
		if err := StopPinning(ctx, o, "node-a"); err != nil {
			t.Fatal(err)
		}
		createPod(ctx, t, client, "shared", "sf-vf-far", ResourceVFFar)
		if ownsCPUs(t, podInPhase(ctx, t, client, "shared", corev1.PodRunning)) {
			t.Error("without pinning the pod has a CPU of its own")
		}
		removePod(ctx, t, client, "shared")
		if err := Up(ctx, o); err != nil {
			t.Fatal(err)
		}
		createPod(ctx, t, client, "pinned", "sf-vf", ResourceVF)
		if !ownsCPUs(t, podInPhase(ctx, t, client, "pinned", corev1.PodRunning)) {
			t.Error("after Up the pod has no CPU of its own")
		}
		removePod(ctx, t, client, "pinned")
	})

	t.Run("an MTU at one end", func(t *testing.T) {
		if err := SetMTU(o, "node-a", ResourcePF, 1400); err != nil {
			t.Fatal(err)
		}
		createPod(ctx, t, client, "small", "sf-pf", ResourcePF)
		link, _ := interfaceOf(t, podInPhase(ctx, t, client, "small", corev1.PodRunning), "net1")
		if link.MTU != 1400 {
			t.Errorf("the pod's interface has MTU %d", link.MTU)
		}
		if err := SetMTU(o, "node-a", ResourcePF, mtu); err == nil {
			t.Error("the MTU of a device that a pod has was set")
		}
		removePod(ctx, t, client, "small")
		if err := Up(ctx, o); err != nil {
			t.Fatal(err)
		}
		h, err := openNetns(a.netns())
		if err != nil {
			t.Fatal(err)
		}
		defer h.close()
		pf, err := h.LinkByName("ens3f0")
		if err != nil {
			t.Fatal(err)
		}
		if pf.Attrs().MTU != mtu {
			t.Errorf("after Up the PF has MTU %d", pf.Attrs().MTU)
		}
	})
}
