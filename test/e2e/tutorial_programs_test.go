//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
	"github.com/tailgate-dev/tailgate/test/localcluster/install"
	"github.com/tailgate-dev/tailgate/test/standin"
)

const (
	// sriovChart is the chart of the SR-IOV operator.
	sriovChart = "oci://ghcr.io/k8snetworkplumbingwg/sriov-network-operator-chart"
	// multusURL is the manifest of Multus.
	multusURL = "https://raw.githubusercontent.com/k8snetworkplumbingwg/multus-cni/v4.3.0/deployments/multus-daemonset-thick.yml"
	// tutorials has the manifests of the stand-ins, and kinds has kinds of the real operators.
	tutorials, kinds = "testdata/tutorial", "../integration/testdata/crds"
)

// workers is the cluster of the tutorials with the reader's workstation.
type workers struct {
	options    localcluster.Options
	kubeconfig string
	client     client.WithWatch
	// home is the reader's folder, bin has the programs of the workstation, and nodeBin those of the nodes.
	home, bin, nodeBin string
	environment        []string
	// assets is the folder of kubectl, helm is the path of Helm, and chart that of the SR-IOV operator's chart.
	assets, helm, chart string
	// fragment is the last block of YAML of the page, which the editor adds to what it edits.
	fragment string

	mu sync.Mutex
	// built holds the images that docker has built, by tag.
	built map[string]images.Image
	// packages holds those of each node.
	packages map[string]*packages
}

// packages are what apt knows of a node.
type packages struct {
	// listed is true after apt-get update, held names the packages that apt may not change, and versions those that it installed.
	listed   bool
	held     []string
	versions map[string]string
}

var names = []string{"worker-1", "worker-2"}

