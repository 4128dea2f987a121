package report

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Table writes a benchmark's results for people: what was measured on what, a line for each cell, and what
// limits the numbers.
func Table(w io.Writer, b *v1alpha1.LatencyBenchmark) error {
	fmt.Fprintf(w, "%s/%s: %s, network %s, %s\n", b.Namespace, b.Name, b.Spec.Tool, network(b.Spec.Network), b.Spec.LatencyType)
	for _, e := range b.Status.Endpoints {
		fmt.Fprintf(w, "  %s on %s: CPU %d (of its own: %s; NUMA node %s), %s %s mtu %d driver %s%s, kernel %s\n", e.Role, e.Node, e.MeasuringCPU, e.CPUs, numa(e.CPUNUMANode),
			e.Interface, e.Address, e.MTU, orDash(e.Driver), device(e), e.Kernel)
	}
	if len(b.Status.Results) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "  CELL\tROUNDS\tSAMPLES\tLOST\tMIN\tMEAN\tP50\tP90\tP99\tP99.9\tP99.99\tP99.999\tMAX\tSTDDEV\t")
		for _, r := range b.Status.Results {
			fmt.Fprintf(t, "  %s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Name, r.Rounds, r.Samples, r.Lost,
				stats.FormatLatency(r.MinNanoseconds), stats.FormatLatency(r.MeanNanoseconds),
				percentile(stats.P50, r.P50Nanoseconds), percentile(stats.P90, r.P90Nanoseconds), percentile(stats.P99, r.P99Nanoseconds),
				percentile(stats.P999, r.P999Nanoseconds), percentile(stats.P9999, r.P9999Nanoseconds), percentile(stats.P99999, r.P99999Nanoseconds),
				stats.FormatLatency(r.MaxNanoseconds), stats.FormatLatency(r.StddevNanoseconds))
		}
		if err := t.Flush(); err != nil {
			return fmt.Errorf("writing the table: %w", err)
		}
	}
	for _, warning := range b.Status.Warnings {
		fmt.Fprintf(w, "  %s: %s\n", warning.Reason, warning.Message)
	}
	return nil
}

// percentile shows a percentile, or how many samples it would need.
func percentile(p stats.Percentile, ns *int64) string {
	if ns == nil {
		return fmt.Sprintf("needs %d", p.Needs())
	}
	return stats.FormatLatency(*ns)
}

func network(n v1alpha1.Network) string {
	if n.NetworkRef == nil {
		return string(n.Type)
	}
	if n.ResourceName == "" {
		return fmt.Sprintf("%s %s", n.Type, n.NetworkRef.Name)
	}
	return fmt.Sprintf("%s %s (%s)", n.Type, n.NetworkRef.Name, n.ResourceName)
}

func device(e v1alpha1.Endpoint) string {
	if e.PCIAddress == "" {
		return ""
	}
	return fmt.Sprintf(" at %s (NUMA node %s)", e.PCIAddress, numa(e.DeviceNUMANode))
}

func numa(n int32) string {
	if n < 0 {
		return "unknown"
	}
	return fmt.Sprint(n)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
