package localcluster

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/test/localcluster/deviceplugin"
	"github.com/tailgate-dev/tailgate/test/localcluster/dradriver"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

// Resources that the nodes' device plugins advertise.
const (
	// ResourceVF are the VFs beside the exclusive CPUs.
	ResourceVF = "tailgate.test/sf_vf"
	// ResourceX2 are the same VFs in the cluster of the tutorials; see Options.Workers.
	ResourceX2 = "openshift.io/sf_x2_vf"
	// ResourceVFFar are VFs on the other NUMA node. A pod with exclusive CPUs that requests one is not admitted
	// (TopologyAffinityError).
	ResourceVFFar = "tailgate.test/sf_vf_far"
	// ResourceVFNoHint are VFs on the other NUMA node whose NUMA node the device plugin does not report. The
	// environment variable of their addresses has a hyphen in its name.
	ResourceVFNoHint = "tailgate.test/sf_vf-nohint"
	// ResourcePF is a PF without VFs beside the exclusive CPUs.
	ResourcePF = "tailgate.test/sf_pf"
	// ResourceVFClaimed is the extended resource that a DeviceClass must name for the VFs, beside the exclusive CPUs, that a
	// driver of Dynamic Resource Allocation publishes. No device plugin advertises it.
	ResourceVFClaimed = "tailgate.test/sf_vf_claimed"
)

// ResourceFragile are VFs of a device plugin that does not report their NUMA node and exits when an interface of the node's
// cards appears or disappears; see StartFragilePlugin.
const ResourceFragile = "tailgate.test/sf_vf_fragile"

// cpuCheckpoint is the path, in a node's folder, of the file in which the kubelet's CPU manager keeps its allocations.
var cpuCheckpoint = []string{"kubelet", "cpu_manager_state"}

// kubeletConfig returns the node's KubeletConfiguration. Without pinning, the kubelet gives no pod exclusive CPUs and
// ignores NUMA nodes.
func kubeletConfig(p paths, n node, pinning bool) ([]byte, error) {
	cpuManager, topologyManager := "static", "single-numa-node"
	if !pinning {
		cpuManager, topologyManager = "none", "none"
	}
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"address":    n.IP,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": p.pki("ca.crt")},
		},
		"authorization": map[string]any{"mode": "Webhook"},

		"tlsCertFile":       p.pki(n.Name + ".crt"),
		"tlsPrivateKeyFile": p.pki(n.Name + ".key"),

		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		"podLogsDir":               "/var/log/pods",
		"volumePluginDir":          p.node(n, "volume-plugins"),
		"resolvConf":               "",
		"clusterDNS":               []string{dnsIP},
		"clusterDomain":            "cluster.local",
		// Without services, the kubelet does not need iptables, so it need not be installed.
		"makeIPTablesUtilChains": false,

		"cgroupDriver": "cgroupfs",
		"cgroupRoot":   "/" + n.cgroup(),
		// Version 1 works, and many machines still have it.
		"failCgroupV1":           false,
		"failSwapOn":             false,
		"enforceNodeAllocatable": []string{},

		"cpuManagerPolicy":      cpuManager,
		"reservedSystemCPUs":    cpuList(n.Reserved),
		"topologyManagerPolicy": topologyManager,
		"topologyManagerScope":  "pod",

		// A full disk is not the kubelet's concern, and it must not remove images, because there is no registry to pull them from.
		"evictionHard": map[string]string{
			"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%",
		},
		"imageGCHighThresholdPercent":   100,
		"localStorageCapacityIsolation": false,
		"syncFrequency":                 "10s",
	}
	if !n.Guest {
		// A restarted kubelet is not ready until its second report, and its next report announces changed devices: specs spend most
		// of their time waiting for reports. Unchanged reports are sent at the default interval.
		config["nodeStatusUpdateFrequency"], config["nodeStatusReportFrequency"] = "1s", "5m"
	}
	if n.WholeCores && pinning {
		config["cpuManagerPolicyOptions"] = map[string]string{"full-pcpus-only": "true"}
	}
	content, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encoding the kubelet's configuration: %w", err)
	}
	return content, nil
}

