// Package dradriver is the local cluster's stand-in for the SR-IOV driver of Dynamic Resource Allocation
// (k8snetworkplumbingwg/dra-driver-sriov) in its mode for Multus. It publishes the VFs named in a file in ResourceSlices, with
// the real driver's name and attributes, and gives containers the same environment variables by CDI. It registers with the
// kubelet through Kubernetes' helper library and is never shipped.
package dradriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// Name is the name of the real driver.
const Name = "sriovnetwork.k8snetworkplumbingwg.io"

// cdiKind is the kind of the CDI devices.
const cdiKind = Name + "/vf"

// Config is the driver's configuration.
type Config struct {
	// Node is the name of the node, and of its pool.
	Node string `json:"node"`
	// Kubeconfig is the path of the kubeconfig for the API server.
	Kubeconfig string `json:"kubeconfig"`
	// CDIDir is the folder in which the container runtime looks for CDI specifications.
	CDIDir string `json:"cdiDir"`
	// Devices are the VFs.
	Devices []Device `json:"devices"`
}

// Device is a VF.
type Device struct {
	// PCIAddress is the address of the VF, such as 0000:d8:02.0, and PFPCIAddress the address of its PF.
	PCIAddress   string `json:"pciAddress"`
	PFPCIAddress string `json:"pfPCIAddress"`
	// PF is the name of the network interface of the PF.
	PF string `json:"pf"`
	// VF is the number of the VF on its PF.
	VF int64 `json:"vf"`
	// NUMANode is the NUMA node of the card.
	NUMANode int64 `json:"numaNode"`
	// ResourceName is the extended resource of the DeviceClass that selects the device. Multus compares the two names.
	ResourceName string `json:"resourceName"`
}

// name returns the name of the device in its ResourceSlice.
func (d Device) name() string { return strings.NewReplacer(":", "-", ".", "-").Replace(d.PCIAddress) }

func (d Device) published() resourcev1.Device {
	text := func(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &s} }
	number := func(n int64) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{IntValue: &n} }
	return resourcev1.Device{Name: d.name(), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		Name + "/vendor":                                text("1924"),
		Name + "/deviceID":                              text("1b03"),
		Name + "/pfDeviceID":                            text("0b03"),
		Name + "/pciAddress":                            text(d.PCIAddress),
		Name + "/pfPciAddress":                          text(d.PFPCIAddress),
		Name + "/PFName":                                text(d.PF),
		Name + "/EswitchMode":                           text("legacy"),
		Name + "/vfID":                                  number(d.VF),
		Name + "/linkType":                              text("ethernet"),
		Name + "/rdmaCapable":                           {BoolValue: new(false)},
		Name + "/resourceName":                          text(d.ResourceName),
		"k8s.cni.cncf.io/deviceID":                      text(d.PCIAddress),
		"k8s.cni.cncf.io/resourceName":                  text(d.ResourceName),
		"dra.net/numaNode":                              number(d.NUMANode),
		deviceattribute.StandardDeviceAttributePCIBusID: text(d.PCIAddress),
		deviceattribute.StandardDeviceAttributePCIeRoot: text("pci" + d.PCIAddress[:len("0000:d8")]),
	}}
}

// Run publishes the devices and prepares claims until ctx ends.
func Run(ctx context.Context, c Config, log *slog.Logger) error {
	rest, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	data := filepath.Join(kubeletplugin.KubeletPluginsDir, Name)
	// The kubelet, which creates the folder of sockets, may start later.
	if err := errors.Join(os.MkdirAll(data, 0o750), os.MkdirAll(kubeletplugin.KubeletRegistryDir, 0o750), os.MkdirAll(c.CDIDir, 0o755)); err != nil {
		return fmt.Errorf("creating folders: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	helper, err := kubeletplugin.Start(ctx, &driver{c, log, cancel}, kubeletplugin.DriverName(Name), kubeletplugin.NodeName(c.Node),
		kubeletplugin.KubeClient(client), kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return fmt.Errorf("registering at the kubelet: %w", err)
	}
	defer helper.Stop()
	var slice resourceslice.Slice
	for _, d := range c.Devices {
		slice.Devices = append(slice.Devices, d.published())
	}
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{c.Node: {Slices: []resourceslice.Slice{slice}}}}
	if err := helper.PublishResources(ctx, resources); err != nil {
		return fmt.Errorf("publishing the devices: %w", err)
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// driver answers the kubelet.
type driver struct {
	Config
	log  *slog.Logger
	fail context.CancelCauseFunc
}

func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	prepared := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := d.prepare(claim)
		d.log.Info("prepared", "claim", claim.Namespace+"/"+claim.Name, "devices", len(devices), "error", err)
		prepared[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return prepared, nil
}

// prepare writes the CDI specification of a claim: environment variables for each device.
func (d *driver) prepare(claim *resourcev1.ResourceClaim) ([]kubeletplugin.Device, error) {
	type edits struct {
		Env []string `json:"env"`
	}
	type device struct {
		Name           string `json:"name"`
		ContainerEdits edits  `json:"containerEdits"`
	}
	spec := struct {
		Version string   `json:"cdiVersion"`
		Kind    string   `json:"kind"`
		Devices []device `json:"devices"`
	}{Version: "0.6.0", Kind: cdiKind}
	var devices []kubeletplugin.Device
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver != Name {
			continue
		}
		address, err := d.addressOf(r)
		if err != nil {
			return nil, err
		}
		name := string(claim.UID) + "-" + r.Device
		spec.Devices = append(spec.Devices, device{name, edits{[]string{
			"SRIOVNETWORK_VF_DEVICE_" + strings.ReplaceAll(r.Device, "-", "_") + "=" + address, "SRIOVNETWORK_NET_ATTACH_DEF_NAME=",
		}}})
		devices = append(devices, kubeletplugin.Device{
			Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, CDIDeviceIDs: []string{cdiKind + "=" + name},
		})
	}
	content, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encoding the CDI specification: %w", err)
	}
	if err := os.WriteFile(d.specOf(claim.UID), content, 0o644); err != nil {
		return nil, fmt.Errorf("writing the CDI specification: %w", err)
	}
	return devices, nil
}

func (d *driver) addressOf(r resourcev1.DeviceRequestAllocationResult) (string, error) {
	for _, own := range d.Devices {
		if r.Pool == d.Node && r.Device == own.name() {
			return own.PCIAddress, nil
		}
	}
	return "", fmt.Errorf("device %s of pool %s is not of this node", r.Device, r.Pool)
}

func (d *driver) specOf(claim types.UID) string {
	return filepath.Join(d.CDIDir, strings.ReplaceAll(cdiKind, "/", "-")+"_"+string(claim)+".json")
}

func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	unprepared := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(d.specOf(claim.UID))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		unprepared[claim.UID] = err
	}
	return unprepared, nil
}

func (d *driver) HandleError(_ context.Context, err error, message string) {
	d.log.Error(message, "error", err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.fail(fmt.Errorf("%s: %w", message, err))
	}
}
