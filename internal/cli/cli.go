// Package cli implements kubectl-tailgate.
//
// A verb that prints one document writes it whole or not at all. An error is one line on standard
// error that says what to do; the exit code is then 1, or 3 of a verb of which 1 means Fail.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const name = "kubectl tailgate" // how users call the command

const (
	exitPass         = 0
	exitFail         = 1
	exitInconclusive = 2
	// exitError: no verdict, by bad input, a missing benchmark, or no answer in time.
	exitError = 3
)

const exitsByVerdict = "exits-by-verdict"

type ended struct {
	code int
	err  error // is printed on standard error; nil prints nothing
}

func (e ended) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.err) }

func (e ended) Unwrap() error { return e.err }

const removesPods = "removes-pods"

var endGrace = time.Second // a verb's time after an interruption, which some do not notice

// Run executes arguments and returns the exit code, soon after the context has ended.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stderr = text.Writer(stderr)
	root := Command()
	root.SetArgs(args)
	root.SetOut(text.Writer(stdout))
	root.SetErr(stderr)
	verb, _, err := root.Find(args)
	if err != nil {
		verb = root // Execute says what is wrong.
	}
	grace := endGrace
	if verb.Annotations[removesPods] != "" {
		grace += 2 * removalLimit
	}
	ending := make(chan error, 1)
	go func() { ending <- root.ExecuteContext(ctx) }()
	interrupted := make(chan struct{})
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { close(interrupted) }) })()
	select {
	case err = <-ending:
	case <-interrupted:
		err = errors.New("interrupted")
	}
	if err == nil {
		return 0
	}
	code := 1
	if verb.Annotations[exitsByVerdict] != "" {
		code = exitError
	}
	var e ended
	if errors.As(err, &e) {
		code, err = e.code, e.err
	}
	if all := utilerrors.Aggregate(nil); errors.As(err, &all) {
		before := strings.TrimSuffix(err.Error(), all.Error())
		for _, each := range all.Errors() {
			fmt.Fprintf(stderr, "%s: %s\n", name, oneLine(fmt.Errorf("%s%w", before, each)))
		}
	} else if err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", name, oneLine(err))
	}
	return code
}

func Command() *cobra.Command {
	cluster := &cluster{rules: clientcmd.NewDefaultClientConfigLoadingRules(), overrides: clientcmd.ConfigOverrides{ClusterDefaults: clientcmd.ClusterDefaults}}
	cluster.rules.DefaultClientConfig = &clientcmd.DefaultClientConfig
	root := &cobra.Command{
		Use:           "kubectl-tailgate",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:         "Tailgate's latency benchmarks: their results and verdicts",
		Example:       "  " + name + " run -f x2522.yaml\n  " + name + " get x2522\n  " + name + " gate lgate/trading --wait --timeout 1h",
		SilenceErrors: true, SilenceUsage: true, // Run prints the error, and not all flags.
	}
	cluster.addFlags(root.PersistentFlags())
	for _, group := range []struct {
		title string
		verbs []*cobra.Command
	}{
		{"Measure", []*cobra.Command{newPlan(cluster), newRun(cluster), newGet(cluster), newCompare(cluster), newReport(cluster), newRerun(cluster)}},
		{"Hold nodes back", []*cobra.Command{newGate(cluster), newVerify(cluster), newAccept(cluster), newCalibrate(cluster)}},
		{"Find what is wrong", []*cobra.Command{newStatus(cluster), newExplain(), newDoctor(cluster), newInspect(cluster), newAttempts(cluster), newReportBug(cluster), newVersion(cluster)}},
		{"Results without a cluster", []*cobra.Command{newExport(cluster), newImport(), newVerdict(), newCapture(), newPublished()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title + ":"})
		for _, verb := range group.verbs {
			verb.GroupID = group.title
			if strings.Contains(verb.Use, "NAME") && verb.ValidArgsFunction == nil {
				verb.ValidArgsFunction = cluster.names
			}
			root.AddCommand(verb)
		}
	}
	return root
}

func oneLine(err error) string { return text.Line(err.Error()) }