var containerdTemplate = template.Must(template.New("containerd").Parse(`version = 3
root = {{printf "%q" .Root}}
state = "/run/containerd"

[grpc]
  address = "/run/containerd/containerd.sock"

# Two containerds on one machine would fight for its socket.
[plugins."io.containerd.nri.v1.nri"]
  disable = true

[plugins."io.containerd.internal.v1.opt"]
  path = {{printf "%q" .Opt}}

[plugins."io.containerd.cri.v1.images"]
  snapshotter = {{printf "%q" .Snapshotter}}
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = {{printf "%q" .Pause}}

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  cdi_spec_dirs = [{{printf "%q" .CDI}}]
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [{{range $i, $dir := .CNIBinaries}}{{if $i}}, {{end}}{{printf "%q" $dir}}{{end}}]
    conf_dir = {{printf "%q" .CNIConfig}}
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = {{printf "%q" .BaseSpec}}
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
      BinaryName = {{printf "%q" .Runc}}
`))

// containerdConfig returns the node's configuration of containerd.
func containerdConfig(p paths, n node, binaries, snapshotter string) ([]byte, error) {
	cniBinaries, cniConfig := []string{p.join("bin"), filepath.Join(binaries, "cni")}, p.node(n, "cni")
	if n.Components {
		cniBinaries, cniConfig = []string{siteCNIBinaries}, siteCNIConfig
	}
	var out strings.Builder
	err := containerdTemplate.Execute(&out, map[string]any{
		"Root":        p.node(n, "containerd"),
		"Opt":         p.node(n, "opt"),
		"Snapshotter": snapshotter,
		"Pause":       images.PauseRef,
		"CNIBinaries": cniBinaries,
		"CNIConfig":   cniConfig,
		"CDI":         cdiDir,
		"BaseSpec":    p.node(n, "base-spec.json"),
		"Runc":        filepath.Join(binaries, "runc"),
	})
	if err != nil {
		return nil, fmt.Errorf("writing containerd's configuration: %w", err)
	}
	return []byte(out.String()), nil
}

// baseSpec adds the node's view of NUMA nodes, PCI devices and the boot ID to containerd's default OCI runtime specification.
// With the default, a container would see those of the machine.
func baseSpec(p paths, n node, defaults []byte) ([]byte, error) {
	if n.Guest {
		return defaults, nil // it has a machine of its own
	}
	var spec map[string]any
	if err := json.Unmarshal(defaults, &spec); err != nil {
		return nil, fmt.Errorf("reading containerd's default runtime specification: %w", err)
	}
	mounts, ok := spec["mounts"].([]any)
	if !ok {
		return nil, fmt.Errorf("containerd's default runtime specification has no mounts")
	}
	for _, m := range []struct{ target, source string }{
		{"/sys/devices/system/node", p.node(n, "sys", "node")},
		{"/sys/bus/pci/devices", p.node(n, "sys", "pci")},
	} {
		mounts = append(mounts, map[string]any{
			"destination": m.target, "type": "bind", "source": m.source,
			"options": []string{"rbind", "ro", "nosuid", "noexec", "nodev"},
		})
	}
	spec["mounts"] = mounts
	// runc does not allow mounts on files of /proc, but a hook can make them.
	spec["hooks"] = map[string]any{"createContainer": []any{map[string]any{
		"path": "/bin/sh", "env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		"args": []string{"sh", "-c", fmt.Sprintf(`mount --bind %s "$(sed -n 's/.*"bundle":"\([^"]*\)".*/\1/p')/rootfs%s"`, p.node(n, "sys", bootFile), bootPath)},
	}}}
	content, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the runtime specification: %w", err)
	}
	return content, nil
}

// cniConfig returns the node's only CNI configuration: the meta-plugin, which delegates a pod's first network to a bridge.
func cniConfig(p paths, n node) ([]byte, error) {
	config := metaPlugin(p, p.node(n, "multinet"))
	config["delegate"] = podNetwork(p, n)
	content, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the CNI configuration: %w", err)
	}
	return content, nil
}

// fragileConfig returns the configuration of a device plugin that exits when an interface of the node's cards appears or
// disappears. Its intervals are a thirtieth of those of AMD's device plugin of Onload and the kubelet, but as there, the kubelet
// reports once while it is away: each second on a local cluster. Like AMD's plugin, it reports no NUMA nodes.
func fragileConfig(n node) ([]byte, error) {
	return pluginConfig(&deviceplugin.Fragile{
		PCIDevices: "/sys/bus/pci/devices", CheckMilliseconds: 2000, BackoffMilliseconds: 1500, MaxBackoffMilliseconds: 10000,
	}, n.fragile())
}

