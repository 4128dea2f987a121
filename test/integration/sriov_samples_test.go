package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/internal/foreign"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// sriovSamples is the folder of the manifests for Solarflare NICs, most of them of other projects' kinds. sriovValues, Helm values, is
// the only file that is not a manifest.
var (
	sriovSamples = filepath.Join("..", "..", "config", "samples", "sriov")
	sriovValues  = filepath.Join(sriovSamples, "values-sriov-network-operator.yaml")
)

// helmValues are the values of sriov-network-operator's chart that the sample sets.
type helmValues struct {
	SriovOperatorConfig struct {
		Deploy bool `json:"deploy"`
	} `json:"sriovOperatorConfig"`
	SupportedExtraNICs []string `json:"supportedExtraNICs"`
	Operator           struct {
		ResourcePrefix string `json:"resourcePrefix"`
	} `json:"operator"`
}

// devicePluginConfig is the part of the configuration of sriov-network-device-plugin v3.11.0 that the samples use.
type devicePluginConfig struct {
	ResourceList []struct {
		ResourcePrefix string `json:"resourcePrefix"`
		ResourceName   string `json:"resourceName"`
		Selectors      []struct {
			Vendors      []string `json:"vendors"`
			Devices      []string `json:"devices"`
			Drivers      []string `json:"drivers"`
			PCIAddresses []string `json:"pciAddresses"`
			PFNames      []string `json:"pfNames"`
		} `json:"selectors"`
	} `json:"resourceList"`
}

// cniIPAM is the configuration of whereabouts, and cniConfig the configuration of the plugins sriov, host-device, ipvlan and macvlan,
// with the fields that the samples use. They do not contain fields that the sfc driver rejects, such as trust.
type (
	cniIPAM struct {
		Type  string `json:"type"`
		Range string `json:"range"`
	}
	cniConfig struct {
		CNIVersion string  `json:"cniVersion"`
		Name       string  `json:"name"`
		Type       string  `json:"type"`
		Master     string  `json:"master"`
		Mode       string  `json:"mode"`
		MTU        int     `json:"mtu"`
		IPAM       cniIPAM `json:"ipam"`
	}
)

// decodeStrict decodes JSON without unknown fields.
func decodeStrict(content string, into any) {
	GinkgoHelper()
	decoder := json.NewDecoder(strings.NewReader(content))
	decoder.DisallowUnknownFields()
	Expect(decoder.Decode(into)).To(Succeed(), content)
}

// nested returns the string at a path of an object.
func nested(object *unstructured.Unstructured, path ...string) string {
	GinkgoHelper()
	value, found, err := unstructured.NestedString(object.Object, path...)
	Expect(err).NotTo(HaveOccurred())
	Expect(found).To(BeTrue(), "%s %s has no %v", object.GetKind(), object.GetName(), path)
	return value
}

// sriovManifests returns the objects in the files that match the pattern. If kind is not empty, it returns only this kind.
func sriovManifests(pattern, kind string) []*unstructured.Unstructured {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join(sriovSamples, pattern))
	Expect(err).NotTo(HaveOccurred())
	var objects []*unstructured.Unstructured
	for _, file := range files {
		if file == sriovValues {
			continue
		}
		content, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			object := &unstructured.Unstructured{}
			Expect(yaml.UnmarshalStrict([]byte(document), &object.Object)).To(Succeed(), file)
			if kind == "" || object.GetKind() == kind {
				objects = append(objects, object)
			}
		}
	}
	Expect(objects).NotTo(BeEmpty(), "%s of %s", kind, pattern)
	return objects
}

// readSriovValues reads the Helm values.
func readSriovValues() (values helmValues) {
	GinkgoHelper()
	content, err := os.ReadFile(sriovValues)
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.UnmarshalStrict(content, &values)).To(Succeed())
	return values
}

