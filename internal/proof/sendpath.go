package proof

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// x2 are the PCI IDs of a Solarflare X2: of its PFs and of its VFs.
var x2 = []string{"1924:0b03", "1924:1b03"}

// NeedsBypass reports whether an interface is an X2's with full-feature firmware, where Onload
// sends by CTPIO only with EF_CTPIO_SWITCH_BYPASS=1 (should_try_ctpio in its
// tcp_helper_resource.c). Older series have no CTPIO. On an X4, Express sends by CTPIO only,
// Enterprise never.
func NeedsBypass(facts map[string]string) bool {
	return facts["nic.firmware-variant"] == "full-feature" && slices.Contains(x2, facts["nic.pci-id"])
}

// The driver's statistics of sends by CTPIO: of an X2, and of the Express datapath of an X4.
var (
	ctpioSent    = []string{"ctpio_success", "exp_ctpio_packets"}
	ctpioCounted = []string{"ctpio_success", "ctpio_fallback", "ctpio_poison", "exp_ctpio_packets", "exp_ctpio_underflow_packets"}
)

// sendPath notes, with Onload, what the driver counted of CTPIO. The counters are those of the port, so that other programs can make the
// share of CTPIO look larger, never smaller.
func sendPath(e endpoint) finding {
	if e.variant.Acceleration.Type != v1alpha1.AccelerationOnload {
		return finding{}
	}
	var counted []string
	var byCTPIO, messages int64
	for _, name := range ctpioCounted {
		n, ok := e.own.Deltas["nic."+name]
		if !ok {
			continue
		}
		counted = append(counted, fmt.Sprintf("%s %d", name, n))
		if slices.Contains(ctpioSent, name) {
			byCTPIO += n
		}
	}
	for _, c := range e.cells {
		_, out := loads(c, e.role)
		messages += out.messages
	}
	why := ""
	if NeedsBypass(e.own.Facts) && e.own.Facts["env.EF_CTPIO_SWITCH_BYPASS"] != "1" {
		why = "; full-feature firmware, and EF_CTPIO_SWITCH_BYPASS is not 1"
	}
	if len(counted) == 0 {
		return noted(notKnown + ": the driver shows no counters of CTPIO" + why)
	}
	way, of := "CTPIO, if no other program used the port", fmt.Sprintf(", of %d messages", messages)
	switch share := float64(byCTPIO) / float64(max(1, messages)); {
	case messages == 0: // a TCP stream
		way, of = "some CTPIO", ""
	case share < leastThrough:
		way = fmt.Sprintf("at most %.0f %% by CTPIO", 100*share)
	}
	if byCTPIO == 0 {
		way = "no CTPIO"
	}
	return noted(fmt.Sprintf("%s: the port counted %s%s%s", way, strings.Join(counted, ", "), of, why))
}
