package cli

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// captured writes a capture of datagrams with numbers, each answered after the next of the latencies in ns, and returns its path.
func captured(t *testing.T, name string, latencies []int64) string {
	t.Helper()
	head := func(b []byte, fields ...uint32) []byte {
		for _, f := range fields {
			b = binary.LittleEndian.AppendUint32(b, f)
		}
		return b
	}
	packet := func(b []byte, at int64, from, to string, ports [4]byte, number int) []byte {
		payload := binary.BigEndian.AppendUint64(nil, uint64(number))
		udp := append(slices.Concat(ports[:], []byte{0, byte(8 + len(payload)), 0, 0}), payload...)
		ip := slices.Concat([]byte{0x45, 0, 0, byte(20 + len(udp)), 0, 0, 0, 0, 64, 17, 0, 0}, []byte(from), []byte(to), udp)
		return append(head(b, uint32(1_700_000_000+at/1e9), uint32(at%1e9), uint32(len(ip)), uint32(len(ip))), ip...)
	}
	b := head(nil, 0xa1b23c4d, 2|4<<16, 0, 0, 65535, 101)
	client, server := "\xc0\x00\x02\x07", "\xc0\x00\x02\x01"
	for i, ns := range latencies {
		at := int64(i) * 1_000_000
		b = packet(b, at, client, server, [4]byte{0x9c, 0x40, 0x2e, 0xe1}, i)
		if ns > 0 {
			b = packet(b, at+ns, server, client, [4]byte{0x2e, 0xe1, 0x9c, 0x40}, i)
		}
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// series returns n latencies from a median on, 1 ns apart, shuffled by their number.
func series(n int, median int64) (all []int64) {
	for i := range n {
		all = append(all, median+int64(i*7919%n)-int64(n/2))
	}
	return all
}

func TestCaptureAnalyze(t *testing.T) {
	// 1,000 answers after 4,501 to 5,500 ns, and one order that is lost.
	file := captured(t, "a.pcap", append(series(1000, 5001), 0))
	args := []string{"capture", "analyze", file, "--server", "192.0.2.1:12001"}
	code, stdout, stderr := run(args...)
	for _, want := range []string{
		definition, "servers [192.0.2.1:12001]", "requests 1001", "matched 1000", "lost 1", "IN to OUT, µs", "EVENTS",
		"MIN             4.501       3", "50%             5.003     503", "99%             5.491     991", "99.9%       needs 10000       -", "MAX             5.500    1000", "LOST                 -       1",
	} {
		if !strings.Contains(stdout, want) || code != 0 || stderr != "" {
			t.Fatalf("code %d, %q, and no %q in\n%s", code, stderr, want, stdout)
		}
	}
	code, stdout, _ = run(append(args, "-o", "json")...)
	var document struct {
		Definition                                    string
		Requests, Matched, Lost, MinNs, MaxNs, MeanNs int64
		P50                                           struct{ Ns, Events int64 }
	}
	if err := json.Unmarshal([]byte(stdout), &document); err != nil || code != 0 || document.Matched != 1000 || document.P50.Ns != 5003 || document.P50.Events != 503 || document.MaxNs != 5500 || document.Lost != 1 {
		t.Errorf("%v: %+v", err, document)
	}
	for want, more := range map[string][]string{
		"--server: \"engine\"":     {"--server", "engine"},
		"--match":                  {"--match", "ClOrdID"},
		"--output: unknown format": {"-o", "values"},
		"--size":                   {"--match", "sequence"},
		"no match":                 {"--offset", "1"},
		"no such file":             {file + "-2"},
	} {
		code, stdout, stderr := run(append(slices.Clone(args), more...)...)
		if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%v: code %d, %q and %q", more, code, stdout, stderr)
		}
	}
}

// TestCaptureVerb: capture alone, or with another verb, is an error of one line.
func TestCaptureVerb(t *testing.T) {
	for _, args := range [][]string{{"capture"}, {"capture", "replay"}, {"capture", "analyze"}} {
		if code, stdout, stderr := run(args...); code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "analyze") {
			t.Errorf("%v: code %d, %q and %q", args, code, stdout, stderr)
		}
	}
}

// TestCaptureVerdict judges rounds from captures: the candidate is 10 % slower, or as fast.
func TestCaptureVerdict(t *testing.T) {
	rounds := func(side string, median int64) (logs []string) {
		for i := range 6 {
			file := captured(t, "c.pcap", series(1200, median+int64(i*3)))
			code, stdout, stderr := run("capture", "analyze", file, "--server", "192.0.2.1", "-o", "hlog")
			if code != 0 {
				t.Fatalf("code %d: %s", code, stderr)
			}
			logs = append(logs, filepath.Join(t.TempDir(), fmt.Sprintf("%s-%d.hlog", side, i)))
			if err := os.WriteFile(logs[i], []byte(stdout), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return logs
	}
	before, same, slow := rounds("before", 20_000), rounds("same", 20_001), rounds("slow", 22_000)
	rule := append([]string{"--rule", "p50 maxIncrease 5%"}, ofEngine...)
	if code, stdout, stderr := ofFiles(t, before, same, rule...); code != exitPass {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := ofFiles(t, before, slow, rule...); code != exitFail {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
	// What was lost is not in the log, and would have been slowest.
	file := captured(t, "lost.pcap", append([]int64{0}, series(1200, 20_009)...))
	code, stdout, stderr := run("capture", "analyze", file, "--server", "192.0.2.1", "--timeout", "100ms", "-o", "hlog")
	if code != 0 || !strings.Contains(stderr, "1 requests without an answer") {
		t.Errorf("code %d: %s", code, stderr)
	}
	if err := os.WriteFile(same[5], []byte(stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := ofFiles(t, before, same, rule...); code != exitError || !strings.Contains(stderr, "not in this log are 1 requests without an answer") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
}
