package export

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// measured returns a benchmark as a cluster has it: two rounds at a rate, with both start times.
func measured(t testing.TB, name string) Benchmark {
	t.Helper()
	b := &v1alpha1.LatencyBenchmark{
		ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: name, UID: types.UID("uid-of-" + name)},
		Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
			Tool: v1alpha1.ToolPinger, Rounds: 2, LatencyType: v1alpha1.LatencyHalfRTT, Network: v1alpha1.Network{Type: v1alpha1.NetworkPod},
			Workload: v1alpha1.Workload{
				Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}, MessageSizes: []int32{64}, RatesPerSecond: []int32{1_000},
				Duration: metav1.Duration{Duration: time.Second}, Warmup: metav1.Duration{Duration: time.Second},
				Wait: v1alpha1.WaitBlock, Muxer: v1alpha1.MuxerNone,
			},
			Placement: v1alpha1.Placement{CPUs: 1, Memory: resource.MustParse("512Mi"), NUMAPolicy: v1alpha1.NUMARequired, Client: &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "a"}}, Server: &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "b"}}},
		}},
	}
	b.Status.ObservedGeneration = 1
	all := Benchmark{Object: b}
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, run := range plan.Runs(b) {
		client := result.Document{Version: result.Version, Run: run.Name, Variant: run.Variant.Name, Attempt: 1, Role: v1alpha1.RoleClient, Evidence: result.Evidence{Node: "a"}}
		for _, cell := range run.Cells {
			at := began.Add(time.Duration(run.Round) * time.Minute)
			client.Cells = append(client.Cells, result.Cell{
				Cell: cell, ToolVersion: "1", StartedAt: at, FinishedAt: at.Add(time.Second), Start: tool.StartIntended,
				Histogram: histogram(t, 20_000*int64(run.Round)), ActualStart: new(histogram(t, 19_000*int64(run.Round))),
			})
		}
		server := result.Document{Version: result.Version, Run: run.Name, Variant: run.Variant.Name, Attempt: 1, Role: v1alpha1.RoleServer, Evidence: result.Evidence{Node: "b"}}
		stored, err := result.NewStored(framed(t, client), framed(t, server), result.Seen{PodUID: "c"}, result.Seen{PodUID: "s"})
		if err != nil {
			t.Fatal(err)
		}
		all.Runs = append(all.Runs, stored)
		b.Status.Stored = append(b.Status.Stored, v1alpha1.StoredResult{
			ConfigMap: run.Name, Run: run.Name, SHA256: stored.ClientDigest, ServerSHA256: stored.ServerDigest, PodsSHA256: stored.PodsDigest,
		})
	}
	return all
}

// mesh returns a matrix of two pairs. Only the first is measured.
func mesh(t testing.TB) Benchmark {
	t.Helper()
	template := measured(t, "mesh").Object
	template.Spec.Placement.Client, template.Spec.Placement.Server = &v1alpha1.EndpointPlacement{}, &v1alpha1.EndpointPlacement{}
	m := &v1alpha1.LatencyMatrix{ObjectMeta: template.ObjectMeta, Spec: v1alpha1.LatencyMatrixSpec{
		Topology: v1alpha1.TopologyRing, Parallelism: 1, Nodes: v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
		Template: v1alpha1.LatencyBenchmarkTemplate{Spec: template.Spec.MeasurementSpec},
	}}
	m.Status.ObservedGeneration = 1
	all := Benchmark{Object: m.Overview(), Matrix: m}
	for i := range int32(2) {
		p := measured(t, m.PairName(i+1))
		p.Object.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyMatrix", Name: "mesh", UID: m.UID}}
		if i > 0 {
			p.Object.Status, p.Runs = v1alpha1.LatencyBenchmarkStatus{ObservedGeneration: -1}, nil
		}
		all.Pairs = append(all.Pairs, p)
	}
	return all
}

