package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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

// What an agent finds in its container.
const (
	// Scratch is where the tools write their raw samples.
	Scratch = "/scratch"
	// EnvTask holds the Task, EnvNode and EnvPodIP what the pod knows of itself, and EnvKey the key of the benchmark's Secret.
	EnvTask  = "TAILGATE_TASK"
	EnvNode  = "TAILGATE_NODE"
	EnvPodIP = "TAILGATE_POD_IP"
	EnvKey   = "TAILGATE_KEY"
	// EnvInterface is the interface that an agent inspects; empty: that of the pod's address.
	EnvInterface = "TAILGATE_INTERFACE"
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
	// Interface is the measured interface where it has a known name: net1 of an attached network, or the one that a
	// variant of the host's network names. Empty: the interface that has the pod's address.
	Interface string `json:"interface,omitempty"`
	// Parent is the name, on the node, of the interface below Interface, where that is of type ipvlan or macvlan; empty when
	// it is not, or when the network does not name it.
	Parent string `json:"parent,omitempty"`
	// Acceleration says who carries the tools' messages; empty: the kernel.
	Acceleration v1alpha1.AccelerationType `json:"acceleration,omitempty"`
	// Library is Onload's library, which is preloaded into the tools: its path in the pod, or a name that the loader finds.
	// With Onload only.
	Library string `json:"library,omitempty"`
	// Env are variables of the tools' environment, by name: those of the variant and of its Onload profile. The kernel's
	// sockets have none of Onload's (EF_*), wherever they were set.
	Env map[string]string `json:"env,omitzero"`
	// Capture makes the server's agent take latencies from packets, too.
	Capture bool `json:"capture,omitempty"`
	// ServerAddress is the server's address on the measured network. For the client only.
	ServerAddress string `json:"serverAddress,omitempty"`
	// Deadline bounds everything the agent does from its start until it has written its result.
	Deadline time.Duration `json:"deadline"`
	// Linger is for how long the agent runs on after that, unless it is stopped. A kubelet reports a container that it stops
	// itself at once, and one that ends by itself up to a second later.
	Linger time.Duration `json:"linger,omitempty"`
}

var accelerations = []v1alpha1.AccelerationType{"", v1alpha1.AccelerationKernel, v1alpha1.AccelerationOnload}

// Encode returns the task as JSON.
func (t Task) Encode() (string, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("encoding the task: %w", err)
	}
	return string(data), nil
}

// DecodeTask reads a task and checks that it is complete. A manager of a later version may have added fields, which it sends
// only with benchmarks that use them: an agent that does not know a field would measure something else, and refuses the task.
func DecodeTask(data string) (Task, error) {
	var t Task
	decoder := json.NewDecoder(strings.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&t); err != nil {
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
	case !slices.Contains(accelerations, t.Acceleration):
		return Task{}, fmt.Errorf("reading the task: acceleration %q is neither Kernel nor Onload", t.Acceleration)
	case (t.Acceleration == v1alpha1.AccelerationOnload) != (t.Library != ""):
		return Task{}, fmt.Errorf("reading the task: acceleration %q with library %q: Onload needs one, the kernel none", t.Acceleration, t.Library)
	case t.Role == v1alpha1.RoleClient && t.ServerAddress == "":
		return Task{}, fmt.Errorf("reading the task: a client needs serverAddress")
	}
	return t, nil
}
