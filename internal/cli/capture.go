package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailgate-dev/tailgate/internal/capturefile"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/samples"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

const definition = "IN to OUT by the clock of the capture: from the packet with the last byte of a request to that with the first byte of its answer, when first captured"

type captureAnalysis struct {
	capturefile.Options
	servers     []string
	match, form string
}

func newCapture() *cobra.Command {
	group := &cobra.Command{Use: "capture", Short: "Measure a server's time to answer from packet captures, without a cluster", Args: takes("a verb: analyze", 0, 0)}
	group.RunE = func(*cobra.Command, []string) error {
		return errors.New("capture: name a verb: " + name + " capture analyze FILE...")
	}
	c := &captureAnalysis{}
	cmd := &cobra.Command{
		Use:   "analyze FILE... [--server ADDR:PORT] [--size N | --match fix:TAG]",
		Short: "Print the latencies from requests to answers in captures: percentiles, events, and what was lost",
		Long: "Print the latencies from requests to answers in captures. A capture is a pcap or pcapng file, or gzip of it; - is standard input.\n" +
			"Several files are merged by time. --match says what a request and its answer have in common, on whatever connections:\n\n" +
			"  offset    --length bytes at --offset of each message of --size bytes; UDP without --size: of each datagram\n" +
			"  sequence  the number of a message in its direction of the TCP connection\n" +
			"  fix:TAG   the value of a tag of FIX, such as 11 (ClOrdID)\n\n" +
			"A capture that may give a wrong latency gives an error. -o hlog writes a round that verdict and import read.",
		Example: "  " + name + " capture analyze server.pcap --server 192.0.2.1:12001 --match fix:11\n" +
			"  " + name + " capture analyze in.pcapng.gz out.pcapng.gz --server 192.0.2.1 --size 264 --offset 16 -o hlog > round-1.hlog",
		Args: takes("the captures", 1, mostRounds),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := c.run(cmd.Context(), args, cmd.InOrStdin(), cmd.ErrOrStderr())
			return emit(cmd.OutOrStdout(), text, err)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.servers, "server", nil, "ADDR:PORT, or ADDR with all ports, that receives requests or sends answers; may be repeated; default: what the first TCP SYN calls")
	f.StringVar(&c.match, "match", capturefile.MatchOffset, "offset, sequence or fix:TAG")
	f.IntVar(&c.Request.Size, "size", 0, "bytes of a request")
	f.IntVar(&c.Request.Offset, "offset", 0, "where the key of a request begins, in bytes")
	f.IntVar(&c.Request.Length, "length", 8, "bytes of a key")
	f.IntVar(&c.Answer.Size, "answer-size", 0, "bytes of an answer; default: --size")
	f.IntVar(&c.Answer.Offset, "answer-offset", -1, "where the key of an answer begins; default: --offset")
	f.DurationVar(&c.Timeout, "timeout", 10*time.Second, "a request without an answer in this time is lost; at most 1m")
	f.BoolVar(&c.MidStream, "mid-stream", false, "a TCP connection that is older than the capture goes on with a whole message")
	outputFlag(cmd, &c.form, "table", "json", "hlog")
	group.AddCommand(cmd)
	return group
}

func (c *captureAnalysis) run(ctx context.Context, names []string, stdin io.Reader, stderr io.Writer) ([]byte, error) {
	c.Match, c.Tag, _ = strings.Cut(c.match, ":")
	if err := oneOf("--match", c.Match, []string{capturefile.MatchOffset, capturefile.MatchSequence, capturefile.MatchFIX}); err != nil {
		return nil, err
	}
	for _, s := range c.servers {
		end, err := netip.ParseAddrPort(s)
		if a, alone := netip.ParseAddr(s); alone == nil {
			end = netip.AddrPortFrom(a, 0)
		} else if err != nil {
			return nil, fmt.Errorf("--server: %.80q is neither ADDR:PORT nor ADDR, such as 192.0.2.1:12001 or [2001:db8::1]:12001", s)
		}
		c.Servers = append(c.Servers, netip.AddrPortFrom(end.Addr().Unmap(), end.Port()))
	}
	c.Answer.Size, c.Answer.Length = cmp.Or(c.Answer.Size, c.Request.Size), c.Request.Length
	if c.Answer.Offset < 0 {
		c.Answer.Offset = c.Request.Offset
	}
	var files []capturefile.File
	for _, n := range names {
		if n == stdinName {
			files = append(files, capturefile.File{Name: "standard input", Reader: stdin})
			continue
		}
		f, err := os.Open(n)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		files = append(files, capturefile.File{Name: n, Reader: f})
	}
	recorder := result.NewRecorder()
	r, err := capturefile.Analyze(ctx, files, c.Options, func(ns int64) { recorder.Record(max(ns, 1)) })
	lacking := fmt.Sprintf("%d requests without an answer, %d answers without a request, %d bytes that were not captured", r.Lost, r.Unmatched, r.MissingBytes)
	if err == nil && c.form == "hlog" && r.Lost+r.Unmatched+r.Gaps > 0 {
		fmt.Fprintf(stderr, "not in a histogram log: %s\n", lacking)
	}
	h, failed := recorder.Histogram()
	d, corrupt := result.NewMerger().Add(h)
	if err := errors.Join(err, failed, corrupt); err != nil {
		return nil, err
	}
	counts, lines := map[string]any{"definition": definition}, []string{definition}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(r)) {
		key, value := strings.ToLower(f.Name[:1])+f.Name[1:], reflect.ValueOf(r).FieldByIndex(f.Index).Interface()
		counts[key] = value
		lines = append(lines, fmt.Sprintf("%s %v", key, value))
	}
	var out bytes.Buffer
	switch c.form {
	case "hlog":
		fmt.Fprintf(&out, "#[Histogram log format version 1.3]\n#[%s]\n#[StartTime: %d (seconds since epoch)]\n", strings.Join(lines, "]\n#["), r.First.Unix())
		if r.Lost-r.Open+r.Gaps > 0 { // Other commands refuse a log without its slowest messages.
			fmt.Fprintf(&out, "%s%s]\n", samples.Lacking, lacking)
		}
		fmt.Fprintf(&out, "0.000,%.3f,%.3f,%s\n", r.Last.Sub(r.First).Seconds(), float64(h.MaxNs)/1e6, h.Encoded)
		return out.Bytes(), nil
	case "json":
		counts["minNs"], counts["maxNs"], counts["meanNs"] = d.Min, d.Max, d.Mean()
		for _, p := range stats.Ladder() {
			if of := d.Percentile(p, r.Lost); of.Needs == 0 && !of.Lost {
				counts[p.Name] = map[string]int64{"ns": of.Ns, "events": d.UpTo(of.Ns)}
			}
		}
		return result.EncodeJSON(counts)
	}
	fmt.Fprintln(&out, strings.Join(lines, "\n"))
	err = report.CaptureLadder(&out, "IN to OUT, µs", report.Column{Round: 1, Distribution: d, Lost: r.Lost})
	return out.Bytes(), err
}
