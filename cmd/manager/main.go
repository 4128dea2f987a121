// Command manager is the operator: it runs the controllers and serves metrics and verdicts.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // time zones of gates' schedules; the image has no time zone data

	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/controllers/benchmark"
	"github.com/tailgate-dev/tailgate/controllers/gate"
	"github.com/tailgate-dev/tailgate/controllers/matrix"
	"github.com/tailgate-dev/tailgate/internal/evaluate"
	"github.com/tailgate-dev/tailgate/internal/metrics"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
	"github.com/tailgate-dev/tailgate/internal/verdicthttp"
)

func main() {
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

const logTimeout = 20 * time.Second

type options struct {
	settings       benchmark.Settings
	metricsAddress string
	servingCertDir string
	healthAddress  string
	leaderElection bool
	gates          bool
	zap            zap.Options
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("manager", flag.ContinueOnError)
	// main prints one line for an error; all flags are printed only for -help.
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.settings.BenchImage, "bench-image", "", "image of the benchmark pods (required)")
	fs.StringVar((*string)(&o.settings.PullPolicy), "bench-image-pull-policy", string(corev1.PullIfNotPresent),
		"Always, IfNotPresent or Never")
	benchTools := fs.String("bench-tools", "", "tools that the image has, separated by commas: a benchmark with another tool is not accepted. Empty: all")
	fs.StringVar(&o.settings.SfnettestImage, "sfnettest-image", "", "image by digest with sfnt-pingpong and sfnt-stream, such as AMD's, which pods of these tools mount as an image volume (Kubernetes 1.35). Empty: the tools of the bench image")
	fs.StringVar(&o.settings.ServiceAccount, "bench-service-account", "", "service account of benchmark and hold pods, which mount no token of it; it must exist in the namespaces of benchmarks and gates. Empty: their service account default")
	fs.BoolVar(&o.settings.AllowHostNetwork, "allow-host-network", false, "let benchmarks use the nodes' own network (network type Host)")
	fs.BoolVar(&o.settings.AllowPacketCapture, "allow-packet-capture", false, "let benchmarks capture packets at the server's end (spec.capture), as root with the capability NET_RAW")
	customImages := fs.String("custom-images", "", "registries and repositories, separated by commas, such as registry.example.com/trading, whose images benchmarks may run as their own programs (tool Custom); * is all, none if it is empty")
	networkNamespaces := fs.String("network-namespaces", "", "namespaces, separated by commas, whose networks benchmarks of other namespaces may name (networkRef.namespace); * is all, none if it is empty")
	namespaces := fs.String("namespaces", "", "namespaces, separated by commas, whose benchmarks, matrices and gates the manager measures, and outside of which it needs no right to write. Empty: all")
	fs.DurationVar(&o.settings.MaxOccupation, "max-occupation", 24*time.Hour, "the longest time that all runs of a benchmark together may occupy their nodes; 0: no limit")
	fs.DurationVar(&o.settings.StartTimeout, "pod-start-timeout", 2*time.Minute, "the longest time for a benchmark pod to start")
	maxAttempts := fs.Int("max-attempts", 3, "attempts at a run, 1 to 3")
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", ":8443", "address of the HTTPS endpoint with metrics and verdicts, both authenticated; 0 turns it off")
	fs.StringVar(&o.servingCertDir, "serving-cert-dir", "", "folder with tls.crt and tls.key of that endpoint; read again when they change. Empty: a self-signed certificate that the manager creates when it starts")
	fs.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	fs.BoolVar(&o.leaderElection, "leader-elect", true, "elect one leader of several managers")
	fs.BoolVar(&o.gates, "gates", true, "run the controllers of LatencyGates, which need ClusterRole tailgate-manager-gates")
	o.zap.BindFlags(fs)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(stderr)
			fs.Usage()
		}
		return o, err
	}
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.settings.BenchImage == "":
		return o, fmt.Errorf("--bench-image is required")
	case o.settings.ServiceAccount != "" && len(validation.IsDNS1123Subdomain(o.settings.ServiceAccount)) > 0:
		return o, fmt.Errorf("--bench-service-account: %q is not a name of a service account", o.settings.ServiceAccount)
	case o.settings.StartTimeout < time.Second || o.settings.StartTimeout > pods.StartAllowance:
		return o, fmt.Errorf("--pod-start-timeout: %s is not 1s to %s", o.settings.StartTimeout, pods.StartAllowance)
	case o.settings.MaxOccupation < 0:
		return o, fmt.Errorf("--max-occupation: %s is negative", o.settings.MaxOccupation)
	case *maxAttempts < 1 || *maxAttempts > 3:
		return o, fmt.Errorf("--max-attempts: %d is not 1 to 3", *maxAttempts)
	}
	o.settings.MaxAttempts = int32(*maxAttempts)
	o.settings.NetworkNamespaces, o.settings.BenchTools, o.settings.Namespaces = list(*networkNamespaces), list(*benchTools), list(*namespaces)
	for _, namespace := range o.settings.Namespaces {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			return o, fmt.Errorf("--namespaces: %q is not a name of a namespace", namespace)
		}
	}
	for _, prefix := range list(*customImages) {
		if prefix != "*" && !imagePrefix.MatchString(prefix) {
			return o, fmt.Errorf("--custom-images: %q does not begin with a registry, as docker.io/library/NAME does, or has a tag or a digest", prefix)
		}
		o.settings.CustomImages = append(o.settings.CustomImages, prefix)
	}
	for _, t := range o.settings.BenchTools {
		if _, err := all.Registry().Get(v1alpha1.Tool(t)); err != nil {
			return o, fmt.Errorf("--bench-tools: %w", err)
		}
	}
	if image := o.settings.SfnettestImage; image != "" && !byDigest.MatchString(image) {
		return o, fmt.Errorf("--sfnettest-image: %q is not REPOSITORY@sha256:DIGEST; a tag may name other tools in the next round", image)
	}
	if !slices.Contains([]corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}, o.settings.PullPolicy) {
		return o, fmt.Errorf("--bench-image-pull-policy: %q is not Always, IfNotPresent or Never", o.settings.PullPolicy)
	}
	return o, nil
}

