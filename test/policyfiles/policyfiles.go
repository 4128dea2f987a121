// Package policyfiles reads the objects of config/policy for tests.
package policyfiles

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Read returns the policies and the bindings of a folder. Fields that the API does not have fail the test.
func Read(t testing.TB, folder string) (policies []admissionregistrationv1.ValidatingAdmissionPolicy, bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	for _, file := range []string{"manager.yaml", "users.yaml"} {
		content, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			t.Fatal(err)
		}
		documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
		for {
			var raw runtime.RawExtension
			if err := documents.Decode(&raw); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			var policy admissionregistrationv1.ValidatingAdmissionPolicy
			var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
			if err := yaml.Unmarshal(raw.Raw, &policy); err != nil {
				t.Fatal(err)
			}
			if policy.Kind == "ValidatingAdmissionPolicy" {
				err, policies = yaml.UnmarshalStrict(raw.Raw, &policy), append(policies, policy)
			} else {
				err = yaml.UnmarshalStrict(raw.Raw, &binding)
				bindings = append(bindings, binding)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return policies, bindings
}
