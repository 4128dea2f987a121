// Package sfnt is what the drivers of AMD's two tools (cns-sfnettest) have in common: options that both have, the
// header of their output, and what they say when they fail.
package sfnt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const (
	// MaxDatagram is the payload of the largest UDP datagram over IPv4.
	MaxDatagram = 65_507

	// hops is enough for any network of one cluster. The tools' own default is a single one, with which no message
	// gets beyond the first router.
	hops = "64"
)

// Environment keeps the tools from running date, uname, lspci and ethtool through a shell, each of which costs
// time on the measuring CPU. What they tell is in the evidence.
func Environment() []string { return []string{"SFNT_AVOID_FORK=1"} }

// muxers are the values of --muxer. Without a muxer both ends call recv.
var muxers = map[v1alpha1.Muxer]string{
	"": "", v1alpha1.MuxerNone: "",
	v1alpha1.MuxerSelect: "select", v1alpha1.MuxerPoll: "poll", v1alpha1.MuxerEpoll: "epoll",
}

// Validate says what neither of the tools can do, or nil.
func Validate(name v1alpha1.Tool, c tool.Cell) error {
	if _, ok := muxers[c.Muxer]; !ok {
		return fmt.Errorf("%s waits with None, Select, Poll or Epoll, not with %q", name, c.Muxer)
	}
	if w := c.Wait; w != "" && w != v1alpha1.WaitBlock && w != v1alpha1.WaitSpin {
		return fmt.Errorf("%s waits with Block or Spin, not with %q", name, w)
	}
	if c.Duration <= 0 || c.Warmup < 0 {
		return fmt.Errorf("%s cannot measure for %s after %s", name, c.Duration, c.Warmup)
	}
	return nil
}

// WaitOptions say how both ends wait for a message.
func WaitOptions(c tool.Cell) []string {
	var options []string
	if c.Spins() {
		options = append(options, "--spin")
	}
	if m := muxers[c.Muxer]; m != "" {
		options = append(options, "--muxer="+m)
	}
	return options
}

// PathOptions say how messages get to the other end. The client tells the server, too; where the two differ, its own
// value comes first. Each end joins a group on the interface that has its address. What the client sends to it keeps
// the tools' TTL of 1, as it is not meant for others beyond the subnet.
func PathOptions(c tool.Cell, t tool.Target) []string {
	switch c.Protocol {
	case v1alpha1.ProtocolUDP:
		return []string{"--ttl=" + hops}
	case v1alpha1.ProtocolMulticast:
		options := []string{"--ttl=1;" + hops, "--mcastintf=" + t.LocalAddress + ";" + t.Address}
		if c.MulticastGroup != "" {
			options = append(options, "--mcast="+c.MulticastGroup)
		}
		return options
	}
	return nil
}

// Cause is why a tool failed, in its words.
type Cause struct {
	// Says are parts of error lines, one of which is enough.
	Says []string
	// Why is the cause in our words, and what to do where that is known.
	Why string
}

// common are the causes that both tools know. The numbers are of errno.
var common = []Cause{
	{[]string{"Version mismatch", "Source Checksum mismatch"},
		"client and server are different builds; use one bench image on both nodes"},
	{[]string{"Failed to set CPU affinity"}, "it may not run on the CPU that it should use"},
	{[]string{"Could not open output file"}, "it cannot write its samples to the scratch volume"},
	{[]string{"failed to join"}, "it cannot join the multicast group on the interface of the measured network"},
	{[]string{"errno=(111 "}, "no server listened for 10s"},
	{[]string{"errno=(113 ", "errno=(101 "}, "there is no route to the server"},
	{[]string{"errno=(104 ", "errno=(32 ", "errno=(0 "}, "the server ended before the test did"},
}

// Explain turns exit code and ERROR lines into a failure. A tool's own causes go before those that both have.
func Explain(name v1alpha1.Tool, c tool.Cell, out tool.Output, own []Cause) error {
	said := errorLines(out.Stderr)
	return tool.Exited(string(name), out.ExitCode, why(c, out.ExitCode, said, own), said)
}

func why(c tool.Cell, exit int, said string, own []Cause) string {
	if exit == 1 {
		return "this build does not accept its options; use 1.5.0 or later"
	}
	tooLong := Cause{[]string{"errno=(90 "}, fmt.Sprintf("messages of %d bytes are too long for the path", c.MessageSize)}
	for _, cause := range slices.Concat(own, common, []Cause{tooLong}) {
		if tool.HasAny(said, cause.Says...) {
			return cause.Why
		}
	}
	switch exit {
	case 2:
		return "it could not set the test up"
	case 3:
		return "the test failed"
	}
	return "it ended in an unexpected way"
}

// errorLines are the ERROR lines as one, without the places in the source.
func errorLines(stderr []byte) string {
	var said []string
	for line := range strings.Lines(string(stderr)) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), "ERROR: ")
		if !ok || strings.HasPrefix(text, "at ") || text == "Test failed." || text == "Test setup failed." {
			continue
		}
		said = append(said, text)
	}
	return tool.OneLine(strings.Join(said, "; "))
}
