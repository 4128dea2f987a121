package result

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// wide returns samples spread over five decades. Their histogram hardly compresses.
func wide(seed uint64, n int) []int64 {
	random := rand.New(rand.NewPCG(seed, 11))
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(1_000 * math.Exp(random.Float64()*11))
	}
	return out
}

// large returns a client's document with a number of cells that have wide histograms, figures and, if requested, intervals.
func large(t testing.TB, cells, intervals int) Document {
	t.Helper()
	d := Document{Version: Version, Run: "big-r1", Attempt: 1, Role: v1alpha1.RoleClient}
	// Ten histograms together are longer than gzip's window.
	var histograms []Histogram
	for i := range min(cells, 10) {
		histograms = append(histograms, recorded(t, wide(uint64(i), 20_000)...))
	}
	for i := range cells {
		c := Cell{Cell: tool.Cell{Name: fmt.Sprintf("tcp-%d", i)}, Tool: "pinger", Histogram: histograms[i%len(histograms)]}
		random := rand.New(rand.NewPCG(uint64(i), 13))
		for range 20 {
			c.Figures = append(c.Figures, tool.Figure{Name: "max (us)", Value: fmt.Sprint(random.Int64N(1e9))})
		}
		for k := range intervals {
			p50 := 5_000 + random.Int64N(1_000)
			c.Intervals = append(c.Intervals, tool.Interval{
				StartNs: int64(k) * 1e9, LengthNs: 1e9, Count: 20_000 + random.Int64N(5_000), Lost: random.Int64N(3),
				P50Ns: p50, P99Ns: p50 + random.Int64N(5_000),
				P999Ns: p50 + 5_000 + random.Int64N(90_000), MaxNs: p50 + 100_000 + random.Int64N(900_000),
			})
		}
		if intervals > 0 {
			c.Attribution = slowest(random, 64)
		}
		d.Cells = append(d.Cells, c)
	}
	return d
}

// slowest returns an attribution with a number of slow samples.
func slowest(random *rand.Rand, n int64) *tool.Attribution {
	a := &tool.Attribution{Beyond: n, Examined: n, Neither: n}
	for range n {
		a.Slowest = append(a.Slowest, tool.Outlier{
			AtNs: random.Int64N(100e9), RTTNs: 100_000 + random.Int64N(900_000), Samples: 1, Where: tool.WhereNeither,
			ClientGapNs: random.Int64N(9_000), ServerGapNs: new(random.Int64N(9_000)),
		})
	}
	return a
}

func size(t testing.TB, d Document) int {
	t.Helper()
	framed, err := compress(d)
	if err != nil {
		t.Fatal(err)
	}
	return len(framed.Compressed)
}

// TestFitInAConfigMap takes 200 cells through all steps: they are reduced, framed, read, stored and read again.
func TestFitInAConfigMap(t *testing.T) {
	whole := large(t, 200, 128)
	limit := Share(v1alpha1.RoleClient, false)
	if n := size(t, whole); n <= limit {
		t.Fatalf("%d bytes fit in %d: nothing is tested", n, limit)
	}
	reduced, err := Fit(whole, limit)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(reduced.Reduced); n != 3 {
		t.Errorf("it says %d things of what was done, want 3: %q", n, reduced.Reduced)
	}
	log, _ := framed(t, reduced)
	client, err := ReadFrame(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	// The server's document takes its whole share, which leaves the least for the client's.
	_, server := ends(t)
	server.Document.Run, server.Document.Attempt = whole.Run, whole.Attempt
	server.Compressed = slices.Grow(server.Compressed, serverShare)[:serverShare]
	stored, err := NewStored(client, server, clientSeen, serverSeen)
	if err != nil {
		t.Fatal(err)
	}
	cm, err := stored.ConfigMap("big-r1", "ns", nil, owner)
	if err != nil {
		t.Fatal(err)
	}
	again, err := expand(cm.BinaryData[KeyClient], stored.ClientDigest)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(reduced, again.Document); diff != "" {
		t.Errorf("what was read again (-want +got):\n%s", diff)
	}
	for i := 0; i < len(whole.Cells); i += 40 {
		checkCoarse(t, whole.Cells[i].Histogram, again.Document.Cells[i].Histogram)
	}
}

// checkCoarse compares a reduced histogram with the original.
func checkCoarse(t *testing.T, fine, coarse Histogram) {
	t.Helper()
	if len(coarse.Encoded) >= len(fine.Encoded) {
		t.Errorf("%d bytes became %d", len(fine.Encoded), len(coarse.Encoded))
	}
	f, err := Merge(fine)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Merge(coarse)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range stats.Ladder() {
		was, is := stats.Quantile(f.Buckets, p), stats.Quantile(c.Buckets, p)
		if is < was || float64(is-was) > float64(was)*0.01 {
			t.Errorf("%s was %d and is %d", p.Name, was, is)
		}
	}
	f.Buckets, c.Buckets = nil, nil
	if diff := cmp.Diff(f, c); diff != "" {
		t.Errorf("besides the buckets (-fine +coarse):\n%s", diff)
	}
}

func TestFitStopsAsSoonAsItFits(t *testing.T) {
	whole := large(t, 3, 100)
	original := large(t, 3, 100)
	// The size after each reduction.
	sizes, steps := []int{size(t, whole)}, whole
	steps.Cells = slices.Clone(whole.Cells)
	for _, r := range reductions {
		if err := r.reduce(&steps); err != nil {
			t.Fatal(err)
		}
		steps.Reduced = append(steps.Reduced, r.said)
		sizes = append(sizes, size(t, steps))
	}
	for n, limit := range sizes {
		got, err := Fit(whole, limit)
		if err != nil {
			t.Fatalf("%d reductions: %v", n, err)
		}
		if len(got.Reduced) != n || n > 0 && got.Reduced[n-1] != reductions[n-1].said {
			t.Errorf("into %d bytes: %q, want the first %d reductions", limit, got.Reduced, n)
		}
		if figures := got.Cells[0].Figures != nil; figures != (n < 1) {
			t.Errorf("after %d reductions: figures %t", n, figures)
		}
		if left := len(got.Cells[0].Attribution.Slowest); left != []int{64, 0, 0, 0}[n] {
			t.Errorf("after %d reductions: %d slow samples", n, left)
		}
		if left := len(got.Cells[0].Intervals); (left == 100) != (n < 2) {
			t.Errorf("after %d reductions: %d intervals", n, left)
		}
		if same := got.Cells[0].Histogram == whole.Cells[0].Histogram; same != (n < 3) {
			t.Errorf("after %d reductions: the histogram is the same: %t", n, same)
		}
		if diff := cmp.Diff(original, whole); diff != "" {
			t.Fatalf("what was given was changed (-before +after):\n%s", diff)
		}
	}
	if got, err := Fit(whole, sizes[len(reductions)]-1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("into less than the least: %q, %v", got.Reduced, err)
	}
}

func TestFitReducesEveryHistogram(t *testing.T) {
	fine := recorded(t, wide(1, 5_000)...)
	want, err := fine.coarse()
	if err != nil {
		t.Fatal(err)
	}
	d := Document{
		Version: Version, Role: v1alpha1.RoleServer,
		Cells:    []Cell{{Histogram: fine, ActualStart: new(fine)}, {Own: &tool.Own{}}},
		Captured: []Captured{{Histogram: fine}, {}},
	}
	got, err := Fit(d, size(t, d)/2)
	if err != nil {
		t.Fatal(err)
	}
	if got.Cells[0].Histogram != want || *got.Cells[0].ActualStart != want || got.Captured[0].Histogram != want {
		t.Error("not all histograms have fewer digits")
	}
	if *d.Cells[0].ActualStart != fine || d.Captured[0].Histogram != fine {
		t.Error("what was given was changed")
	}
	if diff := cmp.Diff([]string{reductions[len(reductions)-1].said}, got.Reduced); diff != "" {
		t.Errorf("what had nothing to reduce is said all the same (-want +got):\n%s", diff)
	}
	again, err := Fit(got, size(t, got))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("what fits was changed (-want +got):\n%s", diff)
	}
}

