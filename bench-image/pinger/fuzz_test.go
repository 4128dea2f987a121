package pinger_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/test/pinger"
)

// The first byte of an input selects the function of testdata/wire.c that reads it; the rest of that byte plus one is the length
// of a newcomer's pieces.
const (
	newcomerPiece = 4
	newcomer      = 0
	waitedFor     = 1
	requests      = 2
	report        = 3
)

// wireProgram is a running testdata/wire.c.
type wireProgram struct {
	in  io.Writer
	out io.Reader
	// complaints is the file with its stderr.
	complaints string
}

func startWire(f *testing.F) *wireProgram {
	f.Helper()
	dir := f.TempDir()
	path := filepath.Join(dir, "wire.wire")
	if err := pinger.Build(context.Background(), "../..", path, "SANITIZE=address,undefined", "CFLAGS=-O1", "PROGRAM="+strings.TrimSuffix(path, ".wire")); err != nil {
		f.Fatal(err)
	}
	complaints, err := os.OpenFile(filepath.Join(dir, "stderr"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		f.Fatal(err)
	}
	defer complaints.Close()
	cmd := exec.Command(path)
	// A report has at most 16 MiB. A process that dies, as the pinger does on a bad report, frees nothing.
	cmd.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0:exitcode=99:max_allocation_size_mb=17:hard_rss_limit_mb=256")
	cmd.Stderr = complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		f.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		f.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	return &wireProgram{in: in, out: out, complaints: complaints.Name()}
}

// hear lets a new process read an input, and returns its exit status and its output.
func (w *wireProgram) hear(t *testing.T, input []byte) (code uint32, output []byte) {
	t.Helper()
	var answer struct{ Code, Length uint32 }
	if _, err := w.in.Write(append(binary.NativeEndian.AppendUint32(nil, uint32(len(input))), input...)); err != nil {
		t.Fatal(err)
	}
	if err := binary.Read(w.out, binary.NativeEndian, &answer); err != nil {
		t.Fatal(err)
	}
	output = make([]byte, answer.Length)
	if _, err := io.ReadFull(w.out, output); err != nil {
		t.Fatal(err)
	}
	return answer.Code, output
}

// FuzzWire feeds arbitrary network input to the C code, with the sanitizers and little memory. The code accepts the input or ends
// because its peer is lost. A report that a server makes up adds only the member server to the client's result.
func FuzzWire(f *testing.F) {
	stats := func(block, list string) string {
		return "STATS " + block + " 24 1 0 0 5 5 1\n" + list
	}
	for _, seed := range []struct {
		choice byte
		said   string
	}{
		{newcomer, "TAILGATE-PINGER 3 " + key + "\n"},
		{newcomer + newcomerPiece*49, "TAILGATE-PINGER 3 " + key + "\nPROOF 0000000000000000\n"},
		{newcomer, "TAILGATE-PINGER 1 " + key + "\n"},
		{newcomer + newcomerPiece*63, "TAILGATE-PINGER 3 " + strings.Repeat("x", 300)},
		{newcomer, "TAILGATE-PINGER \n"},
		{newcomer, "TAILGATE-PINGER 3 \x00" + key + "\n"},
		{newcomer, "PROOF 0000000000000000\n"},
		{waitedFor + newcomerPiece*63, "DATA 00112233\n"},
		{waitedFor, "TAILGATE-PINGER 3 " + key + "\n"},
		{waitedFor, "DATA 0011223\n"},
		{requests, "CELL tcp 64 0 - 0\nCELL udp 65507 4000 - 0\nCELL multicast 64 4000 239.192.0.1 1\nSCAN\nVERIFY\n"},
		{requests, "CELL tcp 4294967297 0 - 0\nCELL tcp -1 0 - 0\nCELL udp -1 99999 " + strings.Repeat("g", 200) + " 1\n"},
		{requests, strings.Repeat("x", 256) + "\n"},
		{report, stats("2", "{}1 200 0\n")},
		{report, stats("22", `{"gaps":{"a":["}\""]}}1 18446744073709551615 1`+"\n")},
		{report, stats("11", `{},"rtt":{}1 2 3`+"\n")},
		{report, stats("17179869184", "")},
		{report, stats("18446744073709551615", "{}")},
		{report, "STATS 2 99999 18446744073709551615 1 0 0 0 0\n{}" + strings.Repeat("1 1 1\n", 17000)},
		{report, "STATS 2 99999 16385 1 0 0 0 0\n{}" + strings.Repeat("1 1 1\n", 16385)},
	} {
		f.Add(append([]byte{seed.choice}, seed.said...))
	}
	program := startWire(f)
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 128<<10 {
			return
		}
		code, output := program.hear(t, input)
		const lost = 5
		if code != 0 && code != lost {
			said, _ := os.ReadFile(program.complaints)
			t.Fatalf("it ended with %d: %s", code, said)
		}
		if len(output) > len(input)+8<<10 {
			t.Errorf("%d bytes of output from %d", len(output), len(input))
		}
		// Invalid JSON is rejected when the result is read.
		if !json.Valid(output) {
			return
		}
		decoder := json.NewDecoder(bytes.NewReader(output))
		_, _ = decoder.Token()
		for _, want := range []string{"server", "attribution"} {
			key, _ := decoder.Token()
			var value json.RawMessage
			if err := decoder.Decode(&value); err != nil || key != want {
				t.Fatalf("member %v, want %s: %v: %s", key, want, err, output)
			}
			var a struct{ Examined, Client, Server, Both, Neither, Undetermined int64 }
			if want == "attribution" && (json.Unmarshal(value, &a) != nil || a.Examined != 3 || a.Client+a.Server+a.Both+a.Neither+a.Undetermined != 3) {
				t.Errorf("attribution %s", value)
			}
		}
		if decoder.More() {
			t.Errorf("more members: %s", output)
		}
	})
}
