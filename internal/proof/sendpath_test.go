package proof

import (
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// The names are those of the sfc driver (efx_ef10_stat_desc in ef10.c). The good run sends 2000 messages.
func TestSendPath(t *testing.T) {
	counts := func(counted ...any) func(*result.Evidence) {
		return func(e *result.Evidence) {
			e.Facts["nic.pci-id"], e.Facts["env.EF_CTPIO_SWITCH_BYPASS"] = "1924:1b03", "1"
			for i := 0; i < len(counted); i += 2 {
				e.Deltas["nic."+counted[i].(string)] = int64(counted[i+1].(int))
			}
		}
	}
	withoutBypass := func(set func(*result.Evidence)) func(*result.Evidence) {
		return func(e *result.Evidence) {
			set(e)
			delete(e.Facts, "env.EF_CTPIO_SWITCH_BYPASS")
		}
	}
	const bypass = "; full-feature firmware, and EF_CTPIO_SWITCH_BYPASS is not 1"
	for name, c := range map[string]struct {
		change func(*result.Evidence)
		want   string
	}{
		"all by CTPIO": {
			counts("ctpio_success", 2150, "ctpio_fallback", 3, "ctpio_poison", 0, "ctpio_erase", 0, "ctpio_underflow_fail", 0),
			"CTPIO, if no other program used the port: the port counted ctpio_success 2150, ctpio_fallback 3, ctpio_poison 0, of 2000 messages",
		},
		"some by CTPIO": {
			counts("ctpio_success", 500, "ctpio_fallback", 1500, "ctpio_poison", 7),
			"at most 25 % by CTPIO: the port counted ctpio_success 500, ctpio_fallback 1500, ctpio_poison 7, of 2000 messages",
		},
		"just enough by CTPIO": {
			counts("ctpio_success", 1900), "CTPIO, if no other program used the port: the port counted ctpio_success 1900, of 2000 messages",
		},
		"one less": {
			counts("ctpio_success", 1899), "at most 95 % by CTPIO: the port counted ctpio_success 1899, of 2000 messages",
		},
		"none with the bypass, as with EF_CTPIO=0": {
			counts("ctpio_success", 0, "ctpio_fallback", 0, "ctpio_poison", 0), "no CTPIO: the port counted ctpio_success 0, ctpio_fallback 0, ctpio_poison 0, of 2000 messages",
		},
		"none without the bypass": {
			withoutBypass(counts("ctpio_success", 0, "ctpio_fallback", 0, "ctpio_poison", 0)),
			"no CTPIO: the port counted ctpio_success 0, ctpio_fallback 0, ctpio_poison 0, of 2000 messages" + bypass,
		},
		"another program's, without the bypass": {
			withoutBypass(counts("ctpio_success", 9000)), "CTPIO, if no other program used the port: the port counted ctpio_success 9000, of 2000 messages" + bypass,
		},
		"an X4 that uses Express": {
			func(e *result.Evidence) {
				e.Facts["nic.pci-id"] = "1924:0c03"
				e.Deltas["nic.exp_ctpio_packets"], e.Deltas["nic.exp_ctpio_underflow_packets"] = 2001, 4
			},
			"CTPIO, if no other program used the port: the port counted exp_ctpio_packets 2001, exp_ctpio_underflow_packets 4, of 2000 messages",
		},
		"no counters":                     {func(*result.Evidence) {}, "not known: the driver shows no counters of CTPIO"},
		"no counters, without the bypass": {withoutBypass(counts()), "not known: the driver shows no counters of CTPIO" + bypass},
		"ultra-low-latency needs no bypass": {
			func(e *result.Evidence) {
				withoutBypass(counts("ctpio_success", 2000))(e)
				e.Facts["nic.firmware-variant"] = "ultra-low-latency"
			},
			"CTPIO, if no other program used the port: the port counted ctpio_success 2000, of 2000 messages",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := good(withOnload, own(c.change))
			client, _ := Endpoints(w.spec, w.variant(), w.run)
			for _, l := range client {
				if l.Check == v1alpha1.ProofSendPath {
					if l.Found != c.want || l.State != v1alpha1.ProofNoted {
						t.Errorf("%s %q, want %q", l.State, l.Found, c.want)
					}
					return
				}
			}
			t.Error("there is no such line")
		})
	}
	w := good()
	if client, _ := Endpoints(w.spec, w.variant(), w.run); len(client) == 0 {
		t.Error("no lines")
	} else {
		for _, l := range client {
			if l.Check == v1alpha1.ProofSendPath {
				t.Errorf("the kernel has the line %+v", l)
			}
		}
	}
}

// The number of messages of a TCP stream is not known.
func TestSendPathOfStream(t *testing.T) {
	w := good(withOnload, own(func(e *result.Evidence) { e.Deltas["nic.ctpio_success"] = 5 }))
	w.run.Client.Cells = w.run.Client.Cells[:1]
	w.run.Client.Cells[0].Stream = true
	if got := sendPath(endpoints(w.spec, w.variant(), w.run)[0]).found; got != "some CTPIO: the port counted ctpio_success 5" {
		t.Errorf("got %q", got)
	}
}
