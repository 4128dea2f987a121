package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tailgate-dev/tailgate/internal/tool"
)

// allocated returns the total memory that a function allocates, in MiB. Its peak cannot exceed that.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int((after.TotalAlloc - before.TotalAlloc) >> 20)
}

// repeated returns a text that repeats what between begin and end, as often as fits in a number of bytes.
func repeated(begin, what, end string, bytes int) string {
	return begin + strings.TrimSuffix(strings.Repeat(what+",", (bytes-len(begin)-len(end))/(len(what)+1)), ",") + end
}

// A kilobyte that expands to gigabytes is rejected before it is decoded.
func TestDecodingIsBounded(t *testing.T) {
	const limit = 128 // MiB allocated in total, a quarter of the manager's memory
	distinct := func(begin, form, end string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, form, i)
		}
		return begin + strings.TrimSuffix(b.String(), ",") + end
	}
	cases := map[string]string{
		"cells without fields, 293 KiB": repeated(`{"cells":[`, "{}", "]}", 293<<10),
		"cells without fields":          repeated(`{"cells":[`, "{}", "]}", maxPlain),
		"cells in capitals":             repeated(`{"CELLS":[`, "{}", "]}", maxPlain),
		"captures without fields":       repeated(`{"captured":[`, "{}", "]}", maxPlain),
		"intervals without fields":      repeated(`{"cells":[{"intervals":[`, "{}", "]}]}", maxPlain),
		"cells with intervals":          repeated(`{"cells":[`, `{"intervals":[{},{},{},{},{},{},{},{}]}`, "]}", maxPlain),
		"slow samples without fields":   repeated(`{"cells":[{"attribution":{"slowest":[`, "{}", "]}}]}", maxPlain),
		"empty strings":                 repeated(`{"reduced":[`, `""`, "]}", maxPlain),
		"empty strings in a cell":       repeated(`{"cells":[{"command":[`, `""`, "]}]}", maxPlain),
		"many facts":                    distinct(`{"evidence":{"facts":{`, `"%d":"",`, "}}}", 500_000),
		"many facts again and again":    distinct(`{`, `"evidence":{"facts":{"%d":""}},`, "}", 200_000),
		"many objects, one in another":  strings.Repeat(`{"cells":[`, maxPlain/10),
		"many counters of paths":        distinct(`{"evidence":{"paths":[{"grown":{`, `"%d":0,`, "}}]}}", 800_000),
		"many unknown fields":           distinct(`{`, `"x%d":0,`, "}", 700_000),
		"one long fact":                 `{"version":1,"evidence":{"facts":{"a":"` + strings.Repeat("x", maxConditions) + `"}}}`,
		"a document and blanks":         `{"version":1}` + strings.Repeat(" ", maxPlain),
		"many members of a cell":        distinct(`{"version":1,"cells":[{`, `"x%d":0,`, "}]}", maxMembers+1),
		"blanks":                        strings.Repeat(" ", 64<<20),
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			content := gzipped(text)
			digest := digestOf(content)
			var err error
			if used := allocated(func() { _, err = expand(content, digest) }); used > limit {
				t.Errorf("%d KiB compressed take %d MiB, more than %d", len(content)>>10, used, limit)
			}
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("got %v, want it refused", err)
			}
		})
	}
}

// The content of a string is not counted, and nothing can hide in a string or behind unmatched closing brackets.
func TestStructureIsCounted(t *testing.T) {
	for text, refused := range map[string]bool{
		repeated(`{"x":"\"","cells":[`, "{}", "]}", 100<<10): true,
		repeated(`{"x":"`, "{}", `"}`, 100<<10):              false,
		repeated(`]}]}{"cells":[`, "{}", "]}", 100<<10):      true,
	} {
		if err := checkStructure([]byte(text)); (err != nil) != refused {
			t.Errorf("%.40q: got %v, want it refused: %t", text, err, refused)
		}
	}
}

// The largest document that is decoded also takes bounded memory.
func TestTheLargestDocumentIsBounded(t *testing.T) {
	const intervals = 128
	text := repeated(`{"version":1,"cells":[`, repeated(`{"intervals":[`, "{}", "]}", len(`{"intervals":[]}`)+3*intervals),
		"]}", maxInner/intervals*(len(`{"intervals":[]}`)+3*intervals))
	text = strings.TrimSuffix(text, "]}") + `],"x":"` + strings.Repeat("x", maxPlain-len(text)-9) + `"}`
	content := gzipped(text)
	var d Framed
	var err error
	used := allocated(func() { d, err = expand(content, digestOf(content)) })
	if err != nil {
		t.Fatal(err)
	}
	if used > 128 {
		t.Errorf("%d KiB compressed with %d cells take %d MiB", len(content)>>10, len(d.Document.Cells), used)
	}
	t.Logf("%d cells: %d MiB allocated in all", len(d.Document.Cells), used)
}

// Content that is too large is not hashed, and content with another digest is not expanded.
func TestTheDigestIsComparedBeforeAnythingIsExpanded(t *testing.T) {
	content := gzipped(strings.Repeat(" ", maxPlain))
	if used := allocated(func() { expand(content, digestOf(nil)) }); used > 0 {
		t.Errorf("a result with another digest takes %d MiB", used)
	}
}

