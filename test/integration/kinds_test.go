package integration

import (
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// installKinds installs CustomResourceDefinitions, and those of files and folders, and returns when the API server serves them. No
// spec removes them, which may take the API server minutes, and none depends on a kind that is absent: such specs are in test/driven.
func installKinds(paths []string, kinds ...*apiextensionsv1.CustomResourceDefinition) {
	GinkgoHelper()
	_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: kinds, Paths: paths, ErrorIfPathMissing: true, MaxTime: environmentLimit})
	Expect(err).NotTo(HaveOccurred())
}

// installMultus installs the kind of networks.
func installMultus() {
	GinkgoHelper()
	installKinds([]string{filepath.Join("testdata", "crds", "network-attachment-definitions.yaml")})
}

// anyFields returns the definition of a kind with any fields.
func anyFields(kind schema.GroupVersionKind, plural string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kind.Group, Annotations: map[string]string{
			apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, as far as anybody here looks at it",
		}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind.Kind), Kind: kind.Kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)},
				},
			}},
		},
	}
}
