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
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

const (
	// KubernetesVersion is the version of every Kubernetes command of the local cluster.
	KubernetesVersion = "v1.36.3"

	etcdVersion       = "v3.6.16"
	containerdVersion = "v2.2.9"
	runcVersion       = "v1.3.6"
	promtoolVersion   = "v0.313.5" // version of the module; Prometheus calls it 3.13.5
	prometheusVersion = "v0.316.0"
	// prometheus2Version is 2.55.1, the last version of Prometheus 2.
	prometheus2Version = "v0.55.1"

	// Versions of the peers that `make peers` tests with. Later versions of Argo Rollouts need a later Go, and later versions of Flagger
	// are not available as a module.
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
	// Hint is the duration of a build on two cores.
	Hint string `json:"-"` // It does not affect what a build produces; see key.
}

// static holds the environment variables of builds without cgo.
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
		// Pods with the RuntimeDefault seccomp profile, such as the operator's own, need a runc with seccomp support.
		Args: []string{"-tags", "seccomp", "-ldflags", "-s -w"},
		Env:  []string{"CGO_ENABLED=1"},
		Hint: "about half a minute",
	}
}

// prometheus2 returns a command of Prometheus 2, whose name ends with 2.
func prometheus2(command string) component {
	return component{
		Name: "prometheus2", Version: prometheus2Version,
		Packages: map[string]string{command + "2": "github.com/prometheus/prometheus/cmd/" + command},
		Args:     []string{"-tags", "remove_all_sd", "-ldflags", "-s -w"},
		Env:      static,
		Hint:     "about 2 minutes",
	}
}

// peers holds the commands of other projects that tests run beside Tailgate, by name.
var peers = map[string]component{
	"promtool": { // It tests Prometheus rules.
		Name: "promtool", Version: promtoolVersion,
		Packages: map[string]string{"promtool": "github.com/prometheus/prometheus/cmd/promtool"},
		// Without service discovery, the clients of all clouds need not be compiled.
		Args: []string{"-tags", "remove_all_sd", "-ldflags", "-s -w"},
		Env:  static,
		Hint: "about 2 minutes",
	},
	"prometheus": {
		Name: "prometheus", Version: prometheusVersion,
		Packages: map[string]string{"prometheus": "github.com/prometheus/prometheus/cmd/prometheus"},
		Args:     []string{"-tags", "remove_all_sd", "-ldflags", "-s -w"},
		Env:      static,
		Hint:     "about 2 minutes",
	},
	"prometheus2": prometheus2("prometheus"),
	"promtool2":   prometheus2("promtool"),
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
		Packages: map[string]string{"cert-manager": "."}, // The project's own main package, with cert-manager's controllers.
		Args:     []string{"-ldflags", "-s -w"},
		Env:      static,
		Hint:     "about 2 minutes",
	},
}

// Binaries returns a folder that holds every command of the local cluster, with the CNI plugins in its subfolder
// cni. Commands that are not in the cache are built, and each build writes one line to log.
func Binaries(ctx context.Context, log io.Writer) (dir string, err error) {
	return collect(ctx, log, "cluster", kubernetesComponent(), etcdComponent(), containerdComponent(), runcComponent())
}

// CNI returns a folder with only the CNI plugins. It builds them, and writes a line to log, if they are not in the cache.
func CNI(ctx context.Context, log io.Writer) (dir string, err error) {
	dir, err = collect(ctx, log, "cni", containerdComponent())
	return filepath.Join(dir, "cni"), err
}

// Assets returns a folder with kube-apiserver, etcd and kubectl, as envtest expects in KUBEBUILDER_ASSETS. It needs
// neither root nor the commands that only a node uses. Commands that are not in the cache are built, and each build
// writes one line to log.
func Assets(ctx context.Context, log io.Writer) (dir string, err error) {
	return collect(ctx, log, "assets", kubernetesComponent(), etcdComponent())
}

// Peer returns the path of a command of another project. If it is not in the cache, it is built, which writes one line to log.
func Peer(ctx context.Context, log io.Writer, name string) (path string, err error) {
	dir, err := collect(ctx, log, "peer-"+name, peers[name])
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}