// A legal result of 400 cells with all intervals and slow samples is within the bounds after Fit.
func TestALegalDocumentIsWithinTheBounds(t *testing.T) {
	d := large(t, 400, 128)
	for i := range d.Cells {
		d.Cells[i].Command = make([]string, 32)
		d.Cells[i].Figures = make([]tool.Figure, 16)
		d.Cells[i].Histogram = recorded(t, 1, 2, 3)
	}
	plain, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkStructure(plain); err != nil {
		t.Errorf("before it is fitted: %v", err)
	}
	fitted, err := Fit(d, Share(d.Role, false))
	if err != nil {
		t.Fatal(err)
	}
	framed, err := compress(fitted)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := expand(framed.Compressed, framed.Digest); err != nil {
		t.Error(err)
	}
}

// A document beyond the bounds of a reader is reduced, even if it compresses well.
func TestFitKeepsTheBoundsOfReaders(t *testing.T) {
	d := clientDocument(t)
	d.Cells[0].Intervals = make([]tool.Interval, maxInner+1)
	fitted, err := Fit(d, maxStored)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(fitted.Cells[0].Intervals); n > mostIntervals {
		t.Errorf("%d intervals are left", n)
	}
}

// The entries of maps are counted outside of arrays and in one array, but not in arrays of arrays.
func TestNoArrayOfArraysContainsAMap(t *testing.T) {
	if found := mapWithinArrays(reflect.TypeFor[Document](), 0); found != "" {
		t.Errorf("%s is within two arrays: checkStructure has to count its entries", found)
	}
	if mapWithinArrays(reflect.TypeFor[struct {
		A []struct{ B []*map[string]int }
	}](), 0) == "" {
		t.Error("a map within two arrays is not found")
	}
}

// mapWithinArrays names a map that is in more than one array.
func mapWithinArrays(t reflect.Type, arrays int) string {
	switch t.Kind() {
	case reflect.Map:
		if arrays > 1 {
			return t.String()
		}
		return mapWithinArrays(t.Elem(), arrays)
	case reflect.Slice, reflect.Array:
		return mapWithinArrays(t.Elem(), arrays+1)
	case reflect.Pointer:
		return mapWithinArrays(t.Elem(), arrays)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() {
				if found := mapWithinArrays(f.Type, arrays); found != "" {
					return f.Name + ": " + found
				}
			}
		}
	}
	return ""
}

// A histogram with another range or resolution is rejected before its buckets are expanded.
func TestDecodingAHistogramIsBounded(t *testing.T) {
	wide := hdr.NewPacked(1, 1<<61, 5)
	for v := int64(1); v < 1<<20; v++ {
		if err := wide.RecordValue(v); err != nil {
			t.Fatal(err)
		}
	}
	encoded, err := wide.Encode()
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]Histogram{
		"of a wide range":  {Encoded: string(encoded), Count: wide.TotalCount()},
		"with a long text": {Encoded: strings.Repeat("A", maxEncoded+1)},
	}
	for name, h := range cases {
		t.Run(name, func(t *testing.T) {
			var err error
			if used := allocated(func() { _, err = Merge(h) }); used > 1 {
				t.Errorf("%d KiB take %d MiB", len(h.Encoded)>>10, used)
			}
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A histogram with samples in every bucket, more than 32 bits can count, is within the limit of the text.
func TestTheFullestHistogramFits(t *testing.T) {
	r := NewRecorder()
	full := hdr.NewPacked(lowest, highest, digits)
	for v := int64(lowest); v <= highest; {
		n := int64(1)<<47 + v*7919%(1<<46)
		r.RecordN(v, n)
		if err := full.RecordValues(v, n); err != nil {
			t.Fatal(err)
		}
		v += max(1, v>>10)
	}
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Encoded) > maxEncoded {
		t.Errorf("%d KiB", len(h.Encoded)>>10)
	}
	t.Logf("%d buckets in %d KiB", full.Populated(), len(h.Encoded)>>10)
}

// A document with characters that control a terminal is refused, raw or escaped; what an agent writes has none.
func TestControlsAreRefused(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":"plain \n \t \\u001b \\r µ ÿ \u00e9"}`: "",
		`{"a":"\u001b[31m"}`:                         "{\"a\":\"\ufffd[31m\"}",
		`{"a":"x\r\b\f\u009b"}`:                      "{\"a\":\"x\ufffd\ufffd\ufffd\ufffd\"}",
		"{\"a\":\"\x7f\u009bÀ\"}":                    "{\"a\":\"\ufffd\ufffdÀ\"}",
	} {
		clean, found := withoutControls([]byte(in))
		if want == "" {
			want = in
		}
		if string(clean) != want || found != (want != in) {
			t.Errorf("%s: %s, %t", in, clean, found)
		}
		if err := checkPlain([]byte(in)); (err != nil) != found {
			t.Errorf("%s: %v", in, err)
		}
	}
	sent := Document{Version: Version, Role: "client"}
	sent.Evidence.Kernel = "6.1 \x1b]0;title\a\u009b"
	framed, err := compress(sent)
	if err != nil {
		t.Fatal(err)
	}
	read, err := expand(framed.Compressed, framed.Digest)
	if err != nil || read.Document.Evidence.Kernel != "6.1 \ufffd]0;title\ufffd\ufffd" {
		t.Errorf("%q, %v", read.Document.Evidence.Kernel, err)
	}
	hostile, err := deflate([]byte(`{"version":` + strconv.Itoa(Version) + `,"evidence":{"kernel":"\u001b[2J"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := expand(hostile, digestOf(hostile)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a forged document: %v", err)
	}
}
