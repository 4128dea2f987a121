package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/admit"
	"github.com/tailgate-dev/tailgate/internal/doctor"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/report"
)

func newDoctor(c *cluster) *cobra.Command {
	d := &doctorCall{cluster: c, like: &v1alpha1.LatencyBenchmark{}}
	cmd := &cobra.Command{
		Use:   "doctor [NODE...]",
		Short: "Check whether the cluster is suitable for latency measurements",
		Long: "Check whether the cluster, or some of its nodes, are suitable for latency measurements. On each node, short-lived unprivileged\n" +
			"pods check the resources that benchmarks would get: exclusive CPUs, networks with their devices, Onload. On each network, pairs\n" +
			"of nodes then try to reach each other. With -f, the pods request the resources that this object would request. To check a\n" +
			"running pod of your own, use kubectl tailgate inspect. The level of each check is good, warning, error, or unknown if the check\n" +
			"was not possible. The findings come first, then a line for each node; -o wide shows the checks without findings, too. The\n" +
			"command deletes the pods before it ends, even if you interrupt it. docs/internals/doctor.md describes all checks.\n\n" +
			"Without names, the command checks all nodes except nodes whose taints keep pods away. If you name a node, its taints are\n" +
			"tolerated.\n\n" +
			"The exit code is 0 if there are no findings, and 1 if there is an error. Without an error, the code is 3 if a check was not\n" +
			"possible or the input is invalid, and 2 if there are only warnings.",
		Example: "  " + name + " doctor\n" +
			"  " + name + " doctor -f x2522.yaml\n" +
			"  " + name + " doctor worker-1 worker-2 --network sriov/sf-vf -o json",
		Annotations: map[string]string{exitsByVerdict: "yes", removesPods: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			d.nodes = args
			if d.file != "" {
				if err := d.resemble(cmd.Context(), cmd.InOrStdin()); err != nil {
					return err
				}
			}
			return d.run(cmd.Context(), cmd.OutOrStdout(), newScreen(cmd.OutOrStdout()), newScreen(cmd.ErrOrStderr()))
		},
	}
	fileFlag(cmd, &d.file, kinds()...)
	cmd.Flags().StringVar(&d.image, "image", "", "bench image of the pods; default: that of the manager")
	cmd.Flags().StringArrayVar(&d.networks, "network", nil,
		"NetworkAttachmentDefinition to try, [NAMESPACE/]NAME; may be repeated; default: those of the namespace")
	cmd.Flags().StringVar(&d.onload, "onload", "", "resource of Onload's devices to try; default: amd.com/onload, if a node has it")
	cmd.Flags().IntVar(&d.parallel, "parallel", 8, "number of nodes to check at the same time")
	cmd.Flags().DurationVar(&d.timeout, "timeout", 2*time.Minute, "time limit of each pod, including the pull of its image")
	outputFlag(cmd, &d.form, "table", "wide", "json")
	return cmd
}

// leastTimeout is less than any pod needs.
const leastTimeout = 5 * time.Second

type doctorCall struct {
	*cluster
	nodes, networks []string
	file            string
	onload, form    string
	parallel        int
	timeout         time.Duration
	// image is the image of the pods, policy when it is pulled, and serviceAccount the pods'.
	image, serviceAccount string
	policy                corev1.PullPolicy
	// like is the file's benchmark, without settings if there is no file; variants are its own.
	like     *v1alpha1.LatencyBenchmark
	variants []v1alpha1.Variant

	// imageless is why the image of no manager may be used.
	imageless    error
	api          client.Client
	podNamespace string
	// call is the value of the label of the call's pods, and made counts them, for their names.
	call string
	made atomic.Int32
}

// resemble reads the file. The networks are then those of its variants.
func (d *doctorCall) resemble(ctx context.Context, stdin io.Reader) error {
	manifest, err := d.manifest(d.file, stdin, kinds()...)
	if err != nil {
		return err
	}
	if err := admit.Object(ctx, manifest); err != nil {
		return fmt.Errorf("%s: %w", d.file, err)
	}
	o := kindOf(manifest).object()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(manifest.Object, o); err != nil {
		return fmt.Errorf("reading the %s: %w", manifest.GetKind(), err)
	}
	if gate, ok := o.(*v1alpha1.LatencyGate); ok {
		d.like = &v1alpha1.LatencyBenchmark{Spec: gate.Spec.Template.Benchmark()}
		d.like.Namespace, d.like.Name = gate.Spec.Namespace, gate.Name
		d.like.Spec.Placement.Client = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeSelector: &gate.Spec.NodeSelector}}
	} else {
		d.like = overviewOf(o)
	}
	d.variants = plan.Variants(d.like.Spec)
	for _, v := range d.variants {
		if d.onload == "" {
			d.onload = v.Acceleration.OnloadSettings().ResourceName
		}
		if v.Network.Type.Attached() && v.Network.NetworkRef() != nil {
			namespace, name := pods.NetworkName(d.like, v)
			d.networks = append(d.networks, namespace+"/"+name)
		}
	}
	slices.Sort(d.networks)
	d.networks = slices.Compact(d.networks)
	return nil
}

func (d *doctorCall) check() error {
	switch {
	case d.parallel < 1:
		return fmt.Errorf("--parallel: %d is invalid; give 1 or more", d.parallel)
	case d.timeout < leastTimeout:
		return fmt.Errorf("--timeout: no pod can finish in %s; give %s or more", d.timeout, leastTimeout)
	case d.onload != "" && (!strings.Contains(d.onload, "/") || len(validation.IsQualifiedName(d.onload)) > 0):
		return fmt.Errorf("--onload: %q is not a name of an extended resource, such as amd.com/onload", d.onload)
	}
	for _, network := range d.networks {
		namespace, name, qualified := strings.Cut(network, "/")
		if !qualified {
			namespace, name = "default", network
		}
		if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf("--network: %q is not a [NAMESPACE/]NAME of a NetworkAttachmentDefinition", network)
		}
	}
	return nil
}

func (d *doctorCall) run(ctx context.Context, stdout io.Writer, out, progress *screen) error {
	if err := d.check(); err != nil {
		return err
	}
	api, namespace, err := d.client()
	if err != nil {
		return err
	}
	d.api, d.podNamespace, d.call = api, cmp.Or(d.like.Namespace, namespace), rand.String(8)
	observed, err := d.observe(ctx)
	if err != nil {
		return err
	}
	if err := d.inspect(ctx, &observed, progress); err != nil {
		return err
	}
	diagnosis := doctor.Diagnose(observed)
	if d.form == "json" {
		err = report.WriteJSON(stdout, diagnosis)
	} else {
		err = emit(stdout, diagnosis.Table(d.form == "wide", out.paint), nil)
	}
	if err != nil {
		return err
	}
	if code := doctorCodes[diagnosis.Result]; code != exitPass {
		return ended{code: code}
	}
	return nil
}

var doctorCodes = map[doctor.Level]int{
	doctor.Good: exitPass, doctor.Error: exitFail, doctor.Warning: exitInconclusive, doctor.Unknown: exitError,
}

func (s *screen) paint(l doctor.Level, word string) string {
	if !s.colored {
		return word
	}
	return string(map[doctor.Level]color{doctor.Error: red, doctor.Unknown: yellow, doctor.Warning: yellow, doctor.Good: green}[l]) + word + colorOff
}

var errInterrupted = errors.New("interrupted; the inspect pods are removed")
