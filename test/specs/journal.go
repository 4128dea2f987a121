package specs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Journal is a log of JSON lines, as the manager writes it by default.
type Journal struct {
	sync.Mutex
	text bytes.Buffer
}

func (j *Journal) Write(line []byte) (int, error) {
	j.Lock()
	defer j.Unlock()
	return j.text.Write(line)
}

// Lines returns the lines for which want is true, without the values that differ between two runs.
func (j *Journal) Lines(want func(map[string]any) bool) []map[string]any {
	GinkgoHelper()
	j.Lock()
	text := j.text.String()
	j.Unlock()
	var all []map[string]any
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		Expect(repeatedKeys(line)).To(BeEmpty(), line)
		fields := map[string]any{}
		Expect(json.Unmarshal([]byte(line), &fields)).To(Succeed(), line)
		delete(fields, "ts")
		delete(fields, "reconcileID")
		if want(fields) {
			all = append(all, fields)
		}
	}
	return all
}

// repeatedKeys returns the keys that a JSON object has twice.
func repeatedKeys(object string) []string {
	var seen, twice []string
	d := json.NewDecoder(strings.NewReader(object))
	for depth, isKey := 0, true; ; {
		token, err := d.Token()
		if err != nil {
			return twice
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth, isKey = depth+1, true
			continue
		case json.Delim('}'), json.Delim(']'):
			depth, isKey = depth-1, true
			continue
		}
		if depth != 1 {
			continue
		}
		if key := fmt.Sprint(token); isKey && slices.Contains(seen, key) {
			twice = append(twice, key)
		} else if isKey {
			seen = append(seen, key)
		}
		isKey = !isKey
	}
}
