package result

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

func clientDocument(t testing.TB) Document {
	t.Helper()
	start := time.Date(2026, 11, 21, 8, 0, 0, 123, time.UTC)
	return Document{
		Version: Version, Run: "first-p0-r1", Attempt: 2, Role: v1alpha1.RoleClient,
		Evidence: Evidence{Node: "node-a", Interface: "net1", MeasuringCPU: 3, AllocatedDevices: map[string]string{"PCIDEVICE_AMD_COM_SF_VF": "0000:01:10.2"}},
		Cells: []Cell{{
			Cell: tool.Cell{Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}, Duration: 3 * time.Second, Warmup: time.Second / 2},
			Tool: "sockperf", ToolVersion: "3.7-no.git", Command: []string{"sockperf", "ping-pong"},
			StartedAt: start, FinishedAt: start.Add(6 * time.Second),
			Histogram: recorded(t, skewed(9, 20_000)...), Figures: []tool.Figure{{Name: "max (us)", Value: "1425.498"}}, Warnings: []string{"a warning"},
		}},
	}
}

func framed(t testing.TB, d Document) (log, digest string) {
	t.Helper()
	var b strings.Builder
	made, err := compress(d)
	if err := errors.Join(err, WriteFrame(&b, d)); err != nil {
		t.Fatal(err)
	}
	return b.String(), made.Digest
}

