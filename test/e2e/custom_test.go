//go:build e2e

package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

// A user's program in an image of its own, which knows nothing of Tailgate but its variables (test/program).
var _ = Describe("A user's program", Label("custom"), needs("an image of its own"), func() {
	AfterEach(endGate)

	It("measures, and what cannot be proved of it is not claimed", func(ctx context.Context) {
		o, err := images.DefaultOptions(root, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		o.OutDir = GinkgoT().TempDir()
		image, err := images.Build(ctx, o, "program")
		Expect(err).NotTo(HaveOccurred())
		Expect(localcluster.Load(ctx, options, image[0].Path)).To(Succeed())

		program := v1alpha1.CustomProgram{Command: []string{"/app/program"}}
		b := sample("first.yaml", time.Second, 100*time.Millisecond)
		b.Name = "own-program"
		b.Spec.Tool, b.Spec.Rounds = v1alpha1.ToolCustom, 2
		b.Spec.Workload.Protocols, b.Spec.Workload.MessageSizes = []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, []int32{64}
		b.Spec.Custom = &v1alpha1.Custom{
			Image: images.ProgramRef, Client: program, Server: program, Timeout: metav1.Duration{Duration: 10 * time.Second},
			Output: v1alpha1.CustomOutput{Path: "latencies", Format: v1alpha1.CustomValues},
		}
		forbidden := b.DeepCopy()
		create(ctx, b)
		seen := &corev1.PodList{}
		Eventually(func() int {
			Expect(kube.List(ctx, seen, managed, ours)).To(Succeed())
			return len(seen.Items)
		}).WithTimeout(soon).Should(BeNumerically(">", 0))
		for _, p := range seen.Items {
			c := p.Spec.Containers[0]
			Expect(c.Image).To(Equal(images.ProgramRef))
			Expect(c.Command).To(HaveExactElements(HavePrefix("/opt/tailgate/")))
			Expect(*c.SecurityContext.ReadOnlyRootFilesystem && *p.Spec.SecurityContext.RunAsNonRoot && !*p.Spec.AutomountServiceAccountToken).To(BeTrue())
		}
		b = eventuallyCompletes(ctx, b)
		Expect(b.Status.Results).To(HaveLen(1))
		r := b.Status.Results[0]
		Expect(r.Samples).To(BeNumerically(">=", 100))
		Expect(r.Percentile(v1alpha1.P50)).To(HaveValue(BeNumerically(">", 500)))
		Expect(*r.MinNanoseconds).To(BeNumerically("<=", *r.Percentile(v1alpha1.P50)))
		for _, w := range b.Status.Warnings {
			Expect(w.Reason).NotTo(BeElementOf(v1alpha1.WarningPodChanged, v1alpha1.WarningAccelerated, v1alpha1.WarningCPUsNotExclusive), w.Message)
		}
		for _, e := range b.Status.Endpoints {
			var acceleration, ran v1alpha1.ProofLine
			for _, l := range e.Proof {
				switch l.Check {
				case v1alpha1.ProofAcceleration:
					acceleration = l
				case v1alpha1.ProofImage:
					ran = l
				}
			}
			Expect(acceleration.State).To(Equal(v1alpha1.ProofProved), acceleration.Found)
			Expect(acceleration.Found).To(ContainSubstring("no library of Onload"))
			Expect(strings.HasSuffix(ran.Found, image[0].ID.String()) || strings.Contains(ran.Found, "sha256:")).To(BeTrue(), ran.Found)
		}
		Eventually(benchmarkPods).WithArguments(ctx).WithTimeout(soon).Should(BeEmpty())

		By("an image that the operator does not allow")
		forbidden.Name, forbidden.Spec.Custom.Image = "other-program", "localhost/program-evil/echo:dev"
		create(ctx, forbidden)
		Eventually(func() string {
			c := condition(get(ctx, forbidden), v1alpha1.ConditionAccepted)
			return c.Reason + " " + c.Message
		}).WithTimeout(soon).Should(And(HavePrefix(v1alpha1.ReasonImageForbidden+" spec.custom.image: "), ContainSubstring("--custom-images")))
	})

	// Serial, because the command loads the image into the cluster of the first process.
	It("gates nodes with the engine of the sample", Label("gate"), Serial, func(ctx context.Context) {
		built := filepath.Join(GinkgoT().TempDir(), "engine")
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", built, "./test/engine")
		build.Dir, build.Env, build.Stdout, build.Stderr = root, environment.Tool(), GinkgoWriter, GinkgoWriter
		Expect(build.Run()).To(Succeed())
		load := exec.CommandContext(ctx, "go", "run", "./test/cmd/localcluster", "image", "localhost/program/orders", built)
		load.Dir, load.Env, load.Stderr = root, environment.Tool(), GinkgoWriter
		name, err := load.Output()
		Expect(err).NotTo(HaveOccurred())

		b := sample("custom/engine.yaml", time.Second, 100*time.Millisecond)
		b.Spec.Custom.Image, b.Spec.Custom.Client.CPUs, b.Spec.Placement.CPUs = strings.TrimSpace(string(name)), 0, 1
		b.Spec.Rounds, b.Spec.Workload.RatesPerSecond = 6, []int32{2000}
		b.Spec.Criteria.Rules = []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, Max: v1alpha1.Limit{Text: "10s"}}} // p99 needs 10,000 orders a round
		g := undemandingGate()
		g.Spec.Template.Spec = b.Spec.MeasurementSpec
		labelNodes(ctx, gated, "")
		Expect(kube.Create(ctx, g)).To(Succeed())
		for _, node := range []string{here.Client, here.Server} {
			eventuallyConcludes(ctx, node, v1alpha1.VerificationVerified)
		}

		By("a limit that no program meets")
		Eventually(func() error {
			Expect(kube.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
			g.Spec.Template.Spec.Criteria.Rules[0].Max.Text = "1ns"
			return kube.Update(ctx, g)
		}).WithTimeout(soon).Should(Succeed())
		verifyAgain(ctx, here.Client)
		eventuallyConcludes(ctx, here.Client, v1alpha1.VerificationFailed)
	})
})
