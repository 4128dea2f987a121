package resulttest

import (
	"bytes"
	_ "embed"
	"encoding/json"

	"github.com/tailgate-dev/tailgate/internal/result"
)

//go:embed workload.json
var workload []byte

// Workload returns what an agent found on a local cluster of a Guaranteed pod with one CPU and one VF at net1.
func Workload() *result.Workload {
	w := &result.Workload{}
	if err := json.Unmarshal(workload, w); err != nil {
		panic(err)
	}
	return w
}

// InspectionLog returns the log of an agent that found these workloads one after the other.
func InspectionLog(all ...*result.Workload) string {
	var log bytes.Buffer
	for _, w := range all {
		if err := (result.Inspection{Version: result.InspectionVersion, Workload: w}).Write(&log); err != nil {
			panic(err)
		}
	}
	return log.String()
}
