package localcluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

const (
	// KubernetesVersion is the version of every Kubernetes command of the local cluster.
	KubernetesVersion = "v1.36.3"

	etcdVersion       = "v3.6.16"
	containerdVersion = "v2.2.9"
	runcVersion       = "v1.3.6"
	promtoolVersion   = "v0.313.5" // of the module; Prometheus calls it 3.13.5
	prometheusVersion = "v0.316.0"

	// Of peers, with which `make peers` tests. Later versions of Argo Rollouts need a later Go, and those of Flagger cannot be had as
	// a module.
	rolloutsVersion    = "v1.10.1"
	flaggerVersion     = "v1.36.1"
	certManagerVersion = "v1.21.2"
)

// component is a set of commands built from one module under binaries/ and cached together.
type component struct {
	// Name is also the name of the module's folder under binaries/.
	Name    string
	Version string
	// Packages maps a command's path in the output folder to its package.
	Packages map[string]string
	// Args are the build flags besides -o.
	Args []string
	// Env are variables set for the build.
	Env []string
	// Hint tells how long a build takes on two cores.
	Hint string `json:"-"` // It does not affect what a build produces; see key.
}

// static are the flags and variables of everything that is built without cgo.
var static = []string{"CGO_ENABLED=0"}

func kubernetesComponent() component {
	// Without the stamp, kubectl and the kubelet call themselves v0.0.0-master.
	stamp := "k8s.io/component-base/version."
	ldflags := strings.Join([]string{
		"-s", "-w",
		"-X", stamp + "gitVersion=" + KubernetesVersion,
		"-X", stamp + "gitMajor=1",
		"-X", stamp + "gitMinor=36",
		"-X", stamp + "gitTreeState=clean",
	}, " ")
	return component{
		Name: "kubernetes", Version: KubernetesVersion,
		Packages: map[string]string{
			"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
			"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
			"kube-scheduler":          "k8s.io/kubernetes/cmd/kube-scheduler",
			"kubectl":                 "k8s.io/kubernetes/cmd/kubectl",
			"kubelet":                 "k8s.io/kubernetes/cmd/kubelet",
		},
		Args: []string{"-tags", "providerless", "-ldflags", ldflags},
		Env:  static,
		Hint: "about 4 minutes",
	}
}

func etcdComponent() component {
	return component{
		Name: "etcd", Version: etcdVersion,
		Packages: map[string]string{"etcd": "go.etcd.io/etcd/server/v3"},
		Args:     []string{"-ldflags", "-s -w"},
		Env:      static,
		Hint:     "about half a minute",
	}
}

func containerdComponent() component {
	const containerd = "github.com/containerd/containerd/v2/cmd/"
	const plugins = "github.com/containernetworking/plugins/plugins/"
	return component{
		Name: "containerd", Version: containerdVersion,
		Packages: map[string]string{
			"containerd":              containerd + "containerd",
			"containerd-shim-runc-v2": containerd + "containerd-shim-runc-v2",
			"ctr":                     containerd + "ctr",
			"cni/bridge":              plugins + "main/bridge",
			"cni/host-device":         plugins + "main/host-device",
			"cni/loopback":            plugins + "main/loopback",
			"cni/macvlan":             plugins + "main/macvlan",
			"cni/tuning":              plugins + "meta/tuning",
			"cni/host-local":          plugins + "ipam/host-local",
			"cni/static":              plugins + "ipam/static",
		},
		Args: []string{"-tags", "no_btrfs no_zfs no_devmapper", "-ldflags",
			"-s -w -X github.com/containerd/containerd/v2/version.Version=" + containerdVersion},
		Env:  static,
		Hint: "about a minute",
	}
}

func runcComponent() component {
	return component{
		Name: "runc", Version: runcVersion,
		Packages: map[string]string{"runc": "github.com/opencontainers/runc"},
		// Pods with the RuntimeDefault seccomp profile, as the operator's own are, need a runc that knows seccomp.
		Args: []string{"-tags", "seccomp", "-ldflags", "-s -w"},
		Env:  []string{"CGO_ENABLED=1"},
		Hint: "about half a minute",
	}
}

func promtoolComponent() component {
	return component{
		Name: "promtool", Version: promtoolVersion,
		Packages: map[string]string{"promtool": "github.com/prometheus/prometheus/cmd/promtool"},
		// Without service discovery there are no clients of every cloud to compile.
		Args: []string{"-tags", "remove_all_sd", "-ldflags", "-s -w"},
		Env:  static,
		Hint: "about 2 minutes",
	}
}

