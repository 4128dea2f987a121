// Package custom drives the program of a user (spec.custom), which leaves out its own warm-up: all
// values in its output count, as whole round trips.
package custom

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/samples"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/sfntpingpong"
)

// mostOutput bounds the output that is read, in bytes, mostTable a table's, which is read at once.
// A failure has the lastLines that were printed.
const mostOutput, mostTable, lastLines = 256 << 20, 4 << 20, 3

type driver struct{ tool.Base }

func New() tool.Driver {
	datagrams := [2]int32{0, tool.MaxDatagram}
	return driver{tool.Base{
		Tool: v1alpha1.ToolCustom, InEveryImage: true, Opaque: true, RawFiles: true, Polls: true, Muxers: true, LeastRate: 1,
		Sizes: map[v1alpha1.Protocol][2]int32{v1alpha1.ProtocolTCP: {0, 1 << 20}, v1alpha1.ProtocolUDP: datagrams, v1alpha1.ProtocolMulticast: datagrams},
	}}
}

func (d driver) Validate(c tool.Cell) error {
	if c.Custom == nil {
		return errors.New("Custom needs your program (spec.custom)")
	}
	return d.Base.Validate(c)
}

func (driver) CPUs(c tool.Cell) int {
	if c.Custom == nil {
		return 1
	}
	return max(1, int(c.Custom.Client.CPUs))
}

// Listens is the protocol of the messages, unless the spec names another.
func (driver) Listens(c tool.Cell) v1alpha1.Protocol {
	if c.Protocol == v1alpha1.ProtocolTCP {
		return cmp.Or(c.Custom.Ready, v1alpha1.ProtocolTCP)
	}
	return cmp.Or(c.Custom.Ready, v1alpha1.ProtocolUDP)
}

func (driver) Deadline(c tool.Cell) time.Duration {
	return c.Warmup + c.Duration + cmp.Or(c.Custom.Timeout.Duration, 30*time.Second)
}

// Memory is not known.
func (driver) Memory(tool.Cell) int64 { return 0 }

// MostSamples is not known, also at a rate: a program may have several connections.
func (driver) MostSamples(tool.Cell) (int64, bool) { return 0, false }

func (driver) Server(c tool.Cell, t tool.Target) tool.Command {
	return command(c.Custom.Server, variables(c, t, v1alpha1.RoleServer, t.Address, t.LocalAddress))
}

func (driver) Client(c tool.Cell, t tool.Target) tool.Command {
	all := variables(c, t, v1alpha1.RoleClient, t.LocalAddress, t.Address)
	if path := c.Custom.Output.Path; path != "" {
		all = append(all, [2]string{"OUTPUT", filepath.Join(t.Scratch, path)})
	}
	return command(c.Custom.Client, all)
}

// variables are those of a program, without TAILGATE_: docs/your-application.md describes them.
func variables(c tool.Cell, t tool.Target, role, own, peer string) [][2]string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	cpus := text.Of(t.CPUs, strconv.Itoa)
	return [][2]string{
		{"ROLE", role}, {"ADDRESS", own}, {"PEER", peer}, {"PORT", strconv.Itoa(t.Port)}, {"INTERFACE", t.Interface},
		{"CPUS", strings.Join(cpus, ",")}, {"PROTOCOL", string(c.Protocol)}, {"GROUP", c.MulticastGroup},
		{"SIZE", number(int64(c.MessageSize))}, {"RATE", number(int64(c.RatePerSecond))},
		{"DURATION_MS", number(c.Duration.Milliseconds())}, {"WARMUP_MS", number(c.Warmup.Milliseconds())},
		{"WAIT", string(cmp.Or(c.Wait, v1alpha1.WaitBlock))}, {"MUXER", string(cmp.Or(c.Muxer, v1alpha1.MuxerNone))},
	}
}

func command(p v1alpha1.CustomProgram, variables [][2]string) tool.Command {
	var env, values []string
	for _, v := range variables {
		env = append(env, "TAILGATE_"+v[0]+"="+v[1])
		values = append(values, "$(TAILGATE_"+v[0]+")", v[1])
	}
	for _, v := range p.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	words := text.Of(slices.Concat(p.Command, p.Args), strings.NewReplacer(values...).Replace)
	return tool.Command{Path: words[0], Args: words[1:], Env: env}
}

