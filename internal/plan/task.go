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
	ControlPort = 22047 // the server's agent listens there for the client's agent
	ToolPort    = 22048 // the tool's server's; some tools open ephemeral ports, too
)

const (
	Scratch = "/scratch" // where the tools write their raw samples
	// EnvTask has the Task, EnvNode and EnvPodIP the pod's, EnvKey the Secret's key.
	EnvTask      = "TAILGATE_TASK"
	EnvNode      = "TAILGATE_NODE"
	EnvPodIP     = "TAILGATE_POD_IP"
	EnvKey       = "TAILGATE_KEY"
	EnvInterface = "TAILGATE_INTERFACE" // to inspect; empty: that of the pod's address
	EnvContainer = "TAILGATE_CONTAINER" // ID of the container to inspect, not the node; or empty
	EnvView      = "TAILGATE_VIEW"      // ViewNode: the agent calls Enter; ViewEntered: it has
	EnvPeer      = "TAILGATE_PEER"      // the address of a pod that an inspecting agent tries
	EnvFolder    = "TAILGATE_FOLDER"    // without Kubernetes: for raw samples and the last message
)

const (
	ViewNode    = "node"
	ViewEntered = "entered"
)

// EphemeralMemory is what an inspection needs, in bytes; the agent itself used 14 MiB.
const EphemeralMemory = 32 << 20

// Task is the work of one agent. The controller passes it to the pod as JSON in the environment.
type Task struct {
	// Run, Variant, Attempt and Role (client or server) identify the endpoint of the task.
	Run     string `json:"run"`
	Variant string `json:"variant"`
	Attempt int32  `json:"attempt"`
	Role    string `json:"role"`
	// Tool measures Cells in this order.
	Tool  v1alpha1.Tool `json:"tool"`
	Cells []tool.Cell   `json:"cells"`
	// Interface is net1, or what a variant on the host's network names; empty: the pod address's.
	Interface string `json:"interface,omitempty"`
	// Parent is the node's interface below an ipvlan, macvlan, vlan or ipoib, or UnnamedParent.
	Parent string `json:"parent,omitempty"`
	// Borrowed: the pod's device only aligns CPUs with the NIC of Interface.
	Borrowed bool `json:"borrowed,omitempty"`
	// Acceleration is the stack that carries the tools' messages; empty: the kernel.
	Acceleration v1alpha1.AccelerationType `json:"acceleration,omitempty"`
	// Library is the Onload library to preload, if any: a path in the pod, or a loader's name.
	Library string `json:"library,omitempty"`
	// Env has variables of the tools by name, from the variant and its Onload profile. With kernel
	// sockets, no tool gets an Onload variable (EF_*), wherever it was set.
	Env map[string]string `json:"env,omitzero"`
	// Capture makes the server's agent measure latencies from packets, too.
	Capture bool `json:"capture,omitempty"`
	// SendResult sends the server's result to the client's log: no kubelet keeps both logs.
	SendResult bool `json:"sendResult,omitempty"`
	// ServerAddress is the server's on the measured network; set for the client only.
	ServerAddress string `json:"serverAddress,omitempty"`
	// Deadline bounds the time from the agent's start until it has written its result.
	Deadline time.Duration `json:"deadline"`
	// Linger is how long the agent runs after that unless it is stopped. The kubelet reports at
	// once what it stops itself, and up to a second later what exits by itself.
	Linger time.Duration `json:"linger,omitempty"`
}

var accelerations = []v1alpha1.AccelerationType{"", v1alpha1.AccelerationKernel, v1alpha1.AccelerationOnload}

func (t Task) Encode() string {
	data, _ := json.Marshal(t) // Texts and numbers can always be encoded.
	// A kubelet replaces $(NAME) and $$ in the values of variables. A dollar is only in texts.
	return strings.ReplaceAll(string(data), "$", `\u0024`)
}

// DecodeTask reads a task and checks that it is complete. A later manager may add fields, only to
// benchmarks that use them: an agent that does not know one refuses the task.
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