func TestFrame(t *testing.T) {
	want := clientDocument(t)
	log, digest := framed(t, want)
	earlier, _ := framed(t, Document{Version: Version, Role: "client"})
	for _, line := range strings.SplitAfter(log, "\n") {
		if len(line) > 4096 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}

	cases := map[string]string{
		"alone":                               log,
		"without a last line's end":           strings.TrimSuffix(log, "\n"),
		"after a line that did not end":       "measuring tcp-64" + log,
		"among other lines":                   "one\n\n" + log + "three\n",
		"with lines in between":               strings.ReplaceAll(log, "\n", "\nsomething on stderr\n"),
		"with the line ends of another world": strings.ReplaceAll(log, "\n", "\r\n"),
		"after a frame that is cut off":       earlier[:len(earlier)/2] + log,
		"after a very long line":              strings.Repeat("x", 1<<20) + "\n" + log,
		"after a long line with our mark":     markBegin + strings.Repeat("1", 1<<16) + "\n" + log,
	}
	for name, log := range cases {
		t.Run(name, func(t *testing.T) {
			// One byte at a time is the worst case of reading a log over a network.
			got, err := ReadFrame(iotest.OneByteReader(strings.NewReader(log)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Document); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if err := AwaitFrame(iotest.OneByteReader(strings.NewReader(log))); err != nil {
				t.Errorf("waiting for it: %v", err)
			}
			if got.Digest != digest || digestOf(got.Compressed) != digest {
				t.Errorf("digest %s of content with %s, want %s", got.Digest, digestOf(got.Compressed), digest)
			}
		})
	}
}

const (
	markBegin = mark + "begin result "
	markData  = mark + "data "
	markEnd   = mark + "end "
)

// An illegal size invalidates the frame at its first line, so that none of its content is kept.
func TestReadFrameRefusesTheSizeFirst(t *testing.T) {
	for _, size := range []int{maxStored + 1, -1} {
		if f := begin(fmt.Sprintf("result %d %d", Version, size), "result", Version); f == nil || !errors.Is(f.wrong, ErrCorrupt) {
			t.Errorf("a size of %d bytes: got %+v", size, f)
		}
	}
	if f := begin(fmt.Sprintf("result %d %d", Version, maxStored), "result", Version); f == nil || f.wrong != nil {
		t.Errorf("the largest size: got %+v", f)
	}
}

func TestReadFrameRefuses(t *testing.T) {
	document := clientDocument(t)
	log, digest := framed(t, document)
	lines := strings.SplitAfter(strings.TrimPrefix(log, "\n"), "\n")
	data := 1
	swapped := []byte(log)
	at := bytes.LastIndex(swapped, []byte(markData)) + len(markData)
	swapped[at], swapped[at+1] = swapped[at+1], swapped[at]
	otherVersion := document
	otherVersion.Version = Version + 1
	otherLog, otherDigest := framed(t, otherVersion)
	otherVersion.Version = Version - 1
	earlierLog, _ := framed(t, otherVersion)

	laterType := frameOf(gzipped(`{"version":2,"run":7}`))
	laterType.want = ErrVersion

	cases := map[string]struct {
		log  string
		want error
	}{
		"an empty log":                     {"", ErrMissing},
		"other lines only":                 {"hello\nworld", ErrMissing},
		"an end alone":                     {markEnd + digest, ErrMissing},
		"data alone":                       {strings.Join(lines[1:], ""), ErrMissing},
		"a frame beyond the read limit":    {strings.Repeat("x", MaxLog) + log, ErrMissing},
		"a log that was cut off":           {log[:len(log)*2/3], ErrCorrupt},
		"a begin alone":                    {lines[0], ErrCorrupt},
		"a line less":                      {strings.Join(append(lines[:data:data], lines[data+1:]...), ""), ErrCorrupt},
		"a line twice":                     {strings.Join(append(lines[:data+1:data+1], lines[data:]...), ""), ErrCorrupt},
		"lines in another order":           {strings.Join(append([]string{lines[0], lines[2], lines[1]}, lines[3:]...), ""), ErrCorrupt},
		"a changed byte":                   {string(swapped), ErrCorrupt},
		"another digest at its end":        {strings.ReplaceAll(log, digest, otherDigest), ErrCorrupt},
		"no digest at its end":             {strings.ReplaceAll(log, digest, ""), ErrCorrupt},
		"a document of another version":    {otherLog, ErrVersion},
		"a document of an earlier version": {earlierLog, ErrVersion},
		"a frame of another version":       {strings.Replace(log, "result 1", "result 2", 1), ErrVersion},
		"a later version of other types":   laterType,
		"a size that is too large":         {fmt.Sprintf("%s%d %d\n%s%s", markBegin, Version, maxStored+1, markEnd, digest), ErrCorrupt},
		"a negative size":                  {fmt.Sprintf("%s%d -1\n%s%s", markBegin, Version, markEnd, digest), ErrCorrupt},
		"more than the size":               {strings.Replace(log, fmt.Sprintf("result 1 %d", sizeOf(t, log)), "result 1 10", 1), ErrCorrupt},
		"less than the size":               {strings.Replace(log, fmt.Sprintf("result 1 %d", sizeOf(t, log)), fmt.Sprintf("result 1 %d", sizeOf(t, log)+1), 1), ErrCorrupt},
		"a document that is not JSON":      frameOf(gzipped("{")),
		"a document with more behind it":   frameOf(gzipped(`{"version":1} {}`)),
		"a document that is not gzip":      frameOf([]byte("{}")),
		"an empty document":                frameOf(nil),
		"a small one that expands to much": frameOf(gzipped(strings.Repeat(" ", maxPlain+1))),
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := ReadFrame(strings.NewReader(c.log)); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func sizeOf(t *testing.T, log string) (size int) {
	t.Helper()
	if _, err := fmt.Sscanf(log, "\n"+markBegin+"1 %d", &size); err != nil {
		t.Fatal(err)
	}
	return size
}

func gzipped(s string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, s)
	z.Close()
	return b.Bytes()
}

// frameOf returns a well-formed frame with arbitrary content, which is therefore rejected because of its content.
func frameOf(content []byte) (c struct {
	log  string
	want error
}) {
	digest := digestOf(content)
	c.want = ErrCorrupt
	var b strings.Builder
	fmt.Fprintf(&b, "%s%d %d\n", markBegin, Version, len(content))
	for len(content) > 0 {
		n := min(len(content), bytesPerLine)
		fmt.Fprintf(&b, "%s%s\n", markData, base64.StdEncoding.EncodeToString(content[:n]))
		content = content[n:]
	}
	fmt.Fprintf(&b, "%s%s\n", markEnd, digest)
	c.log = b.String()
	return c
}

// Only the beginning is kept of a line that is too long for a frame.
func TestLinesAreBounded(t *testing.T) {
	lines := bufio.NewReader(strings.NewReader(strings.Repeat("x", 1<<20) + "\nnext\n"))
	if line, err := readLine(lines); err != nil || len(line) != maxLine {
		t.Errorf("%d bytes of the line, %v", len(line), err)
	}
	if line, err := readLine(lines); err != nil || line != "next" {
		t.Errorf("the next line is %.20q, %v", line, err)
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	c := frameOf(gzipped(`{"version":1,"run":"r","role":"client","mood":"good","evidence":{"colour":"red"}}`))
	got, err := ReadFrame(strings.NewReader(c.log))
	if err != nil {
		t.Fatal(err)
	}
	if got.Document.Run != "r" {
		t.Errorf("run %q", got.Document.Run)
	}
}

func TestReadFrameTellsItsReadersErrors(t *testing.T) {
	log, _ := framed(t, clientDocument(t))
	broken := errors.New("connection reset")
	_, err := ReadFrame(io.MultiReader(strings.NewReader(log[:100]), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrMissing) {
		t.Errorf("got %v: the log may be whole, only the way to it is broken", err)
	}
}

func TestAwaitFrameOfALogWithoutResult(t *testing.T) {
	log, digest := framed(t, clientDocument(t))
	broken := errors.New("connection reset")
	for name, c := range map[string]struct {
		log  io.Reader
		want error
	}{
		"an empty log":      {strings.NewReader(""), ErrMissing},
		"an end alone":      {strings.NewReader(markEnd + digest), ErrMissing},
		"another frame":     {strings.NewReader(strings.ReplaceAll(log, "begin result", "begin inspection")), ErrMissing},
		"a log cut off":     {strings.NewReader(log[:len(log)*2/3]), ErrMissing},
		"a connection lost": {io.MultiReader(strings.NewReader(log[:100]), iotest.ErrReader(broken)), broken},
	} {
		if err := AwaitFrame(c.log); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

func TestWriteFrameTellsItsWritersErrors(t *testing.T) {
	r, w := io.Pipe()
	broken := errors.New("disk full")
	r.CloseWithError(broken)
	if err := WriteFrame(w, clientDocument(t)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestMeasuredTime(t *testing.T) {
	d := clientDocument(t)
	d.Cells = append(d.Cells, d.Cells[0])
	if got := d.MeasuredTime(); got != 12*time.Second {
		t.Errorf("got %s", got)
	}
}

func FuzzReadFrame(f *testing.F) {
	small := clientDocument(f)
	small.Cells[0].Histogram = recorded(f, 1, 2, 3)
	log, _ := framed(f, small)
	f.Add([]byte(log))
	f.Add([]byte("x\n" + strings.ReplaceAll(log, "\n", "\ny\n")))
	f.Add([]byte(log[:len(log)/2]))
	for _, c := range []string{`{"version":1}`, `{"version":2}`, `{"version":1,"cells":[{"histogram":{"encoded":"HISTFAAA"}}]}`} {
		f.Add([]byte(frameOf(gzipped(c)).log))
	}
	f.Fuzz(func(t *testing.T, log []byte) {
		var got Framed
		var err error
		if used := allocated(func() { got, err = ReadFrame(bytes.NewReader(log)) }); used > 128 {
			t.Errorf("%d bytes take %d MiB", len(log), used)
		}
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrMissing) {
				t.Errorf("an error without a kind: %v", err)
			}
			return
		}
		if !bytes.Contains(log, []byte(digestOf(got.Compressed))) || got.Document.Version != Version {
			t.Errorf("version %d, and no digest %s in the log", got.Document.Version, digestOf(got.Compressed))
		}
		for _, c := range got.Document.Cells {
			Merge(c.Histogram)
		}
	})
}