func TestFitRefusesWhatItCannotRead(t *testing.T) {
	d := large(t, 1, 0)
	d.Cells[0].Histogram.Count++
	if _, err := Fit(d, 10); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

func TestShares(t *testing.T) {
	for _, capture := range []bool{false, true} {
		client, server := Share(v1alpha1.RoleClient, capture), Share(v1alpha1.RoleServer, capture)
		if client+server != maxStored || server <= 0 || client < server {
			t.Errorf("with capture %t: client %d, server %d of %d bytes", capture, client, server, maxStored)
		}
	}
}

func TestJoinIntervals(t *testing.T) {
	for _, n := range []int{33, 64, 65, 100, 128, 1000} {
		log := large(t, 1, n).Cells[0].Intervals
		joined := joinIntervals(log)
		if len(joined) > mostIntervals || len(joined) <= mostIntervals/2 {
			t.Errorf("%d intervals became %d", n, len(joined))
		}
		rest := log
		for i, j := range joined {
			want := tool.Interval{StartNs: rest[0].StartNs}
			for want.LengthNs < j.LengthNs && len(rest) > 0 {
				part := rest[0]
				want.LengthNs, want.Count, want.Lost = want.LengthNs+part.LengthNs, want.Count+part.Count, want.Lost+part.Lost
				want.P50Ns, want.P99Ns = max(want.P50Ns, part.P50Ns), max(want.P99Ns, part.P99Ns)
				want.P999Ns, want.MaxNs = max(want.P999Ns, part.P999Ns), max(want.MaxNs, part.MaxNs)
				rest = rest[1:]
			}
			if diff := cmp.Diff(want, j); diff != "" {
				t.Errorf("%d intervals, joined %d (-want +got):\n%s", n, i, diff)
			}
		}
		if len(rest) > 0 {
			t.Errorf("%d intervals: the last %d are gone", n, len(rest))
		}
	}
}

// A histogram with fewer digits must be the same whether samples are merged before or after the reduction.
func TestMergeMixedDigits(t *testing.T) {
	a := recorded(t, wide(1, 3_000)...)
	b := recorded(t, append(skewed(2, 3_000), 1, 255, 256, 2_047, 2_048, highest, highest+1)...)
	coarseA, err := a.coarse()
	if err != nil {
		t.Fatal(err)
	}
	coarseB, err := b.coarse()
	if err != nil {
		t.Fatal(err)
	}
	want, err := Merge(coarseA, coarseB)
	if err != nil {
		t.Fatal(err)
	}
	for name, hs := range map[string][]Histogram{"coarse first": {coarseA, b}, "coarse last": {a, coarseB}} {
		got, err := Merge(hs...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, h := range []struct{ fine, coarse Histogram }{{a, coarseA}, {b, coarseB}} {
		checkCoarse(t, h.fine, h.coarse)
	}
}
