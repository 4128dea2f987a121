package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"
)

// TestForeignSchemas: the objects of the samples and pages are valid under the CRDs of other projects in
// test/integration/testdata/crds.
func TestForeignSchemas(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "test/integration/testdata/crds/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs (%v)", err)
	}
	for _, file := range files {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(content, definition); err != nil {
			t.Fatal(err)
		}
		kind := definition.Spec.Names.Kind
		t.Run(kind, func(t *testing.T) {
			props := &apiextensions.JSONSchemaProps{}
			err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil)
			if err != nil {
				t.Fatal(err)
			}
			structural, err := schema.NewStructural(props)
			if err != nil {
				t.Fatal(err)
			}
			validator, _, err := validation.NewSchemaValidator(props)
			if err != nil {
				t.Fatal(err)
			}
			objects, err := Objects(root, definition.Spec.Group)
			if err != nil {
				t.Fatal(err)
			}
			checked := 0
			for _, o := range objects {
				if o.Content["kind"] != kind {
					continue
				}
				checked++
				options := schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
				if unknown := pruning.PruneWithOptions(o.Content, structural, true, options); len(unknown) > 0 {
					t.Errorf("%s: there are no such fields: %v", o.From, unknown)
				}
				if err := validation.ValidateCustomResource(nil, o.Content, validator).ToAggregate(); err != nil {
					t.Errorf("%s: %v", o.From, err)
				}
			}
			if checked == 0 {
				t.Error("the samples and the pages have no such object")
			}
		})
	}
}

// TestDescriptions: each description in the CRDs of the project is short, and begins with the name of its field or type.
func TestDescriptions(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "config/crd/bases/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs (%v)", err)
	}
	for _, file := range files {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(content, definition); err != nil {
			t.Fatal(err)
		}
		kind, schema := definition.Spec.Names.Kind, *definition.Spec.Versions[0].Schema.OpenAPIV3Schema
		delete(schema.Properties, "metadata") // has no description in a CRD
		checkDescriptions(t, kind, kind, schema)
	}
}

// checkDescriptions checks the description of a schema, the one of the field or kind of a name, and those of its fields.
func checkDescriptions(t *testing.T, path, name string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	words := strings.Fields(schema.Description)
	switch {
	case len(words) == 0:
		t.Errorf("%s has no description", path)
	case !strings.EqualFold(words[0], name): // the fields of Kubernetes begin with a capital letter
		t.Errorf("%s: the description does not begin with %q: %s", path, name, schema.Description)
	case len(words) > 60:
		t.Errorf("%s: the description has %d words; it may have 60: %s", path, len(words), schema.Description)
	}
	for field, s := range schema.Properties {
		checkDescriptions(t, path+"."+field, field, s)
	}
	if schema.Items != nil && schema.Items.Schema.Type == "object" {
		item := *schema.Items.Schema
		typeName, _, _ := strings.Cut(item.Description, " ")
		if typeName != "" && !unicode.IsUpper(rune(typeName[0])) { // the name of its Go type, which the schema does not contain
			typeName = "the name of the type"
		}
		checkDescriptions(t, path+"[]", typeName, item)
	}
}