func emit[T string | []byte](w io.Writer, text T, err error) error {
	if err != nil {
		return err
	}
	if _, err := w.Write([]byte(text)); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

func oneOf(flag, value string, known []string) error {
	if !slices.Contains(known, value) {
		return fmt.Errorf("%s: unknown format %q; known are %s", flag, value, strings.Join(known, ", "))
	}
	return nil
}

// outputFlag adds the flag of the format. An unknown one is refused before the verb does anything.
func outputFlag(cmd *cobra.Command, form *string, known ...string) {
	cmd.Flags().StringVarP(form, "output", "o", known[0], "format: "+strings.Join(known, ", "))
	cmd.PreRunE = func(*cobra.Command, []string) error { return oneOf("--output", *form, known) }
}

func pause(ctx context.Context, length time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(length):
		return true
	}
}

// takes returns a check of the number of a verb's arguments; what describes them in the error.
func takes(what string, least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("%s takes %s, not %d arguments: %s %s", cmd.Name(), what, len(args), name, cmd.Use)
		}
		return nil
	}
}

type cluster struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

func (c *cluster) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "Path to the kubeconfig file to use for CLI requests.")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	names.AuthOverrideFlags.Username.LongName, names.AuthOverrideFlags.Password.LongName = "", ""
	clientcmd.BindOverrideFlags(&c.overrides, flags, names)
}

func (c *cluster) kubeconfig() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, &c.overrides)
}

func (c *cluster) client() (api client.Client, namespace string, err error) {
	config, err := c.config()
	if err != nil {
		return nil, "", err
	}
	if namespace, _, err = c.namespace(); err != nil {
		return nil, "", err
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, "", err
	}
	if api, err = client.New(observe.Bounded(config), client.Options{Scheme: scheme, Mapper: newMapper()}); err != nil {
		return nil, "", fmt.Errorf("making a client: %w", err)
	}
	return api, namespace, nil
}

func newScheme() (*runtime.Scheme, error) {
	known := runtime.NewSchemeBuilder(
		v1alpha1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, corev1.AddToScheme, nodev1.AddToScheme,
		schedulingv1.AddToScheme, resourcev1.AddToScheme, appsv1.AddToScheme, autoscalingv1.AddToScheme, apiextensionsv1.AddToScheme,
		admissionregistrationv1.AddToScheme,
	)
	scheme := runtime.NewScheme()
	return scheme, known.AddToScheme(scheme)
}

// newMapper returns a mapper of the kinds that the command reads, so that it needs no discovery.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, k := range append(kinds(), verifications) {
		gv := v1alpha1.GroupVersion
		mapper.AddSpecific(gv.WithKind(k.name), gv.WithResource(k.plural), gv.WithResource(strings.ToLower(k.name)), k.scope)
	}
	add := func(gv schema.GroupVersion, scope meta.RESTScope, kinds ...string) {
		for _, k := range kinds {
			mapper.Add(gv.WithKind(k), scope)
		}
	}
	add(corev1.SchemeGroupVersion, meta.RESTScopeNamespace, "ConfigMap", "Event", "Pod")
	add(corev1.SchemeGroupVersion, meta.RESTScopeRoot, "Node")
	add(authenticationv1.SchemeGroupVersion, meta.RESTScopeRoot, "SelfSubjectReview")
	add(authorizationv1.SchemeGroupVersion, meta.RESTScopeRoot, "SubjectAccessReview")
	add(appsv1.SchemeGroupVersion, meta.RESTScopeNamespace, "DaemonSet", "Deployment", "StatefulSet")
	add(apiextensionsv1.SchemeGroupVersion, meta.RESTScopeRoot, "CustomResourceDefinition")
	add(admissionregistrationv1.SchemeGroupVersion, meta.RESTScopeRoot, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
	add(nodev1.SchemeGroupVersion, meta.RESTScopeRoot, "RuntimeClass")
	add(schedulingv1.SchemeGroupVersion, meta.RESTScopeRoot, "PriorityClass")
	add(resourcev1.SchemeGroupVersion, meta.RESTScopeRoot, "DeviceClass", "ResourceSlice")
	network := foreign.Object().GroupVersionKind()
	mapper.AddSpecific(network, network.GroupVersion().WithResource("network-attachment-definitions"),
		network.GroupVersion().WithResource("network-attachment-definition"), meta.RESTScopeNamespace)
	mapper.Add(foreign.SriovNetworkNodeStateKind, meta.RESTScopeNamespace)
	mapper.Add(foreign.ModuleKind, meta.RESTScopeNamespace)
	mapper.Add(foreign.NodeResourceTopologyKind, meta.RESTScopeRoot)
	return mapper
}

