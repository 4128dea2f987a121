package result

// Path is what an agent recorded of one cell about the path of its messages: through the kernel, or past it. Everything is
// read before the cell and after it, never meanwhile.
type Path struct {
	// Cell is the name of the cell.
	Cell string `json:"cell"`
	// Grown is by how much the counters of PathCounters grew from before the tool's process started until after it ended.
	// A counter that could not be read is absent.
	Grown map[string]int64 `json:"grown,omitempty"`
	// Begun is what the agent saw in the process of the tool's server when it was ready, and Ended when its client had
	// ended. Both are nil at the client's end, whose tool starts and ends by itself, and Ended is nil when the tool's server
	// had ended, too.
	Begun *Look `json:"begun,omitempty"`
	Ended *Look `json:"ended,omitempty"`
	// Banner is the version that Onload's library printed on the standard error of the tool; empty when it printed no version.
	Banner string `json:"banner,omitempty"`
}

// Look is what an agent saw of a process.
type Look struct {
	// Library is the path of Onload's library in the memory of the process; empty when there is none.
	Library string `json:"library,omitempty"`
	// Sockets counts all its sockets, Onload those of Onload among them that can carry the messages of the cell.
	Sockets int32 `json:"sockets"`
	Onload  int32 `json:"onload"`
}

// The counters of a Path. Those of TCP and UDP are of the endpoint's network namespace, with IPv4 and IPv6 together, and
// count what the kernel's stack carried. The segments and bytes of the agents' own connection are not among them.
const (
	PathUDPIn  = "udp.in"
	PathUDPOut = "udp.out"
	PathTCPIn  = "tcp.in"
	PathTCPOut = "tcp.out"
	// PathIPIn and PathIPOut are bytes with all headers.
	PathIPIn  = "ip.in-bytes"
	PathIPOut = "ip.out-bytes"
	// PathNICIn and PathNICOut are packets of the interface, of whichever process.
	PathNICIn  = "nic.in"
	PathNICOut = "nic.out"
	// PathStackIn and PathStackOut are events of the Onload stacks of the tool's server, as far as they still existed.
	PathStackIn  = "stack.in"
	PathStackOut = "stack.out"
)