// peers are other projects' commands that specs run beside Tailgate, by name.
var peers = map[string]component{
	"prometheus": {
		Name: "prometheus", Version: prometheusVersion,
		Packages: map[string]string{"prometheus": "github.com/prometheus/prometheus/cmd/prometheus"},
		Args:     []string{"-tags", "remove_all_sd", "-ldflags", "-s -w"},
		Env:      static,
		Hint:     "about 2 minutes",
	},
	"argo-rollouts": {
		Name: "argo-rollouts", Version: rolloutsVersion,
		Packages: map[string]string{"argo-rollouts": "github.com/argoproj/argo-rollouts/cmd/rollouts-controller"},
		Args:     []string{"-ldflags", "-s -w"},
		Env:      static,
		Hint:     "about 3 minutes",
	},
	"flagger": {
		Name: "flagger", Version: flaggerVersion,
		Packages: map[string]string{"flagger": "github.com/fluxcd/flagger/cmd/flagger"},
		Args:     []string{"-ldflags", "-s -w"},
		Env:      static,
		Hint:     "about 2 minutes",
	},
	"cert-manager": {
		Name: "cert-manager", Version: certManagerVersion,
		Packages: map[string]string{"cert-manager": "."}, // Its main package is ours, with its controllers.
		Args:     []string{"-ldflags", "-s -w"},
		Env:      static,
		Hint:     "about 2 minutes",
	},
}

// Binaries returns a folder that holds every command of the local cluster, with the CNI plugins in its subfolder
// cni. What is not in the cache is built, and each build is logged to log as one line.
func Binaries(ctx context.Context, log io.Writer) (dir string, err error) {
	return collect(ctx, log, "cluster", kubernetesComponent(), etcdComponent(), containerdComponent(), runcComponent())
}

// CNI returns a folder with the CNI plugins alone. It builds them, and logs a line, if they are not in the cache.
func CNI(ctx context.Context, log io.Writer) (dir string, err error) {
	dir, err = collect(ctx, log, "cni", containerdComponent())
	return filepath.Join(dir, "cni"), err
}

// Assets returns a folder with kube-apiserver, etcd and kubectl, as envtest wants them in KUBEBUILDER_ASSETS. It needs
// neither root nor the parts that only a node uses. What is not in the cache is built, and logged to log as one line.
func Assets(ctx context.Context, log io.Writer) (dir string, err error) {
	return collect(ctx, log, "assets", kubernetesComponent(), etcdComponent())
}

// Promtool returns the path of promtool, which tests rules of Prometheus. If it is not in the cache it is built, and logged to
// log as one line.
func Promtool(ctx context.Context, log io.Writer) (path string, err error) {
	dir, err := collect(ctx, log, "prometheus", promtoolComponent())
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "promtool"), nil
}

// Peer returns the path of a command of another project. If it is not in the cache it is built, and logged to log as one line.
func Peer(ctx context.Context, log io.Writer, name string) (path string, err error) {
	dir, err := collect(ctx, log, "peer-"+name, peers[name])
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}

// PeerSource returns the folder of a module from which a peer is built, which has its CustomResourceDefinitions.
func PeerSource(ctx context.Context, name, module string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = peers[name].source(root)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("downloading %s: %w\n%s", module, err, out)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return "", fmt.Errorf("reading where %s is: %w", module, err)
	}
	return downloaded.Dir, nil
}

// collect builds the components and links their commands together in one cached folder.
func collect(ctx context.Context, log io.Writer, name string, components ...component) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	goVersion, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOARCH").Output()
	if err != nil {
		return "", fmt.Errorf("asking for the version of Go: %w", err)
	}
	sum := sha256.New()
	var dirs []string
	for _, c := range components {
		source := c.source(root)
		key, err := c.key(source, strings.TrimSpace(string(goVersion)))
		if err != nil {
			return "", err
		}
		dir := filepath.Join(cache, c.Name+"-"+c.Version+"-"+key)
		if err := once(ctx, dir, func(tmp string) error { return c.build(ctx, log, source, tmp) }); err != nil {
			return "", fmt.Errorf("building %s %s: %w", c.Name, c.Version, err)
		}
		dirs = append(dirs, dir)
		fmt.Fprintln(sum, dir)
	}
	out := filepath.Join(cache, name+"-"+shortHash(sum.Sum(nil)))
	err = once(ctx, out, func(tmp string) error { return linkTrees(tmp, dirs) })
	if err != nil {
		return "", fmt.Errorf("collecting the binaries: %w", err)
	}
	return out, nil
}