var imagePrefix = regexp.MustCompile(`^(localhost|[A-Za-z0-9-]+([.][A-Za-z0-9-]+)+|[A-Za-z0-9.-]+:[0-9]+)(/[a-z0-9._-]+)*/?$`)

var byDigest = regexp.MustCompile(`^[^\s@]+@sha256:[0-9a-f]{64}$`)

func list(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' })
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&o.zap)))
	limitMemory()
	var certificate *certwatcher.CertWatcher
	if o.servingCertDir != "" {
		if certificate, err = servingCertificate(o.servingCertDir); err != nil {
			return err
		}
	}

	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))

	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	mgr, err := ctrl.NewManager(observe.Bounded(config), ctrl.Options{
		Scheme: scheme,
		// The manager's own servers have limits that those of controller-runtime do not have.
		Metrics:                metricsserver.Options{BindAddress: off},
		HealthProbeBindAddress: off,
		LeaderElection:         o.leaderElection,
		LeaderElectionID:       "manager.tailgate.dev",
		// A manager that is asked to stop hands over at once.
		LeaderElectionReleaseOnCancel: true,
		Cache:                         controllers.CacheOptions(o.settings.Namespaces),
		Controller:                    controllers.Config(),
	})
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	if certificate != nil {
		if err := mgr.Add(certificate); err != nil {
			return fmt.Errorf("watching the certificate: %w", err)
		}
	}
	if err := setUpControllers(ctx, mgr, o); err != nil {
		return err
	}
	if err := setUpServers(mgr, o, certificate); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func setUpControllers(ctx context.Context, mgr ctrl.Manager, o options) error {
	clientset, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	api := controllers.API{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("tailgate"), Clock: clock.RealClock{},
	}
	cluster := &observe.Cluster{Cache: api.Client, Live: api.Live, Clock: api.Clock, Tools: all.Registry(), Settings: o.settings.Settings}
	reconciler := &benchmark.Reconciler{
		API: api, Cluster: cluster, Results: &evaluate.Store{Live: api.Live}, Logs: podLogs(clientset), LogTimeout: logTimeout,
		Settings: o.settings, Activity: metrics.NewActivity(ctrlmetrics.Registry), MemoryEnds: controllers.MemoryEnds,
	}
	protection := controllers.NewProtection(ctx, api.Live, api.Client)
	if err := mgr.Add(protection); err != nil {
		return fmt.Errorf("watching the admission policies: %w", err)
	}
	ctrlmetrics.Registry.MustRegister(metrics.NewCollector(mgr.GetCache(), mgr.Elected()), metrics.NewProtection(protection.Problem))
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the benchmark controller: %w", err)
	}
	if err := (&matrix.Reconciler{API: api, Cluster: cluster, Namespaces: o.settings.Namespaces}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the matrix controller: %w", err)
	}
	if err := (&controllers.Graces{API: api, Namespaces: o.settings.Namespaces, Made: reconciler.Made}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the controller of grace periods: %w", err)
	}
	if !o.gates {
		return nil
	}
	gates := &gate.Gates{API: api, Cluster: cluster, Memory: &gate.Memory{}, Protection: protection}
	if err := gates.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the gate controller: %w", err)
	}
	verifications := &gate.Verifications{
		API: api, Memory: gates.Memory, Activity: reconciler.Activity,
		Image: o.settings.BenchImage, PullPolicy: o.settings.PullPolicy, ServiceAccount: o.settings.ServiceAccount,
	}
	if err := verifications.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the verification controller: %w", err)
	}
	workloads := &gate.Workloads{API: api, Namespaces: o.settings.Namespaces, Logs: func(ctx context.Context, pod types.NamespacedName, container string) (io.ReadCloser, error) {
		return podLog(ctx, clientset, pod, container, false)
	}}
	if err := workloads.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the controller of workloads: %w", err)
	}
	return nil
}

