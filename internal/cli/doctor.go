package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/internal/doctor"
)

// newDoctor is the verb that looks whether a cluster is fit.
func newDoctor(c *cluster) *cobra.Command {
	d := &doctorCall{cluster: c}
	cmd := &cobra.Command{
		Use:   "doctor [NODE...]",
		Short: "Look whether the cluster is fit for latency work",
		Long: "Look whether the cluster, or some of its nodes, are fit for latency work. Short unprivileged pods in the namespace see\n" +
			"on each node what benchmarks would get there: a CPU to itself, networks with their devices, Onload. Each line is\n" +
			"good, doubtful or wrong, or unknown where nobody could look; docs/doctor.md has all of them. The pods are gone when\n" +
			"the command ends, also when it is interrupted.\n\n" +
			"Without names all nodes are looked at but those whose taints keep pods away. A named node's taints are tolerated.\n\n" +
			"It exits with 0 when all is good, 1 when something is wrong, 2 when nothing is wrong or unknown but something\n" +
			"doubtful, and 3 when nothing is wrong but something could not be looked at, or the input is bad.",
		Example: "  " + name + " doctor\n" +
			"  " + name + " doctor worker-1 worker-2 --network sriov/sf-vf -o json",
		Annotations:       map[string]string{exitsByVerdict: "yes"},
		ValidArgsFunction: d.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			d.nodes = args
			return d.run(cmd.Context(), cmd.OutOrStdout(), newScreen(cmd.OutOrStdout()), newScreen(cmd.ErrOrStderr()))
		},
	}
	cmd.Flags().StringVar(&d.image, "image", "", "bench image of the pods; empty: that of the manager")
	cmd.Flags().StringArrayVar(&d.networks, "network", nil,
		"[NAMESPACE/]NAME of a NetworkAttachmentDefinition to try, several times for several; none: those of the namespace")
	cmd.Flags().StringVar(&d.onload, "onload", "", "resource of Onload's devices to try; empty: amd.com/onload, if a node has it")
	cmd.Flags().IntVar(&d.parallel, "parallel", 8, "how many nodes are looked at at the same time")
	cmd.Flags().DurationVar(&d.timeout, "timeout", 2*time.Minute, "how long each pod may take, with the pull of its image")
	cmd.Flags().StringVarP(&d.form, "output", "o", doctorForms[0], "format: "+strings.Join(doctorForms, ", "))
	completeFlag(cmd, "output", doctorForms...)
	return cmd
}

// doctorForms are the layouts of a report.
var doctorForms = []string{"table", "json", "yaml"}

// leastTimeout is less than any pod needs.
const leastTimeout = 5 * time.Second

// doctorCall is a call of the verb.
type doctorCall struct {
	*cluster
	nodes, networks     []string
	image, onload, form string
	parallel            int
	timeout             time.Duration
}

// check refuses bad input.
func (d *doctorCall) check() error {
	switch {
	case !slices.Contains(doctorForms, d.form):
		return fmt.Errorf("--output: unknown format %q; known are %s", d.form, strings.Join(doctorForms, ", "))
	case d.parallel < 1:
		return fmt.Errorf("--parallel: %d nodes at the same time are none", d.parallel)
	case d.timeout < leastTimeout:
		return fmt.Errorf("--timeout: no pod comes to its end in %s; give it %s or more", d.timeout, leastTimeout)
	case d.onload != "" && (!strings.Contains(d.onload, "/") || len(validation.IsQualifiedName(d.onload)) > 0):
		return fmt.Errorf("--onload: %q is no name of an extended resource, such as amd.com/onload", d.onload)
	}
	for _, network := range d.networks {
		namespace, name, qualified := strings.Cut(network, "/")
		if !qualified {
			namespace, name = "default", network
		}
		if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf("--network: %q is no [NAMESPACE/]NAME of a NetworkAttachmentDefinition", network)
		}
	}
	return nil
}

// run looks, and prints what it found.
func (d *doctorCall) run(ctx context.Context, stdout io.Writer, out, progress *screen) error {
	if err := d.check(); err != nil {
		return err
	}
	api, namespace, err := d.client()
	if err != nil {
		return err
	}
	observed, image, err := d.observe(ctx, api, namespace)
	if err != nil {
		return err
	}
	inspectors, err := d.inspectors(api, namespace, image)
	if err != nil {
		return err
	}
	if err := inspectors.inspect(ctx, &observed, progress); err != nil {
		return err
	}
	report := doctor.Diagnose(observed)
	text, err := d.text(report, out)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, text); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if code := doctorCode(report.Result); code != exitPass {
		return ended{code: code}
	}
	return nil
}

// doctorCode is the exit code of a report.
func doctorCode(result doctor.Level) int {
	switch result {
	case doctor.Wrong:
		return exitFail
	case doctor.Doubtful:
		return exitInconclusive
	case doctor.Unknown:
		return exitError
	}
	return exitPass
}

// text is the report in the format that was asked for.
func (d *doctorCall) text(r doctor.Report, out *screen) (string, error) {
	if d.form == "table" {
		if !out.colored {
			return r.Table(nil), nil
		}
		return r.Table(func(l doctor.Level, word string) string {
			return string(map[doctor.Level]color{doctor.Wrong: red, doctor.Unknown: yellow, doctor.Doubtful: yellow, doctor.Good: green}[l]) + word + colorOff
		}), nil
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err == nil && d.form == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return "", fmt.Errorf("encoding the report: %w", err)
	}
	return strings.TrimSuffix(string(data), "\n") + "\n", nil
}

// errInterrupted is told when the user did not wait for the end.
var errInterrupted = errors.New("interrupted; the inspect pods are removed")
