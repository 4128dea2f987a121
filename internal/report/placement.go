package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

// foundWidth is the width, in characters, of the column of an endpoint: a check and two endpoints fit into 120 columns.
const foundWidth = 36

// placements writes a line for each variant: where it was measured, and whether the placement is as requested. Variants
// whose placement is not verified, or all variants if all is true, also have a table with every check of both endpoints.
func placements(w io.Writer, variants []v1alpha1.Variant, endpoints []v1alpha1.Endpoint, all bool) error {
	separator := "\n"
	for _, v := range variants {
		own, client, server := Ends(endpoints, v.Name)
		if len(own) == 0 {
			continue
		}
		heading := fmt.Sprintf("PLACEMENT of variant %s (%s): %s", v.Name, Ways(v), summary.Placement(own))
		if !all && summary.Placement(own) == v1alpha1.PlacementVerified {
			fmt.Fprintf(w, "%s%s, %s\n", separator, heading, checked(client, server))
			separator = ""
			continue
		}
		fmt.Fprintf(w, "\n%s\n", heading)
		separator = "\n"
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		rows := []placementRow{{state: "STATE", client: "CLIENT", server: "SERVER"}}
		for _, f := range Facts(client, server) {
			rows = append(rows, placementRow{name: f.Name, client: f.Client, server: f.Server})
		}
		for _, r := range append(rows, checkRows(client, server)...) {
			r.write(t)
		}
		if err := t.Flush(); err != nil {
			return fmt.Errorf("writing the placement of %s: %w", v.Name, err)
		}
	}
	return nil
}

// Ends returns the endpoints of a variant: all of them, and the client and the server.
func Ends(endpoints []v1alpha1.Endpoint, variant string) (own []v1alpha1.Endpoint, client, server v1alpha1.Endpoint) {
	for _, e := range endpoints {
		if e.Variant != variant {
			continue
		}
		if own = append(own, e); e.Role == v1alpha1.RoleClient {
			client = e
		} else {
			server = e
		}
	}
	return own, client, server
}

// checked summarizes in one line how many checks of verified endpoints were proved, and on which CPUs they measured.
func checked(client, server v1alpha1.Endpoint) string {
	proved := 0
	for _, line := range slices.Concat(client.Proof, server.Proof) {
		if line.State == v1alpha1.ProofProved {
			proved++
		}
	}
	return fmt.Sprintf("%d checks; %s CPU %d to %s CPU %d", proved, client.Node, client.MeasuringCPU, server.Node, server.MeasuringCPU)
}

// placementRow is a line of the table: what both endpoints report about one item.
type placementRow struct {
	mark, name, state, client, server string
}

// write writes the row and wraps text that does not fit into its column.
func (r placementRow) write(w io.Writer) {
	client, server := wrap(r.client, foundWidth), wrap(r.server, foundWidth)
	at := func(lines []string, i int) string {
		if i < len(lines) {
			return lines[i]
		}
		return ""
	}
	for i := range max(len(client), len(server)) {
		if i > 0 {
			r.mark, r.name, r.state = "", "", ""
		}
		fmt.Fprintf(w, "%1s %s\t%s\t%s\t%s\n", r.mark, r.name, r.state, at(client, i), at(server, i))
	}
}

// Fact is what both endpoints report about one property of their placement.
type Fact struct{ Name, Client, Server string }

// Facts returns the properties of the placement of both endpoints.
func Facts(client, server v1alpha1.Endpoint) []Fact {
	var all []Fact
	for _, fact := range []struct {
		name string
		of   func(v1alpha1.Endpoint) string
	}{
		{"node", func(e v1alpha1.Endpoint) string { return e.Node + ", kernel " + orDash(e.Kernel) }},
		{"CPU", func(e v1alpha1.Endpoint) string {
			return fmt.Sprintf("%d of %s, NUMA node %s", e.MeasuringCPU, orDash(e.CPUs), numa(e.CPUNUMANode))
		}},
		{"interface", func(e v1alpha1.Endpoint) string {
			return fmt.Sprintf("%s %s mtu %d driver %s", orDash(e.Interface), orDash(e.Address), e.MTU, orDash(e.Driver))
		}},
		{"device", func(e v1alpha1.Endpoint) string {
			if e.PCIAddress == "" {
				return "-"
			}
			return fmt.Sprintf("%s, NUMA node %s", e.PCIAddress, numa(e.DeviceNUMANode))
		}},
	} {
		all = append(all, Fact{fact.name, fact.of(client), fact.of(server)})
	}
	return all
}

// checkRows returns every check of the endpoints. Failed checks and then unknown ones come first, marked and with the
// expected value.
func checkRows(client, server v1alpha1.Endpoint) []placementRow {
	var failed, unknown, others []placementRow
	for _, c := range Checks(client.Proof, server.Proof) {
		r := placementRow{
			name: c.Name, state: string(cmp.Or(c.Client.State, c.Server.State)), client: orDash(c.Client.Found), server: orDash(c.Server.Found),
		}
		if c.Server.State != "" && r.state != string(c.Server.State) {
			r.state += ", " + string(c.Server.State)
		}
		expected := placementRow{name: "  expected", client: orDash(c.Client.Expected), server: orDash(c.Server.Expected)}
		switch {
		case c.Client.State == v1alpha1.ProofFailed || c.Server.State == v1alpha1.ProofFailed:
			r.mark = "!"
			failed = append(failed, r, expected)
		case c.Client.State == v1alpha1.ProofUnknown || c.Server.State == v1alpha1.ProofUnknown:
			r.mark = "?"
			unknown = append(unknown, r, expected)
		default:
			others = append(others, r)
		}
	}
	return slices.Concat(failed, unknown, others)
}

// Check holds what both endpoints report about one check; an endpoint without the check has no State.
type Check struct {
	Name           string
	Client, Server v1alpha1.ProofLine
}

// Checks returns the checks of both endpoints: first in the order of the client, then those that only the server has.
func Checks(client, server []v1alpha1.ProofLine) []Check {
	var all []Check
	at := func(name string) *Check {
		i := slices.IndexFunc(all, func(c Check) bool { return c.Name == name })
		if i < 0 {
			i, all = len(all), append(all, Check{Name: name})
		}
		return &all[i]
	}
	for _, line := range client {
		at(line.Check).Client = line
	}
	for _, line := range server {
		at(line.Check).Server = line
	}
	return all
}

// wrap breaks a text into lines of at most width characters, between words where possible. It returns at least one line.
func wrap(text string, width int) []string {
	lines := []string{""}
	length := 0
	for _, word := range strings.Fields(text) {
		letters := []rune(word)
		if length > 0 && length+1+len(letters) > width {
			lines, length = append(lines, ""), 0
		}
		if length > 0 {
			lines[len(lines)-1] += " "
			length++
		}
		for len(letters) > width {
			lines[len(lines)-1] = string(letters[:width])
			lines, letters = append(lines, ""), letters[width:]
		}
		lines[len(lines)-1] += string(letters)
		length += len(letters)
	}
	return lines
}
