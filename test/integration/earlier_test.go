package integration

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/docs"
)

var _ = Describe("The API server accepts", func() {
	create := func(ctx SpecContext, objects []docs.Object, advice string) {
		GinkgoHelper()
		Expect(objects).NotTo(BeEmpty())
		namespace := newNamespace(ctx)
		for _, o := range objects {
			object := &unstructured.Unstructured{Object: o.Content}
			namespaced, err := k8s.IsObjectNamespaced(object)
			Expect(err).NotTo(HaveOccurred(), "%s: %s", o.From, object.GetKind())
			if namespaced {
				object.SetNamespace(namespace)
			}
			Expect(k8s.Create(ctx, object, client.DryRunAll, client.FieldValidation("Strict"))).
				To(Succeed(), "%s: %s %s. %s", o.From, object.GetKind(), object.GetName(), advice)
		}
	}

	It("every object of the samples and of the documentation", func(ctx SpecContext) {
		objects, err := docs.Objects(filepath.Join("..", ".."), v1alpha1.GroupVersion.Group)
		Expect(err).NotTo(HaveOccurred())
		create(ctx, objects, "Correct the object.")
	})

	// go test ./test/docs -run TestObjects -record v0.1.0 writes the objects of a release.
	files, err := filepath.Glob(filepath.Join("testdata", "objects", "*.yaml"))
	if err != nil || len(files) == 0 {
		panic("no objects of earlier versions")
	}
	for _, file := range files {
		It("every object of version "+filepath.Base(file), func(ctx SpecContext) {
			content, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			objects, err := docs.Documents(file, string(content))
			Expect(err).NotTo(HaveOccurred())
			create(ctx, objects, "This change of the API is incompatible. Of a release, describe it in CHANGELOG.md with the old and the new manifest, "+
				"and remove the object here. Of unreleased.yaml, record the objects again: go test ./test/docs -run TestObjects -record unreleased")
		})
	}
})