// source is the folder of the component's module.
func (c component) source(root string) string {
	return filepath.Join(root, "test", "localcluster", "binaries", c.Name)
}

// key identifies everything that decides what a build gives: the pinned modules, the flags and the Go version.
func (c component) key(source, goVersion string) (string, error) {
	sum := sha256.New()
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(source, file))
		if err != nil {
			return "", fmt.Errorf("reading the pins of %s: %w", c.Name, err)
		}
		sum.Write(content)
	}
	// A main package of our own, if there is one.
	own, err := os.ReadFile(filepath.Join(source, "main.go"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the main package of %s: %w", c.Name, err)
	}
	sum.Write(own)
	settings, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encoding the build settings of %s: %w", c.Name, err)
	}
	sum.Write(settings)
	sum.Write([]byte(goVersion))
	return shortHash(sum.Sum(nil)), nil
}

// build compiles the component's commands into dir.
func (c component) build(ctx context.Context, log io.Writer, source, dir string) error {
	fmt.Fprintf(log, "building %s %s (once, %s)\n", c.Name, c.Version, c.Hint)
	// One go build a folder compiles the packages side by side and links each under the last element of its path.
	byFolder := map[string][]string{}
	for path, pkg := range c.Packages {
		byFolder[filepath.Dir(path)] = append(byFolder[filepath.Dir(path)], pkg)
	}
	for folder, packages := range byFolder {
		out := filepath.Join(dir, folder)
		if err := os.MkdirAll(out, 0o755); err != nil {
			return err
		}
		if len(c.Packages) == 1 { // A path such as .../server/v3 does not end in the command's name.
			for path := range c.Packages {
				out = filepath.Join(dir, path)
			}
		} else {
			out += string(filepath.Separator)
		}
		args := append([]string{"build", "-trimpath", "-buildvcs=false", "-mod=readonly", images.NoDebug}, c.Args...)
		args = append(append(args, "-o", out), packages...)
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		cmd.Env = append(cmd.Env, c.Env...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, tail(stderr.String(), 20))
		}
	}
	for path := range c.Packages {
		if _, err := os.Stat(filepath.Join(dir, path)); err != nil {
			return fmt.Errorf("looking for what was built: %w", err)
		}
	}
	return nil
}

// once fills the folder dir by calling fill with a temporary one beside it, which is renamed when it is complete, so
// that dir is either absent or whole. Callers in several processes wait for each other. It does nothing when dir is
// there.
func once(ctx context.Context, dir string, fill func(tmp string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("creating the cache: %w", err)
	}
	unlock, err := lockFile(ctx, dir+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil { // Another process was quicker.
		return nil
	}
	// We hold the lock, so whatever is there was left by a builder that died.
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("removing an unfinished build: %w", err)
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return fmt.Errorf("creating a folder to build in: %w", err)
	}
	if err := fill(tmp); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("putting the build in its place: %w", err)
	}
	return nil
}

// lockFile takes an exclusive lock on the file, waiting until ctx ends. The lock dies with the process.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	err = poll(ctx, func() (bool, error) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("waiting for the lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// linkTrees hard-links every file of the source folders into dir.
func linkTrees(dir string, sources []string) error {
	for _, source := range sources {
		err := filepath.WalkDir(source, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(source, path)
			if err != nil {
				return err
			}
			if d.IsDir() {
				return os.MkdirAll(filepath.Join(dir, rel), 0o755)
			}
			return os.Link(path, filepath.Join(dir, rel))
		})
		if err != nil {
			return fmt.Errorf("linking %s: %w", source, err)
		}
	}
	return nil
}

// cacheDir is where built binaries are kept.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir() // $XDG_CACHE_HOME, or else $HOME/.cache.
	if err != nil {
		return "", fmt.Errorf("looking for the cache folder: %w", err)
	}
	return filepath.Join(dir, "tailgate"), nil
}

// moduleRoot finds the checkout in which we run, by walking up from the working directory. The sources of the pinned
// modules cannot be embedded, since modules of their own are not part of this one.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the checkout: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "test", "localcluster", "binaries", "kubernetes", "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("the local cluster must be started from inside the Tailgate checkout")
		}
		dir = parent
	}
}

func shortHash(sum []byte) string { return hex.EncodeToString(sum)[:12] }

// tail returns the last n lines of s.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