// newWorkers starts the cluster: nodes without exclusive CPUs, Multus, VFs and Tailgate.
func newWorkers(ctx context.Context) *workers {
	GinkgoHelper()
	w := &workers{
		options: localcluster.Options{Workers: true, Log: GinkgoWriter}, built: map[string]images.Image{}, packages: map[string]*packages{},
		home: GinkgoT().TempDir(), bin: GinkgoT().TempDir(), nodeBin: GinkgoT().TempDir(),
	}
	Expect(localcluster.Down(ctx, w.options)).To(Succeed(), "of a killed suite")
	DeferCleanup(func(ctx context.Context) { Expect(localcluster.Down(ctx, w.options)).To(Succeed()) })
	Expect(localcluster.Up(ctx, w.options)).To(Succeed())
	for _, name := range names {
		Expect(localcluster.StopPinning(ctx, w.options, name)).To(Succeed())
		Expect(localcluster.KillDevicePlugin(ctx, w.options, name)).To(Succeed())
		Expect(localcluster.RemoveMultinet(ctx, w.options, name)).To(Succeed())
		w.packages[name] = &packages{held: []string{"kubeadm", "kubelet"}, versions: map[string]string{}}
	}
	w.kubeconfig = localcluster.Kubeconfig(w.options)
	var err error
	w.client, err = install.Client(w.kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	w.assets, err = localcluster.Assets(ctx, io.Discard)
	Expect(err).NotTo(HaveOccurred())
	w.helm, w.chart = helmPath(ctx), GinkgoT().TempDir()
	Expect(os.CopyFS(w.chart, os.DirFS(filepath.Join(tutorials, "sriov-network-operator")))).To(Succeed())
	policies, err := os.ReadFile(filepath.Join(kinds, "sriovnetworknodepolicies.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(w.chart, "crds", "sriovnetworknodepolicies.yaml"), policies, 0o600)).To(Succeed())
	w.installPrograms(ctx)
	Expect(os.CopyFS(filepath.Join(w.home, "config"), os.DirFS(filepath.Join(root, "config")))).To(Succeed())
	config, err := yaml.Marshal(map[string]any{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "cgroupDriver": "systemd"})
	Expect(err).NotTo(HaveOccurred())
	Expect(w.client.Create(ctx, &corev1.ConfigMap{ // as kubeadm init makes it
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubelet-config"}, Data: map[string]string{"kubelet": string(config)},
	})).To(Succeed())
	return w
}

// installPrograms puts the stand-ins before the programs of this machine, and starts to answer them.
func (w *workers) installPrograms(ctx context.Context) {
	GinkgoHelper()
	program, socket := filepath.Join(w.bin, "standin"), filepath.Join(w.home, ".socket")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", images.NoDebug, "-ldflags=-s -w", "-o", program, "./test/cmd/standin")
	build.Dir, build.Env = root, environment.Tool()
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	for _, name := range []string{"docker", "editor", "helm", "install", "kubectl", "make", "oc", "sleep", "ssh"} {
		Expect(os.Symlink(program, filepath.Join(w.bin, name))).To(Succeed())
	}
	for _, name := range []string{"apt-get", "apt-mark", "kubeadm", "systemctl"} {
		Expect(os.Symlink(program, filepath.Join(w.nodeBin, name))).To(Succeed())
	}
	listener, err := net.Listen("unix", socket)
	Expect(err).NotTo(HaveOccurred())
	calls, end := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() {
		served <- standin.Serve(listener, func(c standin.Call) standin.Answer { return w.answer(calls, c) })
	}()
	DeferCleanup(func() {
		end()
		Expect(listener.Close()).To(Succeed())
		Expect(<-served).To(Succeed())
	})
	w.environment = localcluster.Environment(w.kubeconfig, "PATH="+w.bin+":"+environment.SystemPath, "HOME="+w.home, "LANG="+os.Getenv("LANG"),
		"EDITOR="+filepath.Join(w.bin, "editor"), standin.Socket+"="+socket)
}

// answer is what a program of the workstation or of a node does. A program that is called in a way that the page's commands do not
// need fails, as it does with a wrong argument.
func (w *workers) answer(ctx context.Context, c standin.Call) standin.Answer {
	answer, err := map[string]func(context.Context, standin.Call) (standin.Answer, error){
		"docker": w.docker, "editor": w.edit, "helm": w.runHelm, "install": w.installFile, "kubectl": w.runKubectl, "make": w.runMake,
		"oc": w.runKubectl, "sleep": sleepLess, "ssh": w.ssh,
		"apt-get": w.aptGet, "apt-mark": w.aptMark, "kubeadm": w.kubeadm, "systemctl": w.systemctl,
	}[c.Program](ctx, c)
	if err != nil {
		return standin.Answer{Output: fmt.Sprintf("%s%s: %v\n", answer.Output, c.Program, err), Code: 1}
	}
	return answer
}

// unexpected is the error of a call with other arguments than those that the stand-in knows.
func unexpected(c standin.Call) error {
	return fmt.Errorf("the stand-in does not know the arguments %q", c.Args)
}

// runKubectl runs kubectl. It is also oc, which differs only in commands that the pages do not use. The manifest of Multus is a stored
// one, and its DaemonSet a stand-in on each node.
func (w *workers) runKubectl(ctx context.Context, c standin.Call) (standin.Answer, error) {
	for i, arg := range c.Args {
		if !strings.HasPrefix(arg, "https://") {
			continue
		}
		if arg != multusURL {
			return standin.Answer{}, fmt.Errorf("no file is stored for %s", arg)
		}
		for _, node := range names {
			if err := localcluster.RestoreMultinet(ctx, w.options, node); err != nil {
				return standin.Answer{}, err
			}
		}
		c.Args[i] = absolute(filepath.Join(kinds, "network-attachment-definitions.yaml"))
	}
	return standin.Answer{Exec: append([]string{filepath.Join(w.assets, "kubectl")}, c.Args...)}, nil
}

func absolute(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		panic(err) // only without a working directory
	}
	return path
}

// runHelm runs Helm. The chart of the SR-IOV operator is a stand-in. The nodes have a single CPU for pods, and no registry to pull from:
// docker push puts the images onto the nodes.
func (w *workers) runHelm(_ context.Context, c standin.Call) (standin.Answer, error) {
	args := c.Args
	if i := slices.Index(args, sriovChart); i >= 0 {
		v := slices.Index(args, "--version")
		if v < 0 || args[v+1] != "1.6.0" {
			return standin.Answer{}, errors.New("the chart has version 1.6.0 only")
		}
		args[i] = w.chart
		args = slices.Delete(args, v, v+2)
	} else if slices.Contains(args, "config/helm") {
		args = append(args, "--set", "resources.requests.cpu=null,image.pullPolicy=Never,benchImage.pullPolicy=Never")
	}
	return standin.Answer{Exec: append([]string{w.helm}, args...)}, nil
}

// runMake runs make in the checkout.
func (w *workers) runMake(ctx context.Context, c standin.Call) (standin.Answer, error) {
	make := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory"}, c.Args...)...)
	make.Dir, make.Env = root, environment.Tool("PATH="+w.bin+":"+os.Getenv("PATH"))
	for _, variable := range w.environment {
		if strings.HasPrefix(variable, standin.Socket+"=") {
			make.Env = append(make.Env, variable)
		}
	}
	out, err := make.CombinedOutput()
	return standin.Answer{Output: string(out)}, err
}

// docker builds the project's images, which the suite has built already, and pushes them onto the nodes.
func (w *workers) docker(ctx context.Context, c standin.Call) (standin.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(c.Args) >= 4 && slices.Equal(c.Args[:2], []string{"build", "-t"}) && c.Args[len(c.Args)-1] == ".":
		file := map[string]int{"": 0, "-f bench-image/Dockerfile": 1}
		i, known := file[strings.Join(c.Args[3:len(c.Args)-1], " ")]
		if !known {
			return standin.Answer{}, unexpected(c)
		}
		w.built[c.Args[2]] = built[i]
		return standin.Answer{}, nil
	case len(c.Args) == 2 && c.Args[0] == "push":
		image, ok := w.built[c.Args[1]]
		if !ok {
			return standin.Answer{}, fmt.Errorf("an image does not exist locally with the tag: %s", c.Args[1])
		}
		if err := localcluster.Load(ctx, w.options, image.Path); err != nil {
			return standin.Answer{}, err
		}
		return standin.Answer{}, localcluster.Tag(ctx, w.options, image.Ref, c.Args[1])
	}
	return standin.Answer{}, unexpected(c)
}

// installFile installs a program of the checkout into a folder of PATH.
func (w *workers) installFile(_ context.Context, c standin.Call) (standin.Answer, error) {
	if len(c.Args) != 2 || c.Args[1] != "/usr/local/bin/" {
		return standin.Answer{}, unexpected(c)
	}
	content, err := os.ReadFile(filepath.Join(root, c.Args[0]))
	if err != nil {
		return standin.Answer{}, err
	}
	return standin.Answer{}, os.WriteFile(filepath.Join(w.bin, filepath.Base(c.Args[0])), content, 0o755)
}

// sleepLess sleeps a tenth of the time.
func sleepLess(_ context.Context, c standin.Call) (standin.Answer, error) {
	seconds, err := strconv.ParseFloat(strings.Join(c.Args, " "), 64)
	return standin.Answer{Exec: []string{"/bin/sleep", fmt.Sprint(seconds / 10)}}, err
}

// edit adds the fields of the page to the kubelet's configuration in the ConfigMap that kubectl edit offers.
func (w *workers) edit(_ context.Context, c standin.Call) (standin.Answer, error) {
	if len(c.Args) != 1 {
		return standin.Answer{}, unexpected(c)
	}
	content, err := os.ReadFile(c.Args[0])
	if err != nil {
		return standin.Answer{}, err
	}
	object := &corev1.ConfigMap{}
	if err := yaml.Unmarshal(content, object); err != nil {
		return standin.Answer{}, err
	}
	config, added := map[string]any{}, map[string]any{}
	if err := errors.Join(yaml.Unmarshal([]byte(object.Data["kubelet"]), &config), yaml.Unmarshal([]byte(w.fragment), &added)); err != nil {
		return standin.Answer{}, err
	}
	maps.Copy(config, added)
	all, err := yaml.Marshal(config)
	if err != nil {
		return standin.Answer{}, err
	}
	object.Data["kubelet"] = string(all)
	if content, err = yaml.Marshal(object); err != nil {
		return standin.Answer{}, err
	}
	return standin.Answer{}, os.WriteFile(c.Args[0], content, 0o600)
}

// ssh runs a command as root on a node, in its own mount namespace: the node's files are its own, and its programs are stand-ins.
func (w *workers) ssh(ctx context.Context, c standin.Call) (standin.Answer, error) {
	if len(c.Args) < 2 {
		return standin.Answer{}, unexpected(c)
	}
	node, ok := strings.CutPrefix(c.Args[0], "root@")
	if !ok || !slices.Contains(names, node) {
		return standin.Answer{}, fmt.Errorf("could not resolve hostname %s", c.Args[0])
	}
	var out strings.Builder
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", strings.Join(c.Args[1:], " "))
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", &out, &out
	cmd.Env = []string{"PATH=" + w.nodeBin + ":" + environment.SystemPath, "HOME=/", standin.Node + "=" + node}
	for _, variable := range w.environment {
		if strings.HasPrefix(variable, standin.Socket+"=") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	err := localcluster.RunOn(ctx, w.options, node, cmd)
	return standin.Answer{Output: out.String()}, err
}

// kubeadm writes the kubelet's configuration from the ConfigMap. The options of whole cores need a machine without SMT, because a pod has
// one CPU of this machine.
func (w *workers) kubeadm(ctx context.Context, c standin.Call) (standin.Answer, error) {
	if command := strings.Join(c.Args, " "); command != "upgrade node" && command != "upgrade node phase kubelet-config" {
		return standin.Answer{}, unexpected(c)
	}
	object := &corev1.ConfigMap{}
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kubelet-config"}, object); err != nil {
		return standin.Answer{}, err
	}
	config := map[string]any{}
	if err := yaml.Unmarshal([]byte(object.Data["kubelet"]), &config); err != nil {
		return standin.Answer{}, err
	}
	for _, own := range []string{"apiVersion", "kind", "cgroupDriver"} {
		delete(config, own)
	}
	siblings, err := os.ReadFile("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
	if err != nil || strings.TrimSpace(string(siblings)) != "0" {
		delete(config, "cpuManagerPolicyOptions")
	}
	return standin.Answer{}, localcluster.ConfigureKubelet(ctx, w.options, c.Node, config)
}

// systemctl controls the node's real kubelet.
func (w *workers) systemctl(ctx context.Context, c standin.Call) (standin.Answer, error) {
	start := func() error { return localcluster.StartProcess(ctx, w.options, "kubelet-"+c.Node) }
	stop := func() error { return localcluster.KillKubelet(ctx, w.options, c.Node) }
	switch strings.Join(c.Args, " ") {
	case "daemon-reload":
		return standin.Answer{}, nil
	case "stop kubelet":
		return standin.Answer{}, stop()
	case "start kubelet":
		return standin.Answer{}, start()
	case "restart kubelet":
		if err := stop(); err != nil {
			return standin.Answer{}, err
		}
		return standin.Answer{}, start()
	}
	return standin.Answer{}, unexpected(c)
}

func (w *workers) aptMark(_ context.Context, c standin.Call) (standin.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.packages[c.Node]
	if len(c.Args) < 2 {
		return standin.Answer{}, unexpected(c)
	}
	p.held = slices.DeleteFunc(p.held, func(name string) bool { return slices.Contains(c.Args[1:], name) })
	switch c.Args[0] {
	case "unhold":
		return standin.Answer{}, nil
	case "hold":
		p.held = append(p.held, c.Args[1:]...)
		return standin.Answer{}, nil
	}
	return standin.Answer{}, unexpected(c)
}

// version matches a package with its version on the command line of apt-get.
var version = regexp.MustCompile(`^(kubeadm|kubelet)=([0-9.]+)-\*$`)

// aptGet installs another version of the kubelet, which is the same program that calls itself by the new version.
func (w *workers) aptGet(ctx context.Context, c standin.Call) (standin.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.packages[c.Node]
	if slices.Equal(c.Args, []string{"update"}) {
		p.listed = true
		return standin.Answer{}, nil
	}
	if len(c.Args) < 3 || !slices.Equal(c.Args[:2], []string{"install", "-y"}) {
		return standin.Answer{}, unexpected(c)
	}
	for _, arg := range c.Args[2:] {
		match := version.FindStringSubmatch(arg)
		switch {
		case match == nil:
			return standin.Answer{}, unexpected(c)
		case !p.listed:
			return standin.Answer{}, fmt.Errorf("E: Version '%s-*' for '%s' was not found", match[2], match[1])
		case slices.Contains(p.held, match[1]):
			return standin.Answer{}, errors.New("E: Held packages were changed and -y was used without --allow-change-held-packages")
		}
		p.versions[match[1]] = match[2]
	}
	if p.versions["kubelet"] == "" {
		return standin.Answer{}, nil
	}
	return standin.Answer{}, localcluster.InstallKubelet(ctx, w.options, c.Node, "v"+p.versions["kubelet"])
}
