package result

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/internal/stats"
)

// foreignSamples returns the samples of testdata/foreign/README.md.
func foreignSamples() []int64 {
	out := []int64{1, 255, 256, 2_047, 2_048, 59_999_999_999}
	for i := range int64(10_000) {
		out = append(out, 1_000+i*i*37%1_000_003)
	}
	return out
}

// TestForeignLibraries compares what other libraries wrote and read with this package's results for the same strings and the
// same samples.
func TestForeignLibraries(t *testing.T) {
	fine := recorded(t, foreignSamples()...)
	coarse, err := fine.coarse()
	if err != nil {
		t.Fatal(err)
	}
	ours := map[int]Histogram{3: fine, 2: coarse}
	files, err := filepath.Glob("testdata/foreign/*.json")
	if err != nil || len(files) != 2 {
		t.Fatalf("files %q, error %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var all []struct {
			EncodedBy, DecodedBy, Encoded string
			Digits                        int
			Count, Min, Max               int64
			Percentiles                   map[string]int64
		}
		if err := json.Unmarshal(data, &all); err != nil {
			t.Fatal(err)
		}
		if len(all) != 4 {
			t.Errorf("%s has %d histograms", file, len(all))
		}
		for _, foreign := range all {
			name := foreign.EncodedBy + " read by " + foreign.DecodedBy
			want, err := Merge(ours[foreign.Digits])
			if err != nil {
				t.Fatal(err)
			}
			theirs := ours[foreign.Digits]
			theirs.Encoded = foreign.Encoded
			got, err := Merge(theirs)
			if err != nil {
				t.Errorf("%s, %d digits: %v", name, foreign.Digits, err)
				continue
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %d digits: the buckets differ (-ours +theirs):\n%s", name, foreign.Digits, diff)
			}
			if foreign.Count != got.Count || foreign.Min != got.Min || foreign.Max < got.Max {
				t.Errorf("%s, %d digits: %d samples from %d to %d, here %d from %d to %d",
					name, foreign.Digits, foreign.Count, foreign.Min, foreign.Max, got.Count, got.Min, got.Max)
			}
			if len(foreign.Percentiles) == 0 {
				t.Errorf("%s, %d digits: no percentiles", name, foreign.Digits)
			}
			for name, ns := range foreign.Percentiles {
				p, ok := stats.Named("p" + name)
				if !ok {
					t.Fatalf("no percentile p%s", name)
				}
				if here := stats.Quantile(got.Buckets, p); here != ns {
					t.Errorf("%s, %d digits: p%s is %d, here %d", foreign.DecodedBy, foreign.Digits, name, ns, here)
				}
			}
		}
	}
}