// PeerSource returns the folder of a module that a peer is built from. It contains the peer's CustomResourceDefinitions.
func PeerSource(ctx context.Context, name, module string) (string, error) {
	root, err := images.RepositoryRoot()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir, cmd.Env = peers[name].source(root), environment.Tool()
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

// collect builds the components and links their commands together in one cached folder. The sources of the pinned modules cannot be
// embedded, since nested modules are not part of this module.
func collect(ctx context.Context, log io.Writer, name string, components ...component) (string, error) {
	root, err := images.RepositoryRoot()
	if err != nil {
		return "", err
	}
	version := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOARCH")
	version.Env = environment.Tool()
	goVersion, err := version.Output()
	if err != nil {
		return "", fmt.Errorf("asking for the version of Go: %w", err)
	}
	sum := sha256.New()
	var dirs []string
	for _, c := range components {
		source := c.source(root)
		toolchain := strings.TrimSpace(string(goVersion))
		if slices.Contains(c.Env, "CGO_ENABLED=1") {
			toolchain += system("/")
		}
		key, err := c.key(source, toolchain)
		if err != nil {
			return "", err
		}
		dir, err := cached.Folder(ctx, c.Name+"-"+c.Version+"-"+key, func(tmp string) error { return c.build(ctx, log, source, tmp) })
		if err != nil {
			return "", fmt.Errorf("building %s %s: %w", c.Name, c.Version, err)
		}
		dirs = append(dirs, dir)
		fmt.Fprintln(sum, filepath.Base(dir)) // The same commands have the same name in the cache of each user.
	}
	out, err := cached.Folder(ctx, name+"-"+shortHash(sum.Sum(nil)), func(tmp string) error { return linkTrees(tmp, dirs) })
	if err != nil {
		return "", fmt.Errorf("collecting the binaries: %w", err)
	}
	return out, nil
}

// system identifies the C library that a program compiled on this machine with cgo is linked with: the folder of the cache may be that
// of another system, in a home that several machines mount, in a container, or before an upgrade to the next release.
func system(root string) string {
	var id strings.Builder
	release, err := os.ReadFile(filepath.Join(root, "etc/os-release"))
	if err != nil {
		release, _ = os.ReadFile(filepath.Join(root, "usr/lib/os-release")) // Without either, the loaders tell systems apart.
	}
	for line := range strings.Lines(string(release)) {
		if name, _, _ := strings.Cut(line, "="); name == "ID" || name == "VERSION_ID" || name == "BUILD_ID" {
			id.WriteString(line)
		}
	}
	loaders, _ := filepath.Glob(filepath.Join(root, "lib*/ld-*.so.*")) // The pattern is valid.
	for _, loader := range loaders {
		fmt.Fprintln(&id, filepath.Base(loader))
	}
	return id.String()
}

// source returns the folder of the component's module.
func (c component) source(root string) string {
	return filepath.Join(root, "test", "localcluster", "binaries", c.Name)
}

// key returns a hash of everything that determines the result of a build: the pinned modules, the flags and the toolchain.
func (c component) key(source, toolchain string) (string, error) {
	sum := sha256.New()
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(source, file))
		if err != nil {
			return "", fmt.Errorf("reading the pins of %s: %w", c.Name, err)
		}
		sum.Write(content)
	}
	// The project's own main package, if there is one.
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
	sum.Write([]byte(toolchain))
	return shortHash(sum.Sum(nil)), nil
}

// build compiles the component's commands into dir.
func (c component) build(ctx context.Context, log io.Writer, source, dir string) error {
	fmt.Fprintf(log, "building %s %s (once, %s)\n", c.Name, c.Version, c.Hint)
	// One go build per folder compiles the packages in parallel and names each program after the last element of its path.
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
		cmd.Env = environment.Tool(c.Env...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if _, err := environment.Run(cmd); err != nil {
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

// linkTrees hard-links every file of the source folders into dir, or copies it where the file system has no hard links, such as a
// folder that a virtual machine shares.
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
			if os.Link(path, filepath.Join(dir, rel)) == nil {
				return nil
			}
			return copyProgram(path, filepath.Join(dir, rel))
		})
		if err != nil {
			return fmt.Errorf("linking %s: %w", source, err)
		}
	}
	return nil
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func shortHash(sum []byte) string { return hex.EncodeToString(sum)[:12] }

// tail returns the last n lines of s.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