// sriovResources returns the resources that the operator's policies and the device plugin for PFs advertise.
func sriovResources(values helmValues) corev1.ResourceList {
	GinkgoHelper()
	all := corev1.ResourceList{"amd.com/onload": resource.MustParse("100")}
	for _, policy := range sriovManifests("nodepolicy-*.yaml", "SriovNetworkNodePolicy") {
		all[corev1.ResourceName(values.Operator.ResourcePrefix+"/"+nested(policy, "spec", "resourceName"))] = resource.MustParse("4")
	}
	for _, plugin := range sriovManifests("device-plugin-pf.yaml", "ConfigMap") {
		parsed := devicePluginConfig{}
		decodeStrict(nested(plugin, "data", "config.json"), &parsed)
		for _, r := range parsed.ResourceList {
			all[corev1.ResourceName(r.ResourcePrefix+"/"+r.ResourceName)] = resource.MustParse("1")
		}
	}
	return all
}

// sriovNetworks returns the NetworkAttachmentDefinitions, including those that the operator creates for SriovNetworks.
func sriovNetworks(values helmValues) map[string]*unstructured.Unstructured {
	GinkgoHelper()
	all := map[string]*unstructured.Unstructured{}
	for _, network := range sriovManifests("nad-*.yaml", foreign.GroupVersionKind.Kind) {
		all[network.GetName()] = network
	}
	for _, made := range sriovManifests("network.yaml", "SriovNetwork") {
		network := &unstructured.Unstructured{}
		network.SetAnnotations(map[string]string{
			foreign.AnnotationResourceName: values.Operator.ResourcePrefix + "/" + nested(made, "spec", "resourceName"),
		})
		if byHand := all[made.GetName()]; byHand != nil {
			Expect(network.GetAnnotations()).To(Equal(byHand.GetAnnotations()), made.GetName())
		}
		all[made.GetName()] = network
	}
	return all
}

