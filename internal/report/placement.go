package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

const foundWidth = 36 // of an endpoint's column: with the check, two fit into 120 characters

// placements writes a line for each variant, or if unverified or all is true, both ends' checks.
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
		separator = "\n"
		lines := placementLines("", "", "STATE", "CLIENT", "SERVER")
		for _, f := range Facts(client, server) {
			lines = append(lines, placementLines("", f.Name, "", f.Client, f.Server)...)
		}
		for _, c := range Checks(client.Proof, server.Proof) {
			mark := [...]string{"!", "?", "", ""}[c.rank()]
			lines = append(lines, placementLines(mark, c.Name, c.state(), orDash(c.Client.Found), orDash(c.Server.Found))...)
			if c.Trouble() {
				lines = append(lines, placementLines("", "  expected", "", orDash(c.Client.Expected), orDash(c.Server.Expected))...)
			}
		}
		if err := writeColumns(w, heading, 0, "%s\n", lines); err != nil {
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

func checked(client, server v1alpha1.Endpoint) string {
	proved := slices.DeleteFunc(slices.Concat(client.Proof, server.Proof), func(l v1alpha1.ProofLine) bool { return l.State != v1alpha1.ProofProved })
	return fmt.Sprintf("%d checks; %s CPU %d to %s CPU %d", len(proved), client.Node, client.MeasuringCPU, server.Node, server.MeasuringCPU)
}

func placementLines(mark, name, state, client, server string) [][]string {
	left, right := wrap(client, foundWidth), wrap(server, foundWidth)
	height := max(len(left), len(right))
	left, right = append(left, make([]string, height-len(left))...), append(right, make([]string, height-len(right))...)
	var lines [][]string
	for i := range height {
		lines = append(lines, []string{fmt.Sprintf("%1s %s", mark, name), state, left[i], right[i]})
		mark, name, state = "", "", ""
	}
	return lines
}

// Fact is what both endpoints report about one property of their placement.
type Fact struct{ Name, Client, Server string }

func Facts(client, server v1alpha1.Endpoint) []Fact {
	of := func(e v1alpha1.Endpoint) [4]string {
		device := "-"
		if e.PCIAddress != "" {
			device = fmt.Sprintf("%s, NUMA node %s", e.PCIAddress, numa(e.DeviceNUMANode))
		}
		return [4]string{
			e.Node + ", kernel " + orDash(e.Kernel),
			fmt.Sprintf("%d of %s, NUMA node %s", e.MeasuringCPU, orDash(e.CPUs), numa(e.CPUNUMANode)),
			fmt.Sprintf("%s %s mtu %d driver %s", orDash(e.Interface), orDash(e.Address), e.MTU, orDash(e.Driver)),
			device,
		}
	}
	var all []Fact
	ofClient, ofServer := of(client), of(server)
	for i, name := range []string{"node", "CPU", "interface", "device"} {
		all = append(all, Fact{name, ofClient[i], ofServer[i]})
	}
	return all
}

// Check is both ends' report of one check; an end without it has no State.
type Check struct {
	Name           string
	Client, Server v1alpha1.ProofLine
}

// Checks returns both endpoints' checks: failed, unknown, proved, notes; each the client's first.
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
	slices.SortStableFunc(all, func(a, b Check) int { return cmp.Compare(a.rank(), b.rank()) })
	return all
}

func (c Check) rank() int {
	has := func(state v1alpha1.ProofState) bool { return c.Client.State == state || c.Server.State == state }
	switch {
	case has(v1alpha1.ProofFailed):
		return 0
	case has(v1alpha1.ProofUnknown):
		return 1
	case has(v1alpha1.ProofNoted):
		return 3
	}
	return 2
}

func (c Check) Trouble() bool { return c.rank() < 2 }

func (c Check) state() string {
	state := string(cmp.Or(c.Client.State, c.Server.State))
	if c.Server.State != "" && state != string(c.Server.State) {
		state += ", " + string(c.Server.State)
	}
	return state
}

func wrap(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := len(lines) - 1
		letters := []rune(strings.TrimPrefix(lines[last]+" "+word, " "))
		if len(letters) > width && lines[last] != "" {
			lines, letters = append(lines, ""), []rune(word)
		}
		for ; len(letters) > width; letters = letters[width:] {
			lines[len(lines)-1] = string(letters[:width])
			lines = append(lines, "")
		}
		lines[len(lines)-1] = string(letters)
	}
	return lines
}
