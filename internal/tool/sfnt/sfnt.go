// Package sfnt holds the common parts of the drivers of AMD's two tools (cns-sfnettest).
package sfnt

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// hops suffice in a cluster; with the tools' default, 1, no router passes a message.
const hops = "64"

// Driver is the common part of the two drivers. The name of the tool is also that of the program.
type Driver struct{ tool.Base }

// Server listens for the control connection of one client, and gets everything else from it.
func (d Driver) Server(_ tool.Cell, t tool.Target) tool.Command {
	return tool.Command{Path: string(d.Tool), Args: []string{"--port=" + strconv.Itoa(t.Port)}, Env: Environment()}
}

// Environment keeps tools from running date, uname, lspci and ethtool on the measuring CPU.
func Environment() []string { return []string{"SFNT_AVOID_FORK=1"} }

// muxers are the values of --muxer. Without a muxer both ends call recv.
var muxers = map[v1alpha1.Muxer]string{
	"": "", v1alpha1.MuxerNone: "",
	v1alpha1.MuxerSelect: "select", v1alpha1.MuxerPoll: "poll", v1alpha1.MuxerEpoll: "epoll",
}

// WaitOptions returns the options of how both ends wait for a message.
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

// PathOptions returns options of the messages' path, which the client passes to the server; where
// they differ, the client's come first. Messages to a group keep TTL 1, for the subnet.
func PathOptions(c tool.Cell, t tool.Target) []string {
	switch c.Protocol {
	case v1alpha1.ProtocolTCP:
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

// common are the causes that both tools share. The numbers are values of errno.
var common = []tool.Cause{
	{"client and server are different builds; use one bench image on both nodes", "Version mismatch", "Source Checksum mismatch"},
	{"it may not run on the CPU that it should use", "Failed to set CPU affinity"},
	{"it cannot write its samples to the scratch volume", "Could not open output file"},
	{"it cannot join the multicast group on the interface of the measured network", "failed to join"},
	{tool.SecondPort, "connect(read_fd", "connect(ctx->read_fd"},
	{"no server listened for 10s", "errno=(111 "},
	{"it cannot reach the server: does a firewall or a NetworkPolicy block the connection?", "errno=(110 ", "errno=(1 "},
	{"there is no route to the server", "errno=(113 ", "errno=(101 "},
	{"the server ended before the test did", "errno=(104 ", "errno=(32 ", "errno=(0 "},
}

// Explain builds a failure from exit code and ERROR lines; a tool's own causes come first.
func Explain(name v1alpha1.Tool, c tool.Cell, out tool.Output, own []tool.Cause) error {
	said := errorLines(out.Stderr)
	tooLong := tool.Cause{fmt.Sprintf("messages of %d bytes are too long for the path", c.MessageSize), "errno=(90 "}
	why := cmp.Or(tool.WhyOf(said, slices.Concat(own, common, []tool.Cause{tooLong})),
		map[int]string{2: "it could not set the test up", 3: "the test failed"}[out.ExitCode], "it ended in an unexpected way")
	if out.ExitCode == 1 {
		why = "this build does not accept its options; use 1.5.0 or later"
	}
	return tool.Exited(string(name), out.ExitCode, why, said)
}

// errorLines joins the ERROR lines into one, without the source positions.
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

// Samples calls do with the number of each line of a file of samples, and the line. The last one must have its newline: without it the
// file was truncated. The error is a Failure.
func Samples(name v1alpha1.Tool, out tool.Output, file string, do func(number int, line []byte) error) error {
	raw, err := out.OpenRaw(file)
	if err != nil {
		return tool.Failf("%s left no samples: %v", name, err)
	}
	defer raw.Close()
	lines := bufio.NewReaderSize(raw, 64<<10)
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err == nil {
			err = do(number, line[:len(line)-1])
		}
		if err != nil {
			return tool.Failf("%s's samples in %s cannot be read: line %d: %v", name, file, number, err)
		}
	}
}