func framed(t testing.TB, d result.Document) result.Framed {
	t.Helper()
	var sent bytes.Buffer
	if err := result.WriteFrame(&sent, d); err != nil {
		t.Fatal(err)
	}
	f, err := result.ReadFrame(&sent)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// histogram returns 2,000 samples, 1 ns apart, that start at first.
func histogram(t testing.TB, first int64) result.Histogram {
	t.Helper()
	r := result.NewRecorder()
	for i := range int64(2_000) {
		r.Record(first + i)
	}
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// exported writes a benchmark into a new directory.
func exported(t testing.TB, b Benchmark) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "results", b.Object.Name)
	if _, err := Write(dir, b, false); err != nil {
		t.Fatal(err)
	}
	return dir
}

// printed returns the JSON that get prints for a benchmark.
func printed(t testing.TB, b Benchmark) string {
	t.Helper()
	form, err := report.FormNamed("json")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := form.Write(&out, b.Object, b.Runs); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Read returns the written object, results and digests, including those of pairs.
func TestWriteRead(t *testing.T) {
	for _, b := range []Benchmark{measured(t, "sweep"), mesh(t)} {
		dir := exported(t, b)
		got, err := ReadDir(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if got.Dir != dir || len(got.Pairs) != len(b.Pairs) || len(got.Runs) != len(b.Runs) {
			t.Fatalf("got %d runs and %d pairs of %s", len(got.Runs), len(got.Pairs), got.Dir)
		}
		for i, want := range append([]Benchmark{b}, b.Pairs...) {
			got := append([]Benchmark{got}, got.Pairs...)[i]
			if diff := cmp.Diff(want.Object.Spec, got.Object.Spec); diff != "" {
				t.Errorf("spec of %s (-want +got):\n%s", want.Object.Name, diff)
			}
			if diff := cmp.Diff(want.Object.Status, got.Object.Status); diff != "" {
				t.Errorf("status of %s (-want +got):\n%s", want.Object.Name, diff)
			}
			if diff := cmp.Diff(printed(t, want), printed(t, got)); diff != "" {
				t.Errorf("results of %s (-want +got):\n%s", want.Object.Name, diff)
			}
		}
	}
}

// Exporting an export again gives identical bytes. The export of a pair is a complete export.
func TestWriteIsDeterministic(t *testing.T) {
	dir := exported(t, mesh(t))
	first, err := ReadDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	again := exported(t, first)
	if diff := cmp.Diff(files(t, dir), files(t, again)); diff != "" {
		t.Error(diff)
	}
	pair, err := ReadDir(t.Context(), filepath.Join(again, "pairs", "mesh-p1"))
	if err != nil || pair.Object.Name != "mesh-p1" || len(pair.Runs) != 2 {
		t.Errorf("got %+v, %v", pair.Object, err)
	}
}

// files returns all files of a directory.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		all[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The files hold the percentiles of the results, in microseconds, in the format that hdr-plot and HdrHistogram's plotter
// read: four numbers per line, and three in the last one.
func TestPercentiles(t *testing.T) {
	all := files(t, exported(t, measured(t, "sweep")))
	for name, want := range map[string]struct{ median, most float64 }{
		"udp-64-at-1000.hgrm":                     {10.999, 21.007},
		"udp-64-at-1000-round-1.hgrm":             {10.503, 10.999},
		"udp-64-at-1000-from-actual-round-2.hgrm": {19.503, 19.999},
	} {
		text, ok := all["histograms/default/"+name]
		if !ok {
			t.Fatalf("there is no %s", name)
		}
		if !strings.HasPrefix(text, "       Value     Percentile TotalCount 1/(1-Percentile)\n\n") || strings.Count(text, "\n#[") != 4 || !strings.HasSuffix(text, "\n#[Tailgate: us of type HalfRTT]\n") {
			t.Errorf("%s is\n%s", name, text)
		}
		line := regexp.MustCompile(`(?m)^\s+([0-9.]+)\s+([0-9.]+)\s+([0-9]+)(?:\s+([0-9.]+))?$`)
		var median, last, count string
		for _, m := range line.FindAllStringSubmatch(text, -1) {
			if m[2] == "0.500000000000" {
				median = m[1]
			}
			last, count = m[1], m[3]
			p, _ := strconv.ParseFloat(m[2], 64)
			if inverted, _ := strconv.ParseFloat(m[4], 64); m[4] != "" && fmt.Sprintf("%.2f", 1/(1-p)) != fmt.Sprintf("%.2f", inverted) {
				t.Errorf("%s: %s does not belong to %s", name, m[4], m[2])
			}
		}
		samples := "2000"
		if !strings.Contains(name, "round") {
			samples = "4000"
		}
		if median != fmt.Sprintf("%.3f", want.median) || last != fmt.Sprintf("%.3f", want.most) || count != samples {
			t.Errorf("%s has median %s and ends with %s, %s samples\n%s", name, median, last, count, text)
		}
	}
}

// The file holds the stored slowest samples, a line each, of the rounds that have some: older agents reported none.
func TestSlowest(t *testing.T) {
	b := measured(t, "sweep")
	b.Runs[0].Client.Cells[0].Attribution = &tool.Attribution{Beyond: 9, Examined: 8, Client: 8}
	b.Runs[1].Client.Cells[0].Attribution = &tool.Attribution{Beyond: 9, Examined: 8, Client: 7, Undetermined: 1, Slowest: []tool.Outlier{
		{AtNs: 123_456_789, RTTNs: 5_000_000, Samples: 7, Where: tool.WhereClient, ClientGapNs: 4_900_000, ServerGapNs: new(int64(0))},
		{AtNs: 4, RTTNs: 3_000, Samples: 1, Where: tool.WhereUndetermined},
	}}
	all := files(t, exported(t, b))
	want := "round,at_ns,rtt_ns,samples,where,client_gap_ns,server_gap_ns\n2,123456789,5000000,7,client,4900000,0\n2,4,3000,1,undetermined,0,\n"
	if diff := cmp.Diff(want, all["slowest/default/udp-64-at-1000.csv"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name := range all {
		if strings.HasPrefix(name, "slowest/") && name != "slowest/default/udp-64-at-1000.csv" {
			t.Errorf("there is %s, too", name)
		}
	}
}

// HdrHistogram's own reader finds every round in the log. Comments name the messages that are not in it.
func TestHistogramLog(t *testing.T) {
	b := measured(t, "sweep")
	b.Runs[1].Client.Cells[0].Lost = 3
	log := files(t, exported(t, b))["histograms/default/udp-64-at-1000.hlog"]
	if want := "#[Tailgate: not in this log are 3 lost, 0 unrecorded and 0 out-of-range messages of round 2]\n"; strings.Count(log, "not in this log") != 1 || !strings.Contains(log, want) {
		t.Errorf("no %q in\n%s", want, log)
	}
	r := hdr.NewHistogramLogReader(strings.NewReader(log))
	for round := int64(1); round <= 2; round++ {
		h, err := r.NextIntervalHistogram()
		if err != nil || h == nil {
			t.Fatalf("round %d: %v in\n%s", round, err, log)
		}
		if h.TotalCount() != 2_000 || h.Min() != 20_000*round || h.EndTimeMs()-h.StartTimeMs() != 1_000 {
			t.Errorf("round %d has %d samples from %d, of %d ms", round, h.TotalCount(), h.Min(), h.EndTimeMs()-h.StartTimeMs())
		}
	}
	if h, err := r.NextIntervalHistogram(); h != nil {
		t.Errorf("there is more: %v", err)
	}
}

// Only an export can be overwritten, and only on request. No other files are left in the directory.
func TestWriteOverwritesNothing(t *testing.T) {
	b := measured(t, "sweep")
	parent := t.TempDir()
	dir := filepath.Join(parent, "sweep")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, replace := range []bool{false, true} {
		if _, err := Write(dir, b, replace); !errors.Is(err, ErrExists) {
			t.Errorf("replace %t over what is no export: %v", replace, err)
		}
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	first, err := Write(dir, b, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, measured(t, "other"), false); !errors.Is(err, ErrExists) {
		t.Errorf("over an export: %v", err)
	}
	second, err := Write(dir, measured(t, "other"), true)
	if err != nil || first.ManifestSHA256 == second.ManifestSHA256 {
		t.Errorf("got %v, %v", second, err)
	}
	if got, err := ReadDir(t.Context(), dir); err != nil || got.Object.Name != "other" {
		t.Errorf("got %v", err)
	}
	if entries, _ := os.ReadDir(parent); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

// An export that cannot be written leaves no files.
func TestWriteIsWholeOrNotAtAll(t *testing.T) {
	b := measured(t, "sweep")
	b.Runs[1].Client.Cells[0].Histogram.Count++
	parent := t.TempDir()
	if _, err := Write(filepath.Join(parent, "sweep"), b, false); !errors.Is(err, result.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	if entries, _ := os.ReadDir(parent); len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// An export is refused if any of its files is missing, shorter, longer or changed.
func TestReadRefusesDamage(t *testing.T) {
	for name, b := range map[string]Benchmark{"sweep": measured(t, "sweep"), "mesh": mesh(t)} {
		dir := exported(t, b)
		all := files(t, dir)
		for file, content := range all {
			for damage, change := range map[string]func(string) []byte{
				"missing": func(string) []byte { return nil },
				"empty":   func(string) []byte { return []byte{} },
				"shorter": func(s string) []byte { return []byte(s[:len(s)/2]) },
				"longer":  func(s string) []byte { return []byte(s + " x") },
				"changed": func(s string) []byte { return []byte(s[:len(s)/2] + string(s[len(s)/2]^1) + s[len(s)/2+1:]) },
			} {
				fsys := fstest.MapFS{}
				for other, content := range all {
					fsys[other] = &fstest.MapFile{Data: []byte(content)}
				}
				if file == manifestFile && damage == "changed" {
					continue // The byte may belong to a name or to white space; see the next test.
				}
				if changed := change(content); changed == nil {
					delete(fsys, file)
				} else {
					fsys[file].Data = changed
				}
				_, err := Read(t.Context(), fsys)
				want := ErrDamaged
				if file == manifestFile && damage == "missing" {
					want = ErrNone
				}
				if !errors.Is(err, want) {
					t.Errorf("%s, %s %s: %v", name, file, damage, err)
				}
			}
		}
	}
}

// A new manifest for changed files does not pass the digests in the status, and an object other than a LatencyBenchmark is
// refused.
func TestReadRefusesWhatDoesNotFit(t *testing.T) {
	other := files(t, exported(t, measured(t, "other")))
	cases := map[string]struct {
		of     Benchmark
		change func(files map[string]string)
		want   string
	}{
		"a result of another benchmark": {change: func(all map[string]string) {
			for _, key := range []string{result.KeyClient, result.KeyServer, result.KeyPods} {
				all["runs/sweep-r1/"+key] = other["runs/other-r1/"+key]
			}
		}, want: "digest"},
		"a changed result": {change: func(all map[string]string) { all["runs/sweep-r1/pods.json"] += " " }, want: "digest"},
		"a run that is missing": {change: func(all map[string]string) {
			delete(all, "runs/sweep-r1/server.json.gz")
		}, want: "does not list runs/sweep-r1/server.json.gz"},
		"a benchmark of another name": {change: func(all map[string]string) { all[benchmarkFile] = other[benchmarkFile] }, want: "contains perf/other"},
		"a benchmark of another name, which claims the same UID": {change: func(all map[string]string) {
			all[benchmarkFile] = strings.Replace(all[benchmarkFile], `"name": "sweep"`, `"name": "swept"`, 1)
		}, want: "contains perf/swept"},
		"a benchmark of another namespace": {change: func(all map[string]string) {
			all[benchmarkFile] = strings.Replace(all[benchmarkFile], `"namespace": "perf"`, `"namespace": "prod"`, 1)
		}, want: "contains prod/sweep"},
		"a benchmark of the same name that was created again": {change: func(all map[string]string) {
			all[benchmarkFile] = strings.Replace(all[benchmarkFile], `"uid": "uid-of-sweep"`, `"uid": "uid-of-another"`, 1)
		}, want: "contains perf/sweep"},
		"no benchmark": {change: func(all map[string]string) { delete(all, benchmarkFile) }, want: "does not list benchmark.json"},
		"too many rounds": {change: func(all map[string]string) {
			all[benchmarkFile] = strings.Replace(all[benchmarkFile], `"rounds": 2`, `"rounds": 2000000000`, 1)
		}, want: "spec.rounds"},
		"another kind": {change: func(all map[string]string) {
			all[benchmarkFile] = strings.Replace(all[benchmarkFile], `"kind": "LatencyBenchmark"`, `"kind": "Secret"`, 1)
		}, want: "Secret"},
		"a run that leads elsewhere": {change: func(all map[string]string) {
			all[benchmarkFile] = strings.Replace(all[benchmarkFile], `"run": "sweep-r1"`, `"run": "../../etc"`, 1)
		}, want: "is not a name of a run"},
		"a pair of another": {of: mesh(t), change: func(all map[string]string) {
			all["pairs/mesh-p2/"+benchmarkFile] = strings.Replace(all["pairs/mesh-p2/"+benchmarkFile], `"uid": "uid-of-mesh"`, `"uid": "uid-of-meshes"`, 1)
		}, want: "is not a pair of mesh"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.of.Object == nil {
				c.of = measured(t, "sweep")
			}
			all := files(t, exported(t, c.of))
			c.change(all)
			_, err := Read(t.Context(), rewritten(all))
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

// rewritten returns files with manifests that match their current content.
func rewritten(all map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, content := range all {
		fsys[name] = &fstest.MapFile{Data: []byte(content)}
	}
	manifests := []string{manifestFile}
	for name := range all {
		if path.Base(name) == manifestFile && name != manifestFile {
			manifests = append([]string{name}, manifests...)
		}
	}
	for _, name := range manifests {
		var m result.Manifest
		if json.Unmarshal(fsys[name].Data, &m) != nil {
			continue
		}
		m.Files = nil
		for file, content := range fsys {
			if rest, within := strings.CutPrefix(file, strings.TrimSuffix(path.Dir(name)+"/", "./")); within && rest != manifestFile {
				m.Files = append(m.Files, result.NewFile(rest, content.Data))
			}
		}
		fsys[name].Data, _ = json.Marshal(m)
	}
	return fsys
}

// Links to files outside the directory are not followed.
func TestReadDirStaysInside(t *testing.T) {
	dir := exported(t, measured(t, "sweep"))
	csv := filepath.Join(dir, "results.csv")
	outside := filepath.Join(t.TempDir(), "results.csv")
	if err := os.Rename(csv, outside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, csv); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadDir(t.Context(), dir); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
}

// A file that is no regular file is not opened: reading a FIFO would never end.
func TestReadOpensOnlyRegularFiles(t *testing.T) {
	for _, name := range []string{"results.csv", manifestFile} {
		dir := exported(t, measured(t, "sweep"))
		file := filepath.Join(dir, name)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(file, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadDir(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a manifest lists is bounded before any file is read.
func TestReadRefusesUnboundedManifests(t *testing.T) {
	file := func(path string, bytes int64) result.File { return result.File{Path: path, Bytes: bytes} }
	var many []result.File
	for i := range maxTotalBytes/maxFileBytes + 1 {
		many = append(many, file(fmt.Sprint(i), maxFileBytes))
	}
	for name, m := range map[string]result.Manifest{
		"a file that is too large":   {Files: []result.File{file("x", maxFileBytes+1)}},
		"a negative size":            {Files: []result.File{file("x", -1)}},
		"files of too much together": {Files: many},
		"a file twice":               {Files: []result.File{file("x", 1), file("x", 1)}},
		"a pair twice":               {Pairs: []string{"a", "b", "a"}},
	} {
		m.Format, m.Version = result.ExportFormat, result.ExportVersion
		content, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		_, err = parseManifest(content)
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A manifest of more files is refused before a map of them is made.
func TestReadBoundsTheFilesOfAManifest(t *testing.T) {
	for n, want := range map[int]string{maxFiles: "lists a file or a pair twice", maxFiles + 1: fmt.Sprintf("lists %d files", maxFiles+1)} {
		files := strings.Repeat("{},", n)
		content := fmt.Sprintf(`{"format": %q, "version": %d, "files": [%s]}`, result.ExportFormat, result.ExportVersion, files[:len(files)-1])
		if _, err := parseManifest([]byte(content)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d files: %v", n, err)
		}
	}
}

// A quantity that would take minutes to decode is refused by the definition of the kind.
func TestReadRefusesHugeExponents(t *testing.T) {
	for _, amount := range []string{"1e99999999", "1e-99999999", "1e999999999"} {
		changed := files(t, exported(t, measured(t, "sweep")))
		var b map[string]any
		if err := json.Unmarshal([]byte(changed[benchmarkFile]), &b); err != nil {
			t.Fatal(err)
		}
		b["spec"].(map[string]any)["placement"].(map[string]any)["memory"] = amount
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		changed[benchmarkFile] = string(text)
		if _, err := Read(t.Context(), rewritten(changed)); err == nil || !strings.Contains(err.Error(), "must be a quantity from 128Mi to 64Gi") {
			t.Errorf("%s: %v", amount, err)
		}
	}
}

func TestReadRefusesOtherFormats(t *testing.T) {
	for content, want := range map[string]string{
		`{"format": "tailgate-export", "version": 2}`: "version 2",
		`{"format": "tar"}`:                           `"tar"`,
		`{}`:                                          `""`,
	} {
		_, err := Read(t.Context(), fstest.MapFS{manifestFile: {Data: []byte(content)}})
		if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", content, err)
		}
	}
}

// Any manifest is refused or read.
func FuzzReadManifest(f *testing.F) {
	all := files(f, exported(f, mesh(f)))
	f.Add([]byte(all[manifestFile]))
	f.Add([]byte(`{"format":"tailgate-export","version":1,"files":[{"path":"../x","bytes":-1}],"pairs":["..",""]}`))
	f.Fuzz(func(t *testing.T, manifest []byte) {
		fsys := fstest.MapFS{}
		for name, content := range all {
			fsys[name] = &fstest.MapFile{Data: []byte(content)}
		}
		fsys[manifestFile].Data = manifest
		b, err := Read(t.Context(), fsys)
		if err == nil && b.Object.Name != "mesh" {
			t.Errorf("it read %s", b.Object.Name)
		}
	})
}

// Any LatencyBenchmark and pod observations with a matching manifest are refused, or can be shown.
func FuzzReadContent(f *testing.F) {
	all := files(f, exported(f, measured(f, "sweep")))
	f.Add([]byte(all[benchmarkFile]), []byte(all["runs/sweep-r1/pods.json"]))
	f.Fuzz(func(t *testing.T, benchmark, pods []byte) {
		changed := map[string]string{}
		for name, content := range all {
			changed[name] = content
		}
		changed[benchmarkFile], changed["runs/sweep-r1/pods.json"] = string(benchmark), string(pods)
		b, err := Read(t.Context(), rewritten(changed))
		if err != nil {
			return
		}
		for _, form := range report.Forms() {
			_ = form.Write(&bytes.Buffer{}, b.Object, b.Runs) // It may return an error but must not panic.
		}
	})
}

// nothing is passed what ReadConfigMap reads.
func nothing(*v1alpha1.LatencyBenchmark) error { return nil }

func TestReadConfigMapRefuses(t *testing.T) {
	good, sum, err := ConfigMap(measured(t, "sweep"), "x")
	if err != nil {
		t.Fatal(err)
	}
	bomb := new(bytes.Buffer)
	z := gzip.NewWriter(bomb)
	_, _ = z.Write(make([]byte, maxExpanded+1))
	_ = z.Close()
	for name, c := range map[string]struct {
		change func(map[string][]byte)
		want   error
	}{
		"nothing wrong":    {func(map[string][]byte) {}, nil},
		"no manifest":      {func(d map[string][]byte) { delete(d, "manifest.json") }, ErrNone},
		"another manifest": {func(d map[string][]byte) { d["manifest.json"] = append(d["manifest.json"], ' ') }, ErrDigest},
		"no benchmark":     {func(d map[string][]byte) { delete(d, "benchmark.json") }, ErrDamaged},
		"another one":      {func(d map[string][]byte) { d["benchmark.json"] = append(d["benchmark.json"], ' ') }, ErrDamaged},
		"a run less":       {func(d map[string][]byte) { delete(d, "runs_sweep-r2_pods.json") }, ErrDamaged},
		"another run":      {func(d map[string][]byte) { d["runs_sweep-r2_client.json.gz"] = d["runs_sweep-r1_client.json.gz"] }, ErrDamaged},
		"too large":        {func(d map[string][]byte) { d["more"] = make([]byte, maxConfigMap) }, ErrTooLarge},
		"a bomb":           {func(d map[string][]byte) { d["more.gz"] = bomb.Bytes() }, ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			cm := good.DeepCopy()
			c.change(cm.BinaryData)
			runs := 0
			err := ReadConfigMap(t.Context(), cm, sum, nothing, func(result.Stored) error { runs++; return nil })
			if !errors.Is(err, c.want) || c.want == nil && runs != 2 {
				t.Errorf("read %d runs: %v, want %v", runs, err, c.want)
			}
		})
	}
	if _, _, err := ConfigMap(exportedAs(t, mesh(t)), "x"); err == nil {
		t.Error("a matrix was taken")
	}
}

// exportedAs returns a benchmark as it is read from its export.
func exportedAs(t testing.TB, b Benchmark) Benchmark {
	t.Helper()
	read, err := ReadDir(t.Context(), exported(t, b))
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// Any content of a ConfigMap whose manifest has the digest is read, or refused with one of the errors for which there is a remedy.
func FuzzReadConfigMap(f *testing.F) {
	good, _, err := ConfigMap(measured(f, "sweep"), "x")
	if err != nil {
		f.Fatal(err)
	}
	const client, observed = "runs_sweep-r1_client.json.gz", "runs_sweep-r1_pods.json"
	f.Add([]byte(nil), good.BinaryData["benchmark.json"], good.BinaryData[client], good.BinaryData[observed])
	f.Add(good.BinaryData[manifestFile], []byte("{}"), []byte{}, []byte("[]"))
	f.Fuzz(func(t *testing.T, manifest, benchmark, run, pods []byte) {
		cm := good.DeepCopy()
		cm.BinaryData["benchmark.json"], cm.BinaryData[client], cm.BinaryData[observed] = benchmark, run, pods
		if len(manifest) == 0 { // the manifest of these files
			all := map[string]string{}
			for _, name := range parsed(t, good.BinaryData[manifestFile]) {
				all[name] = string(cm.BinaryData[keyOf(name)])
			}
			all[manifestFile] = string(good.BinaryData[manifestFile])
			manifest = rewritten(all)[manifestFile].Data
		}
		cm.BinaryData[manifestFile] = manifest
		err := ReadConfigMap(t.Context(), cm, result.NewFile("", manifest).SHA256, nothing, func(result.Stored) error { return nil })
		known := func(target error) bool { return errors.Is(err, target) }
		if err != nil && !slices.ContainsFunc([]error{ErrNone, ErrDamaged, ErrTooLarge}, known) {
			t.Errorf("got %v", err)
		}
	})
}

// parsed returns the paths of the files of a manifest that a ConfigMap contains.
func parsed(t *testing.T, manifest []byte) (names []string) {
	t.Helper()
	var m result.Manifest
	if err := json.Unmarshal(manifest, &m); err != nil {
		t.Fatal(err)
	}
	for _, file := range m.Files {
		if file.Path == benchmarkFile || strings.HasPrefix(file.Path, runsDir+"/") {
			names = append(names, file.Path)
		}
	}
	return names
}