var _ = Describe("The samples for SR-IOV", Ordered, func() {
	var (
		namespace string // for objects without a namespace
		values    helmValues
		// vfDevices holds the device IDs of the VFs of each supported PF, by the PF's device ID.
		vfDevices = map[string]string{}
	)

	BeforeAll(func(ctx SpecContext) {
		installKinds([]string{filepath.Join("testdata", "crds")})
		namespace = newNamespace(ctx)
		for _, object := range sriovManifests("*.yaml", "") {
			if n := object.GetNamespace(); n != "" {
				err := k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}})
				Expect(client.IgnoreAlreadyExists(err)).To(Succeed())
			}
		}

		values = readSriovValues()
		for _, line := range values.SupportedExtraNICs { // The chart puts each into a ConfigMap's data.
			nic := map[string]string{}
			Expect(yaml.UnmarshalStrict([]byte(line), &nic)).To(Succeed())
			Expect(nic).To(HaveLen(1))
			for _, ids := range nic {
				var vendor, pf, vf string
				_, err := fmt.Sscanf(ids, "%4s %4s %4s", &vendor, &pf, &vf)
				Expect(err).NotTo(HaveOccurred(), line)
				Expect(vendor).To(Equal("1924"))
				vfDevices[pf] = vf
			}
		}
	})

	dryRun := func(ctx SpecContext, object *unstructured.Unstructured) error {
		if object.GetNamespace() == "" {
			object.SetNamespace(namespace)
		}
		err := k8s.Create(ctx, object, client.DryRunAll, client.FieldValidation("Strict"))
		if object.GetKind() == "Namespace" {
			err = client.IgnoreAlreadyExists(err) // The namespace exists for the objects in it.
		}
		return err
	}

	It("have no field that their kinds do not have", func(ctx SpecContext) {
		for _, object := range sriovManifests("*.yaml", "") {
			Expect(dryRun(ctx, object)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
		}
	})

	DescribeTable("would be refused with such a field", func(ctx SpecContext, kind string) {
		object := sriovManifests("*.yaml", kind)[0]
		Expect(unstructured.SetNestedField(object.Object, "x", "spec", "noSuchField")).To(Succeed())
		Expect(dryRun(ctx, object)).To(MatchError(ContainSubstring(`unknown field "spec.noSuchField"`)))
	},
		Entry(nil, "SriovNetworkNodePolicy"), Entry(nil, "SriovNetwork"), Entry(nil, "NetworkAttachmentDefinition"),
		Entry(nil, "Onload"), Entry(nil, "LatencyBenchmark"),
	)

	It("choose NICs that the values make the operator support", func() {
		for _, policy := range sriovManifests("nodepolicy-*.yaml", "SriovNetworkNodePolicy") {
			Expect(nested(policy, "spec", "nicSelector", "vendor")).To(Equal("1924"))
			Expect(vfDevices).To(HaveKey(nested(policy, "spec", "nicSelector", "deviceID")))
		}
	})

	It("give the same resources with and without the operator", func() {
		found := corev1.ResourceList{"amd.com/onload": resource.MustParse("100")}
		for _, plugin := range sriovManifests("device-plugin-pf-vf.yaml", "ConfigMap") {
			parsed := devicePluginConfig{}
			decodeStrict(nested(plugin, "data", "config.json"), &parsed)
			for _, r := range parsed.ResourceList {
				name := r.ResourcePrefix + "/" + r.ResourceName
				found[corev1.ResourceName(name)] = sriovResources(values)[corev1.ResourceName(name)]
				for _, selector := range r.Selectors {
					Expect(selector.Vendors).To(Equal([]string{"1924"}))
					for _, device := range selector.Devices {
						if strings.HasSuffix(name, "_pf") {
							Expect(vfDevices).To(HaveKey(device), name)
						} else {
							Expect(vfDevices).To(ContainElement(device), name)
						}
					}
				}
			}
		}
		Expect(found).To(Equal(sriovResources(values)))
	})

	It("have CNI configurations of known fields", func() {
		for _, network := range sriovManifests("nad-*.yaml", foreign.GroupVersionKind.Kind) {
			parsed := cniConfig{}
			decodeStrict(nested(network, "spec", "config"), &parsed)
			Expect(parsed.Name).To(Equal(network.GetName()))
			_, device := network.GetAnnotations()[foreign.AnnotationResourceName]
			Expect(parsed.Type).To(BeElementOf("sriov", "host-device", "ipvlan", "macvlan"))
			Expect(device).To(Equal(parsed.Type == "sriov" || parsed.Type == "host-device"), parsed.Name)
			Expect(parsed.Master != "").NotTo(Equal(device), parsed.Name)
			Expect(parsed.IPAM).To(And(HaveField("Type", "whereabouts"), HaveField("Range", Not(BeEmpty()))))
		}
		for _, network := range sriovManifests("network.yaml", "SriovNetwork") {
			parsed := cniIPAM{}
			decodeStrict(nested(network, "spec", "ipam"), &parsed)
			Expect(parsed).To(And(HaveField("Type", "whereabouts"), HaveField("Range", Not(BeEmpty()))))
		}
	})

	It("have benchmarks that are accepted where the rest is applied", func(ctx SpecContext) {
		var nodes []corev1.Node
		for _, policy := range sriovManifests("nodepolicy-*.yaml", "SriovNetworkNodePolicy") {
			selector, _, err := unstructured.NestedStringMap(policy.Object, "spec", "nodeSelector")
			Expect(err).NotTo(HaveOccurred())
			for _, name := range []string{"a", "b"} {
				n := MakeNode(policy.GetName() + "-" + name).Obj()
				n.Labels = selector
				n.Status.Allocatable = sriovResources(values)
				n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("8")
				n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("16Gi")
				nodes = append(nodes, *n)
			}
		}
		for _, object := range sriovManifests("latencybenchmark-*.yaml", "LatencyBenchmark") {
			Expect(dryRun(ctx, object)).To(Succeed())
			_, rejection := accept(object, nodes, sriovNetworks(values))
			Expect(rejection).To(BeNil(), object.GetName())
		}
	})
})
