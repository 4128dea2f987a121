//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/docs"
	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

const (
	// root is the root of the repository.
	root = "../.."
	// pageTime is the time limit for all commands of a page, which take a minute or two on an idle machine of two cores, and four on a
	// busy one.
	pageTime = 15 * time.Minute
)

// The commands of README.md and docs/*.md run as users copy them: in a shell with kubectl and kubectl-tailgate in PATH, in a
// folder with config/ and the files that the page itself contains, block by block, in an empty namespace.
var _ = Describe("The commands of a page of the documentation run as they stand there", Label("docs"), needs("an empty namespace default"), func() {
	AfterEach(emptyCluster)

	pages, err := docs.Pages(root)
	if err != nil {
		It("can be read", func() { Expect(err).NotTo(HaveOccurred()) })
	}
	for _, page := range pages {
		if !page.Commands() {
			continue
		}
		var quiet []any
		if slices.ContainsFunc(page.Steps, func(s docs.Step) bool { return s.File != "" && strings.Contains(s.Text, "criteria:") }) {
			// Rounds of half a second are too short to be judged while a spec in another cluster uses the same CPUs.
			quiet = append(quiet, Serial)
		}
		It(page.Path, quiet, func(ctx context.Context) {
			keepNodeLabels(ctx)
			path, err := commands(ctx)
			Expect(err).NotTo(HaveOccurred())
			home := GinkgoT().TempDir()
			Expect(os.CopyFS(filepath.Join(home, "config"), os.DirFS(filepath.Join(root, "config")))).To(Succeed())
			environment := localcluster.Environment(kubeconfig, "PATH="+path, "HOME="+home, "LANG="+os.Getenv("LANG"))
			ctx, cancel := context.WithTimeout(ctx, pageTime)
			defer cancel()
			for _, step := range page.Steps {
				if step.File != "" {
					Expect(os.WriteFile(filepath.Join(home, step.File), []byte(step.Text), 0o600)).To(Succeed())
					continue
				}
				begin := time.Now()
				out, err := shell(ctx, home, environment, page.Path, step)
				GinkgoWriter.Printf("%s:%d took %s\n%s\n", page.Path, step.Line, time.Since(begin).Round(100*time.Millisecond), out)
				if err != nil {
					Fail(fmt.Sprintf("%s:%d: %v\n%s\nprinted\n%s", page.Path, step.Line, err, step.Text, out))
				}
			}
		})
	}
})

// commands returns PATH with the commands of the pages. One process of the suite builds them for all, into the folder of cluster 0,
// which is removed last.
func commands(ctx context.Context) (string, error) {
	bin := filepath.Join(filepath.Dir(localcluster.Kubeconfig(localcluster.Options{})), "commands")
	err := cached.Once(ctx, bin, func(tmp string) error {
		// The flags are those of the images, so that Go's cache already has the packages.
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", images.NoDebug, "-ldflags=-s -w", "-o", tmp+"/", "./cmd/kubectl-tailgate")
		build.Dir, build.Env = root, environment.Tool()
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building the commands: %w\n%s", err, out)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	assets, err := localcluster.Assets(ctx, io.Discard)
	return strings.Join([]string{bin, assets, os.Getenv("PATH")}, string(filepath.ListSeparator)), err
}

// shell runs a block. It stops at the first command that fails, and the output then ends with that command and its line in
// the page.
func shell(ctx context.Context, dir string, environment []string, page string, step docs.Step) (string, error) {
	// The empty lines before it make bash report line numbers of the page.
	script := fmt.Sprintf(`trap 'echo "%s:$LINENO: exit code $?: $BASH_COMMAND"' ERR`, page) + strings.Repeat("\n", step.Line-1) + step.Text
	c := exec.CommandContext(ctx, "bash", "-eEu", "-o", "pipefail", "-c", script)
	c.Dir, c.Env = dir, environment
	// All processes that the block started end with it.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 5 * time.Second
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("the page's commands take longer than %s: %w", pageTime, err)
	}
	return string(out), err
}

// emptyCluster removes what a page may leave: gates and the results that they accepted, which are cluster-scoped, and matrices,
// benchmarks and pods in the namespace default.
func emptyCluster(ctx context.Context) {
	GinkgoHelper()
	Expect(kube.DeleteAllOf(ctx, &v1alpha1.LatencyGate{})).To(Succeed())
	Eventually(func(g Gomega) {
		verifications, gates := &v1alpha1.LatencyVerificationList{}, &v1alpha1.LatencyGateList{}
		g.Expect(kube.List(ctx, gates)).To(Succeed())
		g.Expect(gates.Items).To(BeEmpty())
		g.Expect(kube.DeleteAllOf(ctx, &v1alpha1.LatencyVerification{})).To(Succeed())
		g.Expect(kube.List(ctx, verifications)).To(Succeed())
		g.Expect(verifications.Items).To(BeEmpty())
	}).WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(Succeed())
	deleteAll(ctx, corev1.NamespaceDefault)
	Expect(kube.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(corev1.NamespaceDefault))).To(Succeed())
}

// keepNodeLabels restores the current labels of the nodes when the spec ends.
func keepNodeLabels(ctx context.Context) {
	GinkgoHelper()
	before := &corev1.NodeList{}
	Expect(kube.List(ctx, before)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		for _, n := range before.Items {
			Eventually(func() error {
				now := &corev1.Node{}
				if err := kube.Get(ctx, client.ObjectKeyFromObject(&n), now); err != nil {
					return err
				}
				now.Labels = n.Labels
				return kube.Update(ctx, now)
			}).WithTimeout(soon).Should(Succeed())
		}
	})
}
