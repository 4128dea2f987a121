package specs

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/pods"
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

// Measuring creates benchmark x of one round and starts both of its pods.
func (p *Place) Measuring(ctx context.Context) (b *v1alpha1.LatencyBenchmark, server, peer *corev1.Pod) {
	GinkgoHelper()
	b = p.Create(ctx, MakeBenchmark(p.Namespace, "x").On(p.A, p.B))
	server, peer = p.Kubelets.RunBoth(ctx, "x-r1", 1)
	ExpectSucceeded(ctx, b, "^Unknown Running")
	return b, server, peer
}

// NoPod checks that there is no pod of that name, now or however long benchmark b waits.
func (p *Place) NoPod(ctx context.Context, b *v1alpha1.LatencyBenchmark, run string, attempt int32, role string) {
	GinkgoHelper()
	p.Patiently(ctx, b, func() any {
		return suite.Client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: pods.Name(run, attempt, role)}, &corev1.Pod{})
	}, MatchError(apierrors.IsNotFound, "IsNotFound"))
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

// AddNode creates a node with the taints and status of the builder.
func (p *Place) AddNode(ctx context.Context, n *NodeBuilder) *corev1.Node {
	GinkgoHelper()
	return suite.AddNode(ctx, n)
}

// Gate creates a gate of the world's nodes.
func (p *Place) Gate(ctx context.Context, g *GateBuilder) *v1alpha1.LatencyGate {
	GinkgoHelper()
	return suite.AddGate(ctx, g)
}

// Group adds nodes that are measured with each other.
func (p *Place) Group(ctx context.Context, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		n := MakeNode(p.Namespace + "-" + name)
		n.Labels[GroupLabel] = p.Namespace
		n.Status.Allocatable[VF] = resource.MustParse("4")
		p.AddNode(ctx, n)
	}
}

// AddGateNode creates a node of the gate.
func (p *Place) AddGateNode(ctx context.Context, name string) {
	GinkgoHelper()
	n := MakeNode(name)
	n.Labels[GateLabel] = p.Namespace
	Identified(&n.Node)
	p.AddNode(ctx, n)
}

// JoinGate makes the gate of the namespace select both nodes, and creates more nodes of the gate.
func (p *Place) JoinGate(ctx context.Context, more ...string) {
	GinkgoHelper()
	for _, name := range []string{p.A, p.B} {
		p.ChangeNode(ctx, name, func(n *corev1.Node) { n.Labels[GateLabel] = p.Namespace })
		p.ChangeNodeStatus(ctx, name, Identified)
	}
	for _, name := range more {
		p.AddGateNode(ctx, p.Namespace+"-"+name)
	}
}

// CreateNetwork creates a NetworkAttachmentDefinition, of a device if resourceName is not empty.
func CreateNetwork(ctx context.Context, namespace, name, resourceName string) {
	GinkgoHelper()
	CreateConfiguredNetwork(ctx, namespace, name, resourceName, "")
}

func CreateConfiguredNetwork(ctx context.Context, namespace, name, resourceName, config string) {
	GinkgoHelper()
	network := &unstructured.Unstructured{}
	network.SetGroupVersionKind(foreign.GroupVersionKind)
	network.SetNamespace(namespace)
	network.SetName(name)
	if resourceName != "" {
		network.SetAnnotations(map[string]string{foreign.AnnotationResourceName: resourceName})
	}
	if config != "" {
		network.Object["spec"] = map[string]any{"config": config}
	}
	again := false
	suite.Write(func() error {
		err := suite.Client.Create(ctx, network)
		if again { // A slow API server may have created it without an answer in time.
			err = client.IgnoreAlreadyExists(err)
		}
		again = true
		return err
	})
}
