package specs

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Create creates a benchmark.
func (p *Place) Create(ctx context.Context, b *BenchmarkBuilder) *v1alpha1.LatencyBenchmark {
	GinkgoHelper()
	created := b.Obj()
	Expect(suite.Client.Create(ctx, created)).To(Succeed())
	return created
}

// CreateMatrix creates a matrix.
func (p *Place) CreateMatrix(ctx context.Context, m *MatrixBuilder) *v1alpha1.LatencyMatrix {
	GinkgoHelper()
	created := m.DeepCopy()
	Expect(suite.Client.Create(ctx, created)).To(Succeed())
	return created
}

// PairsOf lists the pairs of a plan as "client>server", without the namespace in the names.
func (p *Place) PairsOf(all map[string]v1alpha1.LatencyBenchmark) map[string]string {
	pairs := map[string]string{}
	for name, c := range all {
		of := c.Spec.Placement
		pairs[name] = strings.ReplaceAll(of.Client.NodeName+">"+of.Server.NodeName, p.Namespace+"-", "")
	}
	return pairs
}

// ChangeNode changes a node as a user would.
func (p *Place) ChangeNode(ctx context.Context, name string, change func(*corev1.Node)) {
	GinkgoHelper()
	Edit(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, change)
}

// ChangeNodeStatus changes the status that a node's kubelet reports.
func (p *Place) ChangeNodeStatus(ctx context.Context, name string, change func(*corev1.Node)) {
	GinkgoHelper()
	suite.Write(func() error {
		n := &corev1.Node{}
		if err := suite.Client.Get(ctx, types.NamespacedName{Name: name}, n); err != nil {
			return err
		}
		change(n)
		return suite.Client.Status().Update(ctx, n)
	})
}

// Upgrade changes the kernel and the boot ID of a node.
func (p *Place) Upgrade(ctx context.Context, name, kernel string) {
	GinkgoHelper()
	p.ChangeNodeStatus(ctx, name, func(n *corev1.Node) {
		n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.BootID = kernel, "boot of "+kernel+" of "+name
	})
}
