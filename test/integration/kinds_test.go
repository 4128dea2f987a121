package integration

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// installKinds installs CustomResourceDefinitions, and those of files and folders, and returns them when the API server serves them.
func installKinds(paths []string, kinds ...*apiextensionsv1.CustomResourceDefinition) []*apiextensionsv1.CustomResourceDefinition {
	GinkgoHelper()
	installed, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: kinds, Paths: paths, ErrorIfPathMissing: true, MaxTime: environmentLimit})
	Expect(err).NotTo(HaveOccurred())
	return installed
}

// removeKind deletes a CustomResourceDefinition, and returns when it is gone.
func removeKind(ctx context.Context, api client.Client, crd *apiextensionsv1.CustomResourceDefinition) {
	GinkgoHelper()
	Expect(api.Delete(ctx, crd)).To(Succeed())
	eventuallyNoKind(ctx, api, crd)
}

// eventuallyNoKind returns when a CustomResourceDefinition is gone. The API server's controller of this lists the objects of the kind. While
// the cache of the kind is not ready ("storage is (re)initializing"), it tries again after longer and longer times, and at each resync,
// every five minutes.
func eventuallyNoKind(ctx context.Context, api client.Client, crd *apiextensionsv1.CustomResourceDefinition) {
	GinkgoHelper()
	Eventually(func() bool { return apierrors.IsNotFound(api.Get(ctx, client.ObjectKeyFromObject(crd), crd)) }).
		WithTimeout(12*time.Minute).Should(BeTrue(), func() string { return fmt.Sprintf("%s: %+v", crd.Name, crd.Status.Conditions) })
}
