package machine

import (
	"encoding/json"
	"fmt"
	"io"
)

// QMP executes a command of QEMU's monitor over a connection to it. arguments may be nil.
func QMP(line io.ReadWriter, command string, arguments any) error {
	type request struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}
	answers, requests := json.NewDecoder(line), json.NewEncoder(line)
	for _, r := range []request{{Execute: "qmp_capabilities"}, {command, arguments}} {
		if err := requests.Encode(r); err != nil {
			return fmt.Errorf("sending %s to QEMU: %w", r.Execute, err)
		}
		// The greeting and events come between the answers. An open monitor stays in command mode, so a second qmp_capabilities is an error.
		var answer struct{ Return, Error json.RawMessage }
		for answer.Return == nil && answer.Error == nil {
			if err := answers.Decode(&answer); err != nil {
				return fmt.Errorf("reading QEMU's answer to %s: %w", r.Execute, err)
			}
		}
		if answer.Error != nil && r.Execute != "qmp_capabilities" {
			return fmt.Errorf("%s: %s", r.Execute, answer.Error)
		}
	}
	return nil
}
