package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/doctor"
	"github.com/tailgate-dev/tailgate/internal/redact"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// bugReport is what report-bug writes. Tests of the corpus read it, too.
type bugReport struct {
	Missing    []string `json:"missing,omitempty"` // why parts are not here
	Versions   versions `json:"versions"`
	Kubernetes string   `json:"kubernetes,omitempty"`
	// Objects are the named object, what was made for it, and their events.
	Objects []map[string]any `json:"objects,omitempty"`
	// Results are the stored results of a benchmark, of which facts and histograms are raw.
	Results []result.Stored `json:"results,omitempty"`
	// Doctor has the answers of the doctor, which follow from Facts.
	Doctor doctor.Report   `json:"doctor"`
	Facts  doctor.Observed `json:"facts"`
}

const defaultBugFile = "tailgate-bug.yaml"

func newReportBug(c *cluster) *cobra.Command {
	d := &doctorCall{cluster: c, like: &v1alpha1.LatencyBenchmark{}, parallel: 8, timeout: 2 * time.Minute}
	var file string
	var noPods bool
	cmd := &cobra.Command{
		Use:   "report-bug [NAME]",
		Short: "Write one file for a bug report, with names and addresses replaced",
		Long: "Write one file for a bug report: the versions, the object with its pods and stored results, and the findings and\n" +
			"facts of the doctor. The command replaces names of nodes, namespaces, objects and users, addresses, labels and\n" +
			"notes, each by the same word everywhere. Environments and arguments of containers, and annotations of other\n" +
			"programs, are left out. Read the file before you publish it.\n\n" +
			"Like `" + name + " doctor`, the command creates short-lived pods on the nodes, and deletes them.",
		Example: "  " + name + " report-bug sweep -n perf\n" +
			"  " + name + " report-bug " + gates.short + "/upgrades --without-pods -o bug.yaml",
		Args:        takes("the name of one object at most", 0, 1),
		Annotations: map[string]string{removesPods: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s exists already: name another file with -o", file)
			}
			b, err := d.bug(cmd.Context(), args, noPods, newScreen(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			content, err := b.redacted()
			if err != nil {
				return err
			}
			if err := os.WriteFile(file, content, 0o600); err != nil {
				return err
			}
			text := fmt.Sprintf("%s is written. Read it before you attach it to an issue: names and addresses are replaced, where this command knows them.\n", file)
			for _, why := range b.Missing {
				text += "missing: " + why + "\n"
			}
			return emit(cmd.OutOrStdout(), text, nil)
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", defaultBugFile, "the file to write")
	cmd.Flags().BoolVar(&noPods, "without-pods", false, "create no pods, so that facts of the nodes' machines are missing")
	cmd.Flags().StringVar(&d.image, "image", "", "bench image of the pods; default: that of the manager")
	return cmd
}

// bug collects a report. Only a named object is required; other parts may be missing in it.
func (d *doctorCall) bug(ctx context.Context, args []string, noPods bool, progress *screen) (*bugReport, error) {
	api, namespace, err := d.client()
	if err != nil {
		return nil, err
	}
	d.api, d.podNamespace, d.call = api, namespace, rand.String(8)
	b := &bugReport{Versions: versions{Client: readClientVersion(), Server: d.findManager(ctx)}}
	if len(args) > 0 {
		if err := b.collect(ctx, api, namespace, args[0]); err != nil {
			return nil, err
		}
	}
	var version struct{ GitVersion, Platform string }
	b.miss("the version of Kubernetes", d.raw(ctx, &version, "/version"))
	b.Kubernetes = strings.TrimSpace(version.GitVersion + " " + version.Platform)
	b.Facts, err = d.observe(ctx)
	b.miss("the doctor's facts", err)
	if err == nil && !noPods {
		if err := d.inspect(ctx, &b.Facts, progress); err != nil {
			return nil, err
		}
	}
	for i := range b.Facts.Nodes {
		n := &b.Facts.Nodes[i]
		if noPods && n.NotLooked == "" {
			n.NotLooked = "no pods were wanted"
		}
		for j := range n.Pods {
			withoutPrograms(&n.Pods[j].Spec)
		}
	}
	b.Doctor = doctor.Diagnose(b.Facts)
	return b, nil
}

func (b *bugReport) miss(part string, err error) {
	if err != nil {
		b.Missing = append(b.Missing, part+": "+oneLine(err))
	}
}

// withoutPrograms removes what a pod of others runs; the doctor reads only what it requests.
func withoutPrograms(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i, c := range containers {
			containers[i] = corev1.Container{Name: fmt.Sprintf("container-%d", i), Resources: c.Resources, RestartPolicy: c.RestartPolicy}
		}
	}
	spec.Volumes, spec.ImagePullSecrets = nil, nil
}

func (b *bugReport) collect(ctx context.Context, api client.Client, namespace, arg string) error {
	of, err := parseSubject(arg)
	if err != nil {
		return err
	}
	of.key = of.kind.key(namespace, of.key.Name)
	o := of.kind.object()
	if err := read(ctx, api, of, o); err != nil {
		return err
	}
	all := []client.Object{o}
	list := func(into client.ObjectList, options ...client.ListOption) (found []client.Object) {
		b.miss(fmt.Sprintf("%T", into), api.List(ctx, into, options...))
		_ = meta.EachListItem(into, func(o runtime.Object) error { // The function returns no error.
			found = append(found, o.(client.Object))
			return nil
		})
		return found
	}
	switch o := o.(type) {
	case *v1alpha1.LatencyBenchmark:
		all = append(all, list(&corev1.PodList{}, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelBenchmark: o.Name})...)
		if len(o.Status.Stored) > 0 {
			b.Results, err = storedResults(ctx, api, o)
			b.miss("the stored results", err)
		}
	case *v1alpha1.LatencyMatrix:
		pairs, err := pairsOf(ctx, api, o)
		b.miss("the benchmarks of the pairs", err)
		for i := range pairs {
			all = append(all, &pairs[i])
		}
	case *v1alpha1.LatencyGate:
		namespace = o.Spec.Namespace
		all = append(all, list(&v1alpha1.LatencyVerificationList{}, client.MatchingLabels{v1alpha1.LabelGate: o.Name})...)
		all = append(all, list(&v1alpha1.LatencyBenchmarkList{}, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelGate: o.Name})...)
	}
	for _, e := range list(&corev1.EventList{}, client.InNamespace(namespace)) {
		if slices.ContainsFunc(all, func(o client.Object) bool { return o.GetName() == e.(*corev1.Event).InvolvedObject.Name }) {
			all = append(all, e)
		}
	}
	for _, o := range all {
		kind, err := apiutil.GVKForObject(o, api.Scheme())
		if err != nil {
			return err
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return fmt.Errorf("encoding %s: %w", o.GetName(), err)
		}
		object["apiVersion"], object["kind"] = kind.GroupVersion().String(), kind.Kind
		b.Objects = append(b.Objects, object)
	}
	return nil
}

func (b *bugReport) redacted() ([]byte, error) {
	raw, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encoding the report: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // Latencies in nanoseconds do not fit into a float.
	var document any
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("encoding the report: %w", err)
	}
	names := redact.New()
	for _, n := range b.Facts.Nodes {
		names.Add("node", n.Node.Name)
		for _, p := range n.Pods {
			names.Add("namespace", p.Namespace)
			names.Add("pod", p.Name)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(b.Facts.LeftOut)) {
		names.Add("node", node)
	}
	names.Add("namespace", b.Facts.Namespace)
	for _, n := range b.Facts.Networks {
		namespace, network, _ := strings.Cut(n.Name, "/")
		names.Add("namespace", namespace)
		names.Add("network", network)
	}
	for _, o := range b.Objects {
		metadata, _ := o["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		kind := strings.ToLower(strings.TrimPrefix(fmt.Sprint(o["kind"]), "Latency"))
		names.Add(cmp.Or(kind, "object"), name)
	}
	names.Collect(document)
	out, err := yaml.Marshal(names.Apply(document))
	if err != nil {
		return nil, fmt.Errorf("encoding the report: %w", err)
	}
	return append([]byte("# Written by "+name+" report-bug. Names and addresses are replaced.\n"), out...), nil
}
