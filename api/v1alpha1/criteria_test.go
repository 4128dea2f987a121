package v1alpha1

import (
	"encoding/json"
	"testing"
	"time"
)

// A limit remains as the user wrote it.
func TestLimitJSON(t *testing.T) {
	for _, text := range []string{`"10us"`, `"5%"`, `"9G"`, `5`, `"5"`, `0`, `"0"`, `9000000000`, `-1`, `"-1"`, `"1e9"`, `"true"`, `"\"5\""`, `"µs"`, `" 5"`} {
		r := Rule{}
		written := `{"metric":"p99","max":` + text + `}`
		if err := json.Unmarshal([]byte(written), &r); err != nil {
			t.Error(text, err)
		} else if again, err := json.Marshal(r); err != nil || string(again) != written {
			t.Errorf("%s: %s, %v; want %s", text, again, err, written)
		}
	}
	for _, text := range []string{`""`, `null`} {
		r := Rule{}
		if err := json.Unmarshal([]byte(`{"metric":"p99","max":`+text+`}`), &r); err != nil || r.Max.Text != "" {
			t.Errorf("%s: %q, %v; want no limit", text, r.Max.Text, err)
		}
	}
}

func TestLimitValues(t *testing.T) {
	for text, want := range map[string]struct {
		duration            time.Duration
		number, thousandths int64
	}{
		"10us": {duration: 10 * time.Microsecond}, "2.5µs": {duration: 2500 * time.Nanosecond}, "1m": {duration: time.Minute, number: -1},
		"9G": {number: 9_000_000_000}, "2.5G": {number: 2_500_000_000}, "9000000000": {number: 9_000_000_000}, "5": {number: 5},
		"5%": {thousandths: 5000}, "2.125%": {thousandths: 2125}, "9999.999%": {thousandths: 9_999_999}, "much": {}, "": {}, "%": {}, "0.5": {}, "{}": {},
	} {
		limit := Limit{Text: text}
		duration, err := limit.Duration()
		if duration != want.duration || (err == nil) != (want.duration != 0) {
			t.Errorf("%s: %s, %v; want %s", text, duration, err, want.duration)
		}
		number, err := limit.Whole()
		if number != max(want.number, 0) || (err == nil) != (want.number > 0) {
			t.Errorf("%s: %d, %v; want %d", text, number, err, want.number)
		}
		thousandths, err := limit.Thousandths()
		if thousandths != want.thousandths || (err == nil) != (want.thousandths != 0) {
			t.Errorf("%s: %d, %v; want %d", text, thousandths, err, want.thousandths)
		}
	}
}
