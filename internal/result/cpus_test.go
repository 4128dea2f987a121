package result

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// upTo returns the numbers from 0 to n-1.
func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func TestParseCPUs(t *testing.T) {
	cases := map[string]struct {
		list    string
		want    []int
		wantErr bool
	}{
		"one":                                {list: "3", want: []int{3}},
		"the first":                          {list: "0", want: []int{0}},
		"a range":                            {list: "2-4", want: []int{2, 3, 4}},
		"a range of one":                     {list: "2-2", want: []int{2}},
		"singles and ranges":                 {list: "0,2-3,7", want: []int{0, 2, 3, 7}},
		"with the line's end, as in sysfs":   {list: "0-1\n", want: []int{0, 1}},
		"nothing":                            {list: "", wantErr: true},
		"an empty element":                   {list: "1,,2", wantErr: true},
		"a range without an end":             {list: "1-", wantErr: true},
		"a range to a word":                  {list: "1-x", wantErr: true},
		"a range without a beginning":        {list: "-1", wantErr: true},
		"a range that runs backwards":        {list: "4-2", wantErr: true},
		"words":                              {list: "none", wantErr: true},
		"spaces within":                      {list: "1, 2", wantErr: true},
		"more CPUs than there can be":        {list: "0-4294967295", wantErr: true},
		"all CPUs of a large machine":        {list: "0-8191", want: upTo(8192)},
		"ranges without end":                 {list: strings.Repeat("0-99,", 1000) + "0", wantErr: true},
		"a number that no integer can carry": {list: "99999999999999999999", wantErr: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseCPUs(c.list)
			if (err != nil) != c.wantErr {
				t.Fatalf("got error %v, want one: %t", err, c.wantErr)
			}
			if diff := cmp.Diff(c.want, got.List(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("CPUs (-want +got):\n%s", diff)
			}
		})
	}
}

// Every accepted list contains only CPU numbers that Linux could have.
func FuzzParseCPUs(f *testing.F) {
	for _, seed := range []string{"0", "0-3,8-11", "1,3-5\n", "-", "0-99999", ",", "+1", "1-2-3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		cpus, err := ParseCPUs(list)
		if err != nil {
			return
		}
		all := cpus.List()
		if len(all) == 0 {
			t.Fatalf("%q: accepted, without a CPU", list)
		}
		if all[0] < 0 || all[len(all)-1] > 99_999 {
			t.Errorf("%q: out of range: %v", list, all)
		}
		if again, err := ParseCPUs(cpus.String()); err != nil || !again.Equals(cpus) {
			t.Errorf("%q became %q", list, cpus)
		}
	})
}
