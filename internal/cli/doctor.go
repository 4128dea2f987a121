package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/internal/doctor"
)

// newDoctor returns the verb that checks whether a cluster is suitable for latency measurements.
func newDoctor(c *cluster) *cobra.Command {
	d := &doctorCall{cluster: c}
	cmd := &cobra.Command{
		Use:   "doctor [NODE...]",
		Short: "Check whether the cluster is suitable for latency measurements",
		Long: "Check whether the cluster, or some of its nodes, are suitable for latency measurements. On each node, short-lived\n" +
			"unprivileged pods check the resources that benchmarks would get: an exclusive CPU, networks with their devices, Onload.\n" +
			"The level of each check is good, warning, error, or unknown if the check was not possible; docs/doctor.md describes all\n" +
			"checks. The findings come first, then a line for each node; -o wide also shows the checks without findings. The command\n" +
			"deletes the pods before it ends, also if you interrupt it.\n\n" +
			"Without names, it checks all nodes except those whose taints keep pods away. It tolerates the taints of a named node.\n\n" +
			"The exit code is 0 if there are no findings, 1 if there is an error, 3 if there is no error but a check was not possible\n" +
			"or the input is invalid, and 2 if there are only warnings.",
		Example: "  " + name + " doctor\n" +
			"  " + name + " doctor worker-1 worker-2 --network sriov/sf-vf -o json",
		Annotations:       map[string]string{exitsByVerdict: "yes", removesPods: "yes"},
		ValidArgsFunction: d.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			d.nodes = args
			return d.run(cmd.Context(), cmd.OutOrStdout(), newScreen(cmd.OutOrStdout()), newScreen(cmd.ErrOrStderr()))
		},
	}
	cmd.Flags().StringVar(&d.image, "image", "", "bench image of the pods; default: that of the manager")
	cmd.Flags().StringArrayVar(&d.networks, "network", nil,
		"NetworkAttachmentDefinition to try, [NAMESPACE/]NAME; may be repeated; default: those of the namespace")
	cmd.Flags().StringVar(&d.onload, "onload", "", "resource of Onload's devices to try; default: amd.com/onload, if a node has it")
	cmd.Flags().IntVar(&d.parallel, "parallel", 8, "number of nodes to check at the same time")
	cmd.Flags().DurationVar(&d.timeout, "timeout", 2*time.Minute, "time limit of each pod, including the pull of its image")
	cmd.Flags().StringVarP(&d.form, "output", "o", doctorForms[0], "format: "+strings.Join(doctorForms, ", "))
	completeFlag(cmd, "output", doctorForms...)
	return cmd
}

// doctorForms are the formats of a report.
var doctorForms = []string{"table", "wide", "json", "yaml"}

// leastTimeout is less than any pod needs.
const leastTimeout = 5 * time.Second

// doctorCall is an invocation of the verb.
type doctorCall struct {
	*cluster
	nodes, networks     []string
	image, onload, form string
	parallel            int
	timeout             time.Duration
}

// check returns an error for invalid input.
func (d *doctorCall) check() error {
	if err := oneOf("--output", d.form, doctorForms); err != nil {
		return err
	}
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

// run checks the cluster and prints the report.
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
	if err := emit(stdout, text, err); err != nil {
		return err
	}
	if code := doctorCode(report.Result); code != exitPass {
		return ended{code: code}
	}
	return nil
}

// doctorCode returns the exit code of a report.
func doctorCode(result doctor.Level) int {
	switch result {
	case doctor.Error:
		return exitFail
	case doctor.Warning:
		return exitInconclusive
	case doctor.Unknown:
		return exitError
	}
	return exitPass
}

// text returns the report in the requested format.
func (d *doctorCall) text(r doctor.Report, out *screen) (string, error) {
	if d.form != "table" && d.form != "wide" {
		return structured(d.form, r)
	}
	var paint func(doctor.Level, string) string
	if out.colored {
		paint = func(l doctor.Level, word string) string {
			return string(map[doctor.Level]color{doctor.Error: red, doctor.Unknown: yellow, doctor.Warning: yellow, doctor.Good: green}[l]) + word + colorOff
		}
	}
	return r.Table(d.form == "wide", paint), nil
}

// structured returns a value as JSON or YAML, with a line break at its end.
func structured(form string, value any) (string, error) {
	data, err := json.MarshalIndent(value, "", "  ")
	if err == nil && form == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return "", fmt.Errorf("encoding as %s: %w", form, err)
	}
	return strings.TrimSuffix(string(data), "\n") + "\n", nil
}

// errInterrupted is returned when the user interrupts the command.
var errInterrupted = errors.New("interrupted; the inspect pods are removed")