func (c *cluster) config() (*rest.Config, error) {
	config, err := c.kubeconfig().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS = -1 // The API server is fair; 5 requests a second would delay 100 runs' results.
	return config, nil
}

func (c *cluster) core() (*typedcorev1.CoreV1Client, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	core, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return core, nil
}

// raw reads a path of the API server that has no client here; the named parameters are true.
func (c *cluster) raw(ctx context.Context, into any, path string, parameters ...string) error {
	core, err := c.core()
	if err != nil {
		return err
	}
	request := core.RESTClient().Get().AbsPath(path)
	for _, name := range parameters {
		request.Param(name, "true")
	}
	data, err := request.DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

const tailOfLog = 1000 // lines, enough for the largest result and all else of an agent

// log returns the end of a container's log and, to follow, what it writes until it ends.
func (c *cluster) log(ctx context.Context, pod types.NamespacedName, container string, follow bool) (io.ReadCloser, error) {
	core, err := c.core()
	if err != nil {
		return nil, err
	}
	log, err := core.Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container, Follow: follow, TailLines: new(int64(tailOfLog))}).Stream(ctx)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{atMost(log, result.MaxLog), log}, nil
}

func (c *cluster) namespace() (namespace string, flagged bool, err error) {
	if namespace, flagged, err = c.kubeconfig().Namespace(); err != nil {
		return "", false, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return namespace, flagged, nil
}

// screen shows progress: a terminal's line is rewritten, others get one for each change.
type screen struct {
	out     io.Writer
	width   func() int // characters of a terminal's line; nil if there is no terminal
	colored bool       // true on a terminal, unless the user disabled colours

	sync.Mutex
	last string
}

// newScreen returns a screen. It has no colours with NO_COLOR (https://no-color.org).
func newScreen(out io.Writer) *screen {
	if printable, ok := out.(interface{ Unwrap() io.Writer }); ok {
		out = printable.Unwrap() // The screen itself controls the terminal.
	}
	s := &screen{out: out}
	f, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return s
	}
	s.width = func() int {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
		return 80
	}
	s.colored = os.Getenv("NO_COLOR") == ""
	return s
}

func (s *screen) live() bool { return s.width != nil }

const eraseLine = "\r\x1b[K" // to the beginning of the terminal's line, and clear it

func (s *screen) show(word string, c color, rest string) {
	s.Lock()
	defer s.Unlock()
	line := word + rest
	if line == s.last {
		return
	}
	s.last = line
	if !s.live() {
		fmt.Fprintln(s.out, line)
		return
	}
	// A longer line would wrap, and only its last part be rewritten.
	if r, most := []rune(line), s.width()-1; len(r) > most {
		line = string(r[:max(most, 0)])
	}
	if s.colored && len(line) > len(word) {
		line = string(c) + word + colorOff + line[len(word):]
	}
	fmt.Fprint(s.out, eraseLine, line)
}

func (s *screen) say(line string) {
	s.Lock()
	defer s.Unlock()
	if s.live() {
		fmt.Fprint(s.out, eraseLine)
	}
	fmt.Fprintln(s.out, line)
	s.last = ""
}

func (s *screen) clear() {
	s.Lock()
	defer s.Unlock()
	if s.live() {
		fmt.Fprint(s.out, eraseLine)
	}
	s.last = ""
}

type color string

const (
	green    color = "\x1b[32m"
	yellow   color = "\x1b[33m"
	red      color = "\x1b[31m"
	colorOff       = "\x1b[0m"
)