// setUpServers serves probes, metrics and verdicts, for which a client of their own is limited.
func setUpServers(mgr ctrl.Manager, o options, certificate *certwatcher.CertWatcher) error {
	if o.healthAddress != off {
		probes := http.NewServeMux()
		for _, path := range []string{"/healthz", "/readyz"} {
			probes.Handle(path, healthz.CheckHandler{Checker: healthz.Ping})
		}
		if err := addServer(mgr, "probes", o.healthAddress, probes, nil); err != nil {
			return err
		}
	}
	if o.metricsAddress == off {
		return nil
	}
	config := rest.CopyConfig(mgr.GetConfig())
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(verdictQPS, 2*verdictQPS)
	live, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making the client of the verdicts: %w", err)
	}
	secured, err := tlsConfig(certificate)
	if err != nil {
		return err
	}
	metrics := promhttp.HandlerFor(ctrlmetrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	return addServer(mgr, "metrics and verdicts", o.metricsAddress, verdicthttp.New(live, clock.RealClock{}, metrics), secured)
}

const off = "0"

// addServer serves at an address, with TLS unless secured is nil, also without leadership.
func addServer(mgr ctrl.Manager, name, address string, handler http.Handler, secured *tls.Config) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening for requests of %s: %w", name, err)
	}
	listener = verdicthttp.Bound(listener)
	if secured != nil {
		listener = tls.NewListener(listener, secured)
	}
	return mgr.Add(&manager.Server{Name: name, Server: verdicthttp.NewServer(handler), Listener: listener, ShutdownTimeout: new(5 * time.Second)})
}

// limitMemory takes 90 % of GOMEMLIMIT, the container's: the collector does not manage all memory.
func limitMemory() {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}

// verdictQPS is how many requests a second the verdicts may send to the API server.
const verdictQPS = 100

// servingCertificate reads a folder's certificate and key, and again when they change.
func servingCertificate(folder string) (*certwatcher.CertWatcher, error) {
	certificate, err := certwatcher.New(filepath.Join(folder, corev1.TLSCertKey), filepath.Join(folder, corev1.TLSPrivateKeyKey))
	if err != nil {
		return nil, fmt.Errorf("--serving-cert-dir: reading %s and %s in %s: %w", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, folder, err)
	}
	return certificate, nil
}

// tlsConfig returns the settings of TLS; without a watched certificate, it creates one.
func tlsConfig(watched *certwatcher.CertWatcher) (*tls.Config, error) {
	// HTTP/2 is off: its benefit for a scrape does not justify the risk of rapid-reset attacks.
	c := &tls.Config{NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
	if watched != nil {
		c.GetCertificate = watched.GetCertificate
		return c, nil
	}
	certificate, key, err := cert.GenerateSelfSignedCertKeyWithFixtures("localhost", []net.IP{{127, 0, 0, 1}}, nil, "")
	if err != nil {
		return nil, fmt.Errorf("creating a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("reading the created certificate: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

func podLogs(clientset kubernetes.Interface) benchmark.LogReader {
	return func(ctx context.Context, pod types.NamespacedName, follow bool) (io.ReadCloser, error) {
		return podLog(ctx, clientset, pod, pods.Container, follow)
	}
}

func podLog(ctx context.Context, clientset kubernetes.Interface, pod types.NamespacedName, container string, follow bool) (io.ReadCloser, error) {
	return clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container, LimitBytes: new(int64(result.MaxLog)), Follow: follow}).Stream(ctx)
}