// devicePluginConfig returns the configuration of the node's device plugin.
func devicePluginConfig(n node) ([]byte, error) {
	if n.Guest {
		return json.Marshal(deviceplugin.Config{KubeletDir: kubeletPlugins, DeviceInfoDir: deviceInfos, Resources: []deviceplugin.Resource{
			{Name: ResourceVF, Functions: deviceplugin.VFs}, {Name: ResourcePF, Functions: deviceplugin.PFs},
		}})
	}
	return pluginConfig(nil, n.pools()...)
}

const (
	// kubeletPlugins is the folder of the kubelet's registration socket for device plugins.
	kubeletPlugins = "/var/lib/kubelet/device-plugins"
	// deviceInfos is the folder in which device plugins describe devices for CNI plugins.
	deviceInfos = "/run/k8s.cni.cncf.io/devinfo/dp"
)

func pluginConfig(fragile *deviceplugin.Fragile, pools ...pool) ([]byte, error) {
	config := deviceplugin.Config{KubeletDir: kubeletPlugins, Fragile: fragile}
	for _, p := range pools {
		r := deviceplugin.Resource{Name: p.Resource}
		for _, d := range p.Devices {
			device := deviceplugin.Device{ID: d.BDF, Netdev: d.Name}
			if !p.NoHint {
				device.NUMANode = new(int64(d.NUMA))
			}
			r.Devices = append(r.Devices, device)
		}
		config.Resources = append(config.Resources, r)
	}
	content, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the device plugin's configuration: %w", err)
	}
	return content, nil
}

// cdiDir is below /run, which each node has of its own; /var/run may be a folder of the machine.
const cdiDir = "/run/cdi"

// draDriverConfig returns the configuration of the node's driver of Dynamic Resource Allocation.
func draDriverConfig(p paths, n node) ([]byte, error) {
	pf, vfs := n.claimable()
	c := dradriver.Config{Node: n.Name, Kubeconfig: p.kubeconfig("admin"), CDIDir: cdiDir}
	for i, vf := range vfs {
		c.Devices = append(c.Devices, dradriver.Device{
			PCIAddress: vf.BDF, PFPCIAddress: pf.BDF, PF: pf.Name, VF: int64(i), NUMANode: int64(vf.NUMA), ResourceName: ResourceVFClaimed,
		})
	}
	content, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the DRA driver's configuration: %w", err)
	}
	return content, nil
}

// nodeProcess returns the name of a process of a node.
func nodeProcess(kind, nodeName string) string { return kind + "-" + nodeName }

func containerd(p paths, n node, binaries string) process {
	return process{Name: nodeProcess("containerd", n.Name), Node: &n, Args: []string{
		binaries + "/containerd", "--config=" + p.node(n, "containerd.toml"), "--log-level=info",
	}}
}

func kubelet(p paths, n node, binaries string) process {
	return process{Name: nodeProcess("kubelet", n.Name), Node: &n, Args: []string{
		binaries + "/kubelet",
		"--config=" + p.node(n, "kubelet.yaml"),
		"--kubeconfig=" + p.kubeconfig(n.Name),
		"--hostname-override=" + n.Name,
		"--node-ip=" + n.IP,
		"--root-dir=/var/lib/kubelet",
		// Gathering statistics disturbs a measurement on so few cores.
		"--housekeeping-interval=30s",
	}}
}

func devicePlugin(p paths, n node) process {
	return process{Name: nodeProcess("deviceplugin", n.Name), Node: &n, Args: []string{
		p.bin("deviceplugin"), "-config", p.node(n, "deviceplugin.json"),
	}}
}

// fragilePlugin returns the process of the fragile device plugin. Up does not start it.
func fragilePlugin(p paths, n node) process {
	return process{Name: nodeProcess("fragileplugin", n.Name), Node: &n, Args: []string{p.bin("deviceplugin"), "-config", p.node(n, "fragile.json")}}
}

func draDriver(p paths, n node) process {
	return process{Name: nodeProcess("dradriver", n.Name), Node: &n, Args: []string{p.bin("dradriver"), p.node(n, "dradriver.json")}}
}
