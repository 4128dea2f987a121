package admit

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/config/crd"
)

func TestCRDsAreValid(t *testing.T) {
	for _, text := range [][]byte{crd.LatencyBenchmarks, crd.LatencyMatrices, crd.LatencyGates, crd.LatencyVerifications} {
		kind := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, kind); err != nil {
			t.Fatal(err)
		}
		apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(kind)
		in := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(kind, in, nil); err != nil {
			t.Fatal(err)
		}
		in.Status.StoredVersions = []string{in.Spec.Versions[0].Name}
		for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), in) {
			t.Error(kind.Name, err)
		}
	}
}