// Parse reads the output whole. A value longer than the program ran has a wrong unit.
func (driver) Parse(c tool.Cell, out tool.Output, record, _ func(rtt, count int64)) (tool.Measurement, error) {
	m, err := read(c, out, record)
	if err == nil {
		return m, nil
	}
	said := strings.Split(cmp.Or(strings.TrimSpace(string(out.Stderr)), strings.TrimSpace(string(out.Stdout)), "nothing"), "\n")
	return m, tool.Failf("%v; the program printed last: %s", err, tool.OneLine(strings.Join(said[max(0, len(said)-lastLines):], " | ")))
}

func read(c tool.Cell, out tool.Output, record func(rtt, count int64)) (m tool.Measurement, err error) {
	output, unit := c.Custom.Output, cmp.Or(c.Custom.Output.Unit, "ns")
	source, scale := &bounded{Reader: bytes.NewReader(out.Stdout)}, samples.Scale{Unit: units[unit]}
	switch {
	case out.ExitCode != 0:
		return m, fmt.Errorf("the program ended with exit code %d", out.ExitCode)
	case output.Path != "":
		file, err := out.OpenRaw(output.Path)
		if err != nil {
			return m, fmt.Errorf("the program left no output: %w", err)
		}
		defer file.Close()
		source.Reader = file
	case out.Truncated:
		return m, errors.New("the program printed more than is kept of standard output; let it write a file (output.path)")
	}
	var count, longest int64
	var sum float64
	add := func(ns, n int64) {
		count, longest, sum = count+n, max(longest, ns), sum+float64(ns)*float64(n)
		record(ns, n)
	}
	switch output.Format {
	case v1alpha1.CustomValues:
		err = samples.Values(source, scale, func(ns int64) { add(ns, 1) })
	case v1alpha1.CustomHdrHistogram:
		var log samples.Log
		if log, err = samples.HistogramLog(source, scale); err == nil && log.LatencyType != "" {
			err = errors.New("it is the log of an export")
		}
		if err == nil {
			log.All.Each(add)
		}
	case v1alpha1.CustomSfntPingpong:
		m.Own, err = table(source, int64(c.MessageSize))
		if err == nil {
			count, sum, longest = m.Own.Count, m.Own.MeanNs*float64(m.Own.Count), m.Own.MaxNs
		}
	}
	ran := out.Clocks.Monotonic
	switch {
	case err != nil:
		return m, fmt.Errorf("its output cannot be read: %w", err)
	case count == 0:
		return m, errors.New("its output has no latencies")
	case longest > int64(ran):
		return m, fmt.Errorf("its longest round trip is %s, and it ran for %s: the unit of its numbers is not %s", time.Duration(longest), ran, unit)
	}
	if err := samples.CheckMean(sum/float64(count), unit); err != nil {
		return m, err
	}
	m.Figures = []tool.Figure{
		{Name: "round trips", Value: strconv.FormatInt(count, 10)},
		// By Little's law: with one message at a time, it is below 1.
		{Name: "mean number of messages under way", Value: strconv.FormatFloat(sum/float64(ran), 'g', 3, 64)},
	}
	return m, nil
}

var units = map[string]time.Duration{"ns": time.Nanosecond, "us": time.Microsecond, "ms": time.Millisecond, "s": time.Second}

func table(r io.Reader, size int64) (*tool.Own, error) {
	printed, err := io.ReadAll(io.LimitReader(r, mostTable+1))
	if err != nil || len(printed) > mostTable {
		return nil, cmp.Or(err, fmt.Errorf("the table has more than %d MiB", mostTable>>20))
	}
	_, rows, fullRTT, err := sfntpingpong.ParseWhole(printed)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(rows, func(r sfntpingpong.Row) bool { return r.Size == size })
	if i < 0 {
		return nil, fmt.Errorf("it has %d rows, and none of %d bytes", len(rows), size)
	}
	return rows[i].Own(fullRTT)
}

type bounded struct {
	io.Reader
	read int
}

func (b *bounded) Read(to []byte) (int, error) {
	n, err := b.Reader.Read(to)
	if b.read += n; b.read > mostOutput {
		return 0, fmt.Errorf("it has more than %d MiB", mostOutput>>20)
	}
	return n, err
}
