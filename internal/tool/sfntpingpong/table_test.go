package sfntpingpong

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// published is the directory with the published tables, from testdata.
const published = "../../../imported/published/"

// captured reads a captured session and returns the client's output; published tables consist of that only.
func captured(t testing.TB, name string) (stdout, stderr []byte) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := bytes.Cut(b, []byte("--- client stdout\n"))
	if !found {
		return b, nil
	}
	stdout, rest, _ = bytes.Cut(rest, []byte("--- client stderr\n"))
	stderr, _, _ = bytes.Cut(rest, []byte("--- client rc"))
	return stdout, stderr
}

func TestPublishedTables(t *testing.T) {
	type facts struct {
		Header      int
		Rows        int
		First, Last Row
		Version     string
		Onload      string
		Profile     string
		CPU         string
	}
	const src = "8dc3b027d85b28bedf9fd731362e4968"
	cases := map[string]facts{
		// For this file only the table was published; the library has added a comment and four lines of its header.
		"sfnt-e5-2620v4-full-feature.txt": {Header: 5, Rows: 17,
			First: Row{1, 2248, 2022, 2071, 4200847, 3239, 6349, 663000}, Last: Row{65536, 30909, 27770, 29450, 4078629, 66407, 22086, 49000},
			Version: "1.5.0"},
		"sfnt-e5-2620v4-ull.txt": {Header: 31, Rows: 17,
			First: Row{1, 1768, 1676, 1719, 50581, 2166, 158, 842000}, Last: Row{65536, 29156, 27571, 29151, 54446, 31152, 647, 52000},
			Version: "1.5.0 (src " + src + ")", Onload: "201811-u1", Profile: "100000", CPU: "model name : Intel(R) Xeon(R) CPU E5-2620 v4 @ 2.10GHz"},
		"sfnt-gold-6246-sfc9220.txt": {Header: 47, Rows: 17,
			First: Row{1, 1426, 1398, 1421, 39777, 1582, 67, 1000000}, Last: Row{65536, 58556, 58389, 58540, 60230, 58895, 93, 26000},
			Version: "1.5.0 (src " + src + ")", Onload: "201811-u1", Profile: "100000", CPU: "model name : Intel(R) Xeon(R) Gold 6246 CPU @ 3.30GHz"},
		"sfnt-gold-6246-sfc9250.txt": {Header: 47, Rows: 17,
			First: Row{1, 1384, 1314, 1376, 30745, 1551, 68, 1000000}, Last: Row{65536, 58915, 58605, 58891, 71188, 59351, 160, 26000},
			Version: "1.5.0 (src " + src + ")", Onload: "201811-u1", Profile: "100000", CPU: "model name : Intel(R) Xeon(R) Gold 6246 CPU @ 3.30GHz"},
		"sfnt-e5-2620v4-vm.txt": {Header: 23, Rows: 17,
			First: Row{1, 1942, 1725, 1833, 273704, 4923, 802, 766000}, Last: Row{65536, 29551, 26566, 28286, 352787, 40923, 3319, 51000},
			Version: "1.5.0 (src " + src + ")", Onload: "201811-u1", Profile: "100000", CPU: "model name : Intel Core Processor =191aa(Broadwell)"},
		"sfnt-gold-6246-vm.txt": {Header: 23, Rows: 17,
			First: Row{1, 1572, 1444, 1503, 291943, 2593, 388, 947000}, Last: Row{65536, 58755, 58383, 58683, 296877, 60411, 1645, 26000},
			Version: "1.5.0 (src " + src + ")", Onload: "201811-u1", Profile: "100000", CPU: "model name : Intel Xeon Processor (Skylake, IBRS)"},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			stdout, _ := captured(t, published+name)
			header, rows, err := ParseTable(stdout)
			if err != nil {
				t.Fatal(err)
			}
			got := facts{Header: len(header), Rows: len(rows), First: rows[0], Last: rows[len(rows)-1],
				Version: header.Version(), Onload: header.Value("onload_version"), Profile: header.Value("EF_POLL_USEC"),
				// The copies have non-breaking spaces where the tool printed several spaces.
				CPU: strings.Join(strings.Fields(header.Value("cpu")), " ")}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			full, err := header.FullRTT()
			if header != nil && (err != nil || full) {
				t.Errorf("the published tables are half RTT, got %v, %v", full, err)
			}
		})
	}
}

func TestCapturedTables(t *testing.T) {
	type facts struct {
		Sizes   []int64
		FullRTT bool
		Version string
		Date    string
		Driver  string
	}
	tcp := []int64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}
	const head = "bd7b04c-modified (src 799b5332e00ece1103853ac32418f51d)"
	cases := map[string]facts{
		"tcp.txt": {tcp, false, head, "Sat Nov 21 04:57:55 UTC 2026", "driver: veth"},
		"udp.txt": {[]int64{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1472, 1473, 2048, 4096, 8192, 16384, 32768}, false, head, "Sat Nov 21 04:58:11 UTC 2026", "driver: veth"},
		"rtt.txt": {[]int64{1, 64, 1024}, true, head, "Sat Nov 21 04:58:22 UTC 2026", "driver: veth"},
		"raw.txt": {[]int64{1, 64}, false, head, "Sat Nov 21 04:58:45 UTC 2026", "driver: veth"},
		// No child processes, so none of their output.
		"avoidfork.txt": {[]int64{1}, false, head, "", ""},
		// The unit of this output is not stated.
		"1.5.0-tcp.txt": {tcp[:11], false, "no-version (src 8dc3b027d85b28bedf9fd731362e4968)", "Sat Nov 21 05:49:48 UTC 2026", "driver: veth"},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			stdout, _ := captured(t, name)
			header, rows, err := ParseTable(stdout)
			if err != nil {
				t.Fatal(err)
			}
			got := facts{Version: header.Version(), Date: header.Value("date"), Driver: header.Value("rmv0")}
			for _, r := range rows {
				got.Sizes = append(got.Sizes, r.Size)
			}
			if got.FullRTT, err = header.FullRTT(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestHeaderOrderDoesNotMatter(t *testing.T) {
	stdout, _ := captured(t, "rtt.txt")
	lines := strings.SplitAfter(string(stdout), "\n")
	var header, rest []string
	for _, l := range lines {
		if strings.HasPrefix(l, "# ") {
			header = append([]string{l}, header...)
		} else {
			rest = append(rest, l)
		}
	}
	a, rowsA, err := ParseTable(stdout)
	if err != nil {
		t.Fatal(err)
	}
	b, rowsB, err := ParseTable([]byte(strings.Join(append(header, rest...), "")))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rowsA, rowsB); diff != "" || a.Version() != b.Version() {
		t.Errorf("rows differ: %s", diff)
	}
}

func TestParseTableRefuses(t *testing.T) {
	for name, output := range map[string]string{
		"other columns":           "#\tsize\tmean\tmin\tmedian\tp50\tmax\t%ile\tstddev\titer\n",
		"columns in other order":  "#\tsize\tmin\tmean\tmedian\tmax\t%ile\tstddev\titer\n",
		"a row that was cut off":  "\t1\t10938\t8337\t10",
		"a row with a fraction":   "\t1\t10938.5\t8337\t10686\t432611\t15712\t3879\t14000\n",
		"a number beyond 64 bits": "\t1\t10938\t8337\t10686\t99999999999999999999\t15712\t3879\t14000\n",
	} {
		t.Run(name, func(t *testing.T) {
			if header, rows, err := ParseTable([]byte(output)); err == nil {
				t.Errorf("got %+v, %+v", header, rows)
			}
		})
	}
}
