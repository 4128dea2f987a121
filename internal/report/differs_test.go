package report

import (
	"testing"

	"github.com/tailgate-dev/tailgate/internal/result"
)

func TestDiffers(t *testing.T) {
	cases := map[string]struct {
		change func(*result.Evidence)
		want   string
	}{
		"equal conditions": {change: func(*result.Evidence) {}},
		"fresh pods": {
			change: func(e *result.Evidence) {
				e.Address, e.PCIAddress, e.MeasuringCPU, e.CPUsAllowed = "192.0.2.7", "0000:3b:02.5", 5, "5"
			},
		},
		"a boot in between": {
			change: func(e *result.Evidence) { e.BootID = "boot-c" },
			want:   `kernel.boot-id "boot-a", then "boot-c"`,
		},
		"a fact that appeared": {
			change: func(e *result.Evidence) { e.Facts["cpu.governor"], e.Facts["mm.ksm"] = "powersave", "1" },
			want:   `cpu.governor absent, then "powersave"`,
		},
		"many": {
			change: func(e *result.Evidence) {
				e.Node, e.Kernel, e.MTU, e.Driver, e.BootID = "b", "6.2.0", 9000, "ice", "boot-c"
			},
			want: `kernel.release "6.1.0", then "6.2.0"; nic.driver "sfc", then "ice"; nic.mtu "1500", then "9000"; and 2 more`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			first, second := result.Document{Evidence: evidence("a", "boot-a")}, result.Document{Evidence: evidence("a", "boot-a")}
			c.change(&second.Evidence)
			if got := result.Unequal(first, second, result.Difference.BetweenRounds); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
