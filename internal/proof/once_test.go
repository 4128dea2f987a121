package proof

import (
	"slices"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// A tool whose messages have no numbers is proved only if as many datagrams arrived as were sent, by the counters of both ends.
func TestMessagesOnce(t *testing.T) {
	of := func(tool v1alpha1.Tool) func(*world) {
		return func(w *world) {
			for i := range w.run.Client.Cells {
				w.run.Client.Cells[i].Tool = string(tool)
			}
		}
	}
	// grow adds to a counter of an end's last cell, udp-64.
	grow := func(e func(*world) *result.Evidence, name string, by int64) func(*world) {
		return func(w *world) { e(w).Paths[1].Grown[name] += by }
	}
	forget := func(e func(*world) *result.Evidence, name string) func(*world) {
		return func(w *world) { delete(e(w).Paths[1].Grown, name) }
	}
	client, server := (*world).client, (*world).server
	for name, c := range map[string]struct {
		change []func(*world)
		want   [2]v1alpha1.ProofState // the client's and the server's
		found  string
	}{
		"as many as were sent":            {nil, [2]v1alpha1.ProofState{"Proved", "Proved"}, "udp-64: 1000 datagrams arrived, as many as the other end sent"},
		"netperf":                         {[]func(*world){of(v1alpha1.ToolNetperf)}, [2]v1alpha1.ProofState{"Proved", "Proved"}, ""},
		"messages with numbers":           {[]func(*world){of(v1alpha1.ToolPinger), grow(client, result.PathDelivered, 1)}, [2]v1alpha1.ProofState{}, ""},
		"an answer twice":                 {[]func(*world){grow(client, result.PathDelivered, 1)}, [2]v1alpha1.ProofState{"Failed", "Proved"}, "1001 datagrams arrived, and the other end sent 1000"},
		"a message twice":                 {[]func(*world){grow(server, result.PathDelivered, 1)}, [2]v1alpha1.ProofState{"Proved", "Failed"}, ""},
		"a packet of another protocol":    {[]func(*world){grow(client, result.PathDelivered, 1), grow(client, result.PathDeliveredOther, 1)}, [2]v1alpha1.ProofState{"Proved", "Proved"}, ""},
		"a broadcast":                     {[]func(*world){grow(client, result.PathDelivered, 1), grow(client, result.PathDeliveredAll, 1)}, [2]v1alpha1.ProofState{"Proved", "Proved"}, ""},
		"one is missing":                  {[]func(*world){grow(server, result.PathUDPOut, 1)}, [2]v1alpha1.ProofState{"Unknown", "Proved"}, "1 of 1001 datagrams did not arrive"},
		"no counter here":                 {[]func(*world){forget(client, result.PathDelivered)}, [2]v1alpha1.ProofState{"Unknown", "Proved"}, "could not be read"},
		"no counter at the other end":     {[]func(*world){forget(server, result.PathUDPOut)}, [2]v1alpha1.ProofState{"Unknown", "Proved"}, "could not be read"},
		"messages that bypass the kernel": {[]func(*world){withOnload, of(v1alpha1.ToolSfntPingpong)}, [2]v1alpha1.ProofState{"Unknown", "Unknown"}, "the others bypassed its counters"},
		"the host's network":              {[]func(*world){hostNIC}, [2]v1alpha1.ProofState{"Unknown", "Unknown"}, "those of all its processes"},
		"a multicast cell, whose messages are for a group": {[]func(*world){
			func(w *world) { w.run.Client.Cells[1].Protocol = v1alpha1.ProtocolMulticast },
			grow(client, result.PathDeliveredAll, 1000), grow(server, result.PathDeliveredAll, 1000),
		}, [2]v1alpha1.ProofState{"Proved", "Proved"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := good(append([]func(*world){of(v1alpha1.ToolSfntPingpong)}, c.change...)...)
			found := ""
			for i, e := range endpoints(w.spec, w.variant(), w.run) {
				f := messagesOnce(e)
				if f.state != c.want[i] {
					t.Errorf("%s is %q, want %q: %s", e.role, f.state, c.want[i], f.found)
				}
				found += f.found
			}
			blocks := slices.ContainsFunc(Warnings(w.spec, w.variant(), w.run), func(of Warning) bool {
				return of.Reason == v1alpha1.WarningMessagesRepeated && of.Blocks
			})
			if proved := [2]v1alpha1.ProofState{"Proved", "Proved"}; blocks != (c.want != proved && c.want != [2]v1alpha1.ProofState{}) {
				t.Errorf("it prevents a verdict: %t", blocks)
			}
			if !strings.Contains(found, c.found) {
				t.Errorf("found %q, not %q", found, c.found)
			}
		})
	}
}
