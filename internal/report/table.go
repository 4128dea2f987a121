package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Table writes a benchmark's results for people: what was measured on what, a line for each cell, what limits the
// numbers, and what the gate says of them.
func Table(w io.Writer, b *v1alpha1.LatencyBenchmark) error {
	fmt.Fprintf(w, "%s/%s: %s, %s\n", b.Namespace, b.Name, b.Spec.Tool, b.Spec.LatencyType)
	for _, v := range plan.Variants(b.Spec) {
		fmt.Fprintf(w, "  variant %s: network %s, %s%s\n", v.Name, network(*v.Network), strings.ToLower(string(v.Wait)), muxer(v.Muxer))
		for _, e := range b.Status.Endpoints {
			if e.Variant != v.Name {
				continue
			}
			fmt.Fprintf(w, "    %s on %s: CPU %d (of its own: %s; NUMA node %s), %s %s mtu %d driver %s%s, kernel %s\n", e.Role, e.Node, e.MeasuringCPU, e.CPUs, numa(e.CPUNUMANode),
				e.Interface, e.Address, e.MTU, orDash(e.Driver), device(e), e.Kernel)
		}
	}
	if err := latencies(w, b.Status.Results); err != nil {
		return err
	}
	if err := bandwidths(w, b.Status.Results); err != nil {
		return err
	}
	for _, r := range b.Status.Results {
		if r.Outliers != "" {
			fmt.Fprintf(w, "  %s: %s\n", label(r), r.Outliers)
		}
	}
	for _, warning := range b.Status.Warnings {
		fmt.Fprintf(w, "  %s: %s\n", warning.Reason, warning.Message)
	}
	verdict(w, b.Status.Verdict)
	return nil
}

// verdict has a line for the whole and one for each rule, with the numbers that made it.
func verdict(w io.Writer, v *v1alpha1.Verdict) {
	if v == nil {
		return
	}
	fmt.Fprintf(w, "  verdict %s\n", v.Outcome)
	for _, r := range v.Rules {
		fmt.Fprintf(w, "    %s: %s (%s)\n", r.Rule, r.Message, r.Reason)
	}
}

// latencies has a line for each cell that was answered.
func latencies(w io.Writer, results []v1alpha1.CellResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	header := "  VARIANT\tCELL\tROUNDS\tSAMPLES\tLOST\tMIN\tMEAN\t"
	for _, p := range Percentiles() {
		header += strings.ToUpper(string(p)) + "\t"
	}
	any := false
	for _, r := range results {
		if r.LatencyType == "" {
			continue
		}
		if !any {
			fmt.Fprintln(t, header+"MAX\tSTDDEV\t")
			any = true
		}
		fmt.Fprintf(t, "  %s\t%s\t%d\t%d\t%d\t%s\t%s\t", r.Variant, r.Name, r.Rounds, r.Samples, r.Lost, orEmpty(r.MinNanoseconds), orEmpty(r.MeanNanoseconds))
		for _, p := range Percentiles() {
			fmt.Fprintf(t, "%s\t", percentile(r, p, stats.FormatLatency))
		}
		fmt.Fprintf(t, "%s\t%s\t\n", orEmpty(r.MaxNanoseconds), orEmpty(r.StddevNanoseconds))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the latencies: %w", err)
	}
	return nil
}

// bandwidths has a line for each cell that streamed.
func bandwidths(w io.Writer, results []v1alpha1.CellResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	any := false
	for _, r := range results {
		b := r.Bandwidth
		if b == nil {
			continue
		}
		if !any {
			fmt.Fprintln(t, "  VARIANT\tCELL\tROUNDS\tBANDWIDTH\tLOWEST\tHIGHEST\tSENT\tLOST\tRETRANSMITS\t")
			any = true
		}
		retransmits := "-"
		if b.Retransmits != nil {
			retransmits = fmt.Sprint(*b.Retransmits)
		}
		fmt.Fprintf(t, "  %s\t%s\t%d\t%s\t%s\t%s\t%s\t%d\t%s\t\n", r.Variant, r.Name, r.Rounds, stats.FormatBitRate(b.BitsPerSecond), stats.FormatBitRate(b.MinBitsPerSecond),
			stats.FormatBitRate(b.MaxBitsPerSecond), stats.FormatBitRate(b.SentBitsPerSecond), r.Lost, retransmits)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the bandwidths: %w", err)
	}
	return nil
}

// percentile shows a percentile in a format, or why there is none.
func percentile(r v1alpha1.CellResult, name v1alpha1.Percentile, format func(ns int64) string) string {
	p, _ := stats.Named(string(name))
	switch ns := *PercentileOf(&r, name); {
	case ns != nil:
		return format(*ns)
	case isLost(r, name):
		return "lost"
	case r.StepNanoseconds > 0:
		return "-"
	default:
		return fmt.Sprintf("needs %d", p.Needs())
	}
}

func orEmpty(ns *int64) string {
	if ns == nil {
		return "-"
	}
	return stats.FormatLatency(*ns)
}

func muxer(m v1alpha1.Muxer) string {
	if m == v1alpha1.MuxerNone {
		return ""
	}
	return " with " + strings.ToLower(string(m))
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
