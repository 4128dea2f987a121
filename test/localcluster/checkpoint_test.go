//go:build e2e

package localcluster

import (
	"encoding/json"
	"testing"
)

// The contents are those of kubelets 1.36: one that released a container, one that was killed meanwhile, and one with a container.
func TestCheckpointIsWhole(t *testing.T) {
	for content, want := range map[string]bool{
		`{"policyName":"static","defaultCpuSet":"0-1","checksum":2}`:                                true,
		`{"policyName":"static","defaultCpuSet":"0","checksum":838766648}`:                          false,
		`{"policyName":"static","defaultCpuSet":"0","entries":{"8f1a":{"agent":"1"}},"checksum":3}`: true,
	} {
		var all checkpoint
		if err := json.Unmarshal([]byte(content), &all); err != nil {
			t.Fatal(err)
		}
		if whole, err := all.covers([]int{0, 1}); err != nil || whole != want {
			t.Errorf("%s: whole is %v, %v", content, whole, err)
		}
	}
}
