package plan

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// The ports of a run, in the pods' own network namespaces (or the nodes', with network type Host).
const (
	// ControlPort is where the server's agent listens for the client's.
	ControlPort = 22047
	// ToolPort is where the tool's server listens. Some tools open ephemeral ports as well.
	ToolPort = 22048
)

// Task is what one agent has to do. The controller gives it to the pod as JSON in the environment.
type Task struct {
	// Run, Variant, Attempt and Role (client or server) say whose task this is.
	Run     string `json:"run"`
	Variant string `json:"variant"`
	Attempt int32  `json:"attempt"`
	Role    string `json:"role"`
	// Tool measures Cells, in this order.
	Tool  v1alpha1.Tool `json:"tool"`
	Cells []tool.Cell   `json:"cells"`
	// Interface is the measured interface where the network gives it a known name (net1); empty: the
	// interface that has the pod's address.
	Interface string `json:"interface,omitempty"`
	// Capture makes the server's agent take latencies from packets, too.
	Capture bool `json:"capture,omitempty"`
	// ServerAddress is the server's address on the measured network, and Token (the UID of the server's pod)
	// what the server asks of its client. Both for the client only.
	ServerAddress string `json:"serverAddress,omitempty"`
	Token         string `json:"token,omitempty"`
	// Deadline bounds everything the agent does from its start.
	Deadline time.Duration `json:"deadline"`
}

// Encode returns the task as JSON.
func (t Task) Encode() (string, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("encoding the task: %w", err)
	}
	return string(data), nil
}

// DecodeTask reads a task and checks that it is complete.
func DecodeTask(data string) (Task, error) {
	var t Task
	if err := json.Unmarshal([]byte(data), &t); err != nil {
		return Task{}, fmt.Errorf("reading the task: %w", err)
	}
	switch {
	case t.Run == "" || t.Attempt < 1:
		return Task{}, fmt.Errorf("reading the task: run %q, attempt %d", t.Run, t.Attempt)
	case t.Role != v1alpha1.RoleClient && t.Role != v1alpha1.RoleServer:
		return Task{}, fmt.Errorf("reading the task: role %q is neither client nor server", t.Role)
	case len(t.Cells) == 0:
		return Task{}, fmt.Errorf("reading the task: no cells")
	case t.Deadline <= 0:
		return Task{}, fmt.Errorf("reading the task: deadline %s", t.Deadline)
	case t.Variant == "":
		return Task{}, fmt.Errorf("reading the task: no variant")
	case t.Role == v1alpha1.RoleClient && (t.ServerAddress == "" || t.Token == ""):
		return Task{}, fmt.Errorf("reading the task: a client needs serverAddress and token")
	}
	return t, nil
}
