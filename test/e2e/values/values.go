// Package values describes a cluster to the end-to-end tests; docs/internals/e2e.md explains each key.
package values

import (
	_ "embed" // the local cluster's values
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Values describes a cluster.
type Values struct {
	// Client and Server are the nodes of the two endpoints.
	Client string `json:"client"`
	Server string `json:"server"`
	// Namespace is created at the beginning and deleted at the end, with NamespaceLabels.
	Namespace       string            `json:"namespace"`
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	// ManagerNamespace is the namespace of the manager. With Chart, the suite installs Tailgate there with these values of
	// the Helm chart, and uninstalls it at the end; without Chart, it must already be installed.
	ManagerNamespace string         `json:"managerNamespace"`
	Chart            map[string]any `json:"chart,omitempty"`
	// CPUs is placement.cpus of each endpoint.
	CPUs int32 `json:"cpus,omitempty"`
	// NetworksFrom is the namespace whose NetworkAttachmentDefinitions are copied into Namespace.
	NetworksFrom string `json:"networksFrom,omitempty"`
	// VF and PF have the fields of network.vf and network.pf of a benchmark. Specs that need an absent one are skipped.
	VF *v1alpha1.DeviceNetwork `json:"vf,omitempty"`
	PF *v1alpha1.DeviceNetwork `json:"pf,omitempty"`
	// MTU is the largest MTU that the VFs and the switch support.
	MTU int32 `json:"mtu,omitempty"`
	// HostNetwork is true if the manager allows it.
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// Onload is the resource of Onload's device plugin. With it, accelerated sockets over the VFs are also measured.
	Onload string `json:"onload,omitempty"`
	// Upgrade describes how to upgrade the client's node. Specs that need it are skipped if it is absent.
	Upgrade *Upgrade `json:"upgrade,omitempty"`
}

// Upgrade describes an upgrade of a node. Commands run in a shell, with KUBECONFIG and NODE.
type Upgrade struct {
	// Command starts an upgrade after which the node has another boot ID, within Timeout.
	Command string          `json:"command"`
	Timeout metav1.Duration `json:"timeout"`
	// Slow, if not empty, more than doubles the latency of the network of the node's VFs until Restore.
	Slow    string `json:"slow,omitempty"`
	Restore string `json:"restore,omitempty"`
}

//go:embed local.yaml
var local []byte

// Local returns the values of the local cluster.
func Local() (Values, error) { return parse("local.yaml", local) }

// Read reads values from a file.
func Read(path string) (Values, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Values{}, err
	}
	return parse(path, content)
}

// parse parses values. It reports unknown keys and missing values in one line.
func parse(path string, content []byte) (Values, error) {
	v := Values{Namespace: "tailgate-e2e", ManagerNamespace: "tailgate-system", MTU: 1500}
	if err := yaml.UnmarshalStrict(content, &v); err != nil {
		message := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: "), "json: ")
		return v, fmt.Errorf("%s: %s", path, strings.Join(strings.Fields(message), " "))
	}
	for _, need := range []struct {
		missing bool
		what    string
	}{
		{v.Client == "", "client: the name of a node is missing"},
		{v.Server == "" || v.Server == v.Client, "server: the name of a node other than the client's is missing"},
		{v.Namespace == "" || v.Namespace == "default", "namespace: must be one that the suite may create and delete"},
		{v.ManagerNamespace == "", "managerNamespace: is empty"},
		{v.Chart != nil && v.ManagerNamespace == v.Namespace, "managerNamespace: must differ from namespace"},
		{incomplete(v.VF), "vf: needs resourceName, and either ipam or networkRef.name and networksFrom"},
		{incomplete(v.PF), "pf: needs resourceName, and either ipam or networkRef.name and networksFrom"},
		{v.NetworksFrom == "" && (refers(v.VF) || refers(v.PF)), "networksFrom: the namespace of networkRef is missing"},
		{v.Onload != "" && v.VF == nil, "onload: needs vf"},
		{v.Upgrade != nil && v.Upgrade.Command == "", "upgrade.command: is missing"},
		{v.Upgrade != nil && v.Upgrade.Timeout.Duration <= 0, "upgrade.timeout: is missing, such as 30m"},
		{v.Upgrade != nil && (v.Upgrade.Slow == "") != (v.Upgrade.Restore == ""), "upgrade.slow and upgrade.restore: one without the other"},
	} {
		if need.missing {
			return v, fmt.Errorf("%s: %s", path, need.what)
		}
	}
	return v, nil
}

func refers(d *v1alpha1.DeviceNetwork) bool { return d != nil && d.NetworkRef != nil }

func incomplete(d *v1alpha1.DeviceNetwork) bool {
	return d != nil && (d.ResourceName == "" || (d.IPAM == nil) == (d.NetworkRef == nil) || refers(d) && d.NetworkRef.Name == "")
}
