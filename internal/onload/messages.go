package onload

import (
	"regexp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

const (
	remedyBuild  = "use the library of the module's version, and load the modules again after an upgrade"
	remedyVI     = "end other processes that use Onload on the node, and their orphaned stacks (onload_stackdump lists both), or share a stack"
	remedyMemory = "free memory of the node, because its kernel allocates the stack; on an X3 or X4 give the endpoint huge pages of 2Mi (pods.hugepages) for its receive queues"
	remedyPages  = "give the endpoint huge pages of 2Mi (pods.hugepages), and the node more of them (vm.nr_hugepages)"
	remedyPlane  = "the module starts it with the program that `kubectl tailgate doctor` shows (crictl with AMD's operator), which must exist on the node: check the node's kernel log"
	remedyLog    = "check the kernel's log of the node"
)

func failed(why, remedy string) *Failure {
	return &Failure{Outcome: v1alpha1.OutcomeAccelerationFailed, Why: why, Remedy: remedy}
}

func unavailable(why, remedy string) *Failure {
	return &Failure{Outcome: v1alpha1.OutcomeResourceUnavailable, Why: why, Remedy: remedy}
}

// The reasons why a tool could not use Onload. Another attempt may succeed only if something is unavailable.
var (
	notPreloaded  = &Failure{Outcome: v1alpha1.OutcomeAccelerationFailed, Why: "the dynamic linker cannot preload the library", Remedy: "set acceleration.onload.library to where the Onload resource mounts the library", Missing: true}
	otherMachine  = failed("the library is for another architecture", "use the 64-bit library of the node's architecture")
	otherCLibrary = failed("the library needs another C library than the image has", "use a bench image with the C library of the image from which Onload's library comes, or a library that was built for the bench image's")
	noDependency  = failed("the image lacks a library that a preloaded library needs", "use a bench image that has it, or remove what else is preloaded")

	otherVersion = failed("library and kernel module are of different versions or builds", remedyBuild)
	otherPlane   = failed("library and control plane are of different versions", remedyBuild)
	noPlane      = failed("its control plane does not run on the node", remedyPlane)
	noProgram    = failed("its control plane does not run on the node: the module found no server, or could not start its program", remedyPlane)
	latePlane    = failed("its control plane does not run on the node: its program exited, or was not ready in time (cplane_init_timeout)", remedyPlane)

	noDevice   = &Failure{Outcome: v1alpha1.OutcomeAccelerationFailed, Why: "its device cannot be opened", Remedy: "check that the node has the module (lsmod), and that the pod's resource provides /dev/onload, which every user may open", Device: true}
	noNIC      = failed("no NIC that it can use", "attach an interface, which is up, of a NIC that Onload supports and whose driver was loaded before Onload's module")
	notAllowed = failed("the NIC, its firmware or licence, or the XDP program that Onload attaches to another NIC does not permit a stack",
		"check the kernel's log of the node; no right of the pod changes it")
	notSupported = failed("the NIC or the kernel does not support what a stack needs",
		"check the kernel's log of the node, and use a kernel and a driver that the Onload release supports")
	noStack     = failed("a stack cannot be made", remedyLog)
	badSettings = failed("a stack cannot be made with these settings on this NIC", "check the kernel's log of the node, which names the setting; correct the profile or env")
	fewPackets  = failed("its settings allow fewer packets than the receive queues need", "raise EF_MAX_PACKETS, EF_MAX_RX_PACKETS or EF_RXQ_LIMIT")
	noSockets   = failed("the stack has no socket left", "raise EF_MAX_ENDPOINTS")
	otherUser   = failed("the stack belongs to another user", "set EF_SHARE_WITH=-1 at both ends, or do not share the stack (EF_NAME); EF_USE_HUGE_PAGES=0 may help")
	notMapped   = failed("the kernel does not map a stack's memory: it may not fit the Onload", "set EF_USE_HUGE_PAGES=0, or use an Onload for the node's kernel")
	noExecmod   = failed("SELinux, or another policy, forbids to change the code of the C library (execmod)",
		"allow execmod for the pods (SELinux: seLinuxOptions of a type that has it), or use another policy on the nodes")

	noVI       = unavailable("no virtual interface of the NIC is left", remedyVI)
	noRoom     = unavailable("the NIC has no room for another stack, or the pod has no huge pages for it", remedyVI+"; "+remedyMemory)
	noMemory   = unavailable("no memory for a stack or its packets", remedyMemory)
	noPages    = unavailable("no huge pages, which EF_USE_HUGE_PAGES=2 demands", remedyPages)
	noQueue    = unavailable("no huge pages for receive queues", remedyPages)
	notReady   = unavailable("the stack that the process shares was not ready", "run it again, or do not share the stack (EF_NAME)")
	noFiles    = unavailable("the process has no descriptor left", "raise the limit of open files of the container's runtime")
	planeEnded = unavailable("its control plane ended", remedyPlane)
)

// The reasons by errno, as a positive number: Onload prints it with and without a sign. The module returns these numbers from
// src/lib/efthrm/tcp_helper_resource.c and src/driver/linux_onload/cplane.c.
var (
	ofStack = map[int]*Failure{
		1: notAllowed, 11: notReady, 12: noMemory, 13: otherUser, 16: noVI, 19: noNIC, 22: badSettings, 23: noFiles, 24: noFiles,
		28: noRoom, 79: otherVersion, 95: notSupported, 110: latePlane, 524: notSupported,
	}
	ofQueues = map[int]*Failure{16: noVI, 22: badSettings, 95: notSupported}
	ofMemory = map[int]*Failure{12: noMemory, 13: otherUser, 28: noMemory}
	ofPlane  = map[int]*Failure{2: noProgram, 3: noProgram, 12: noMemory, 79: otherPlane, 110: latePlane}
	ofDevice = map[int]*Failure{12: noMemory, 23: noFiles, 24: noFiles}
)

// rank orders messages: the first cause decides, or else the first consequence. A warning is never the reason of a failure.
type rank int

const (
	cause rank = iota
	consequence
	warning
)

// message is a message that Onload, or the dynamic linker about a library, prints on standard error.
type message struct {
	// says matches a part of its line. Its group errno is an errno, and its group library the path of a library: if it is not
	// Onload's, the message says nothing about Onload.
	says *regexp.Regexp
	rank
	// why is its reason, unless byErrno has one.
	why     *Failure
	byErrno map[int]*Failure
}

func says(pattern string, r rank, why *Failure, byErrno map[int]*Failure) message {
	return message{regexp.MustCompile(pattern), r, why, byErrno}
}

const errno = `(?P<errno>-?\d+)`

// messages are those of Onload from 8.1.0 to 9.2 and of commit ef17681, in a release without debugging: ci_log, NI_LOG, LOG_E, Log_E
// and Log_U of src/lib/transport, src/lib/cplane and src/lib/citools, and those of glibc's and musl's dynamic linkers. Messages
// about a socket that no benchmark's tool can cause are left out. Of several messages that a line matches, the first counts.
var messages = []message{
	says(`object '(?P<library>[^']*)' from LD_PRELOAD cannot be preloaded \(wrong ELF class`, cause, otherMachine, nil),
	says(`object '(?P<library>[^']*)' from LD_PRELOAD cannot be preloaded`, cause, notPreloaded, nil),
	says("version `[^']*' not found \\(required by (?P<library>[^)]*)\\)", cause, otherCLibrary, nil),
	says(`(?:Error relocating|symbol lookup error:) (?P<library>[^:]*): `, cause, otherCLibrary, nil),
	says(`error while loading shared libraries: `, cause, noDependency, nil),

	says(`Driver/Library version mismatch|Driver/Library debug build mismatch|data structure layout mismatch between kernel and user`, cause, otherVersion, nil),
	says(`cplane interface mismatch`, cause, otherPlane, nil),
	says(`failed to get local control plane handle: `+errno, cause, noPlane, ofPlane),
	says(`failed to mmap (cplane MIBs|fwd part|fwd_rw part)`, cause, planeEnded, nil),
	// The control plane of the node's own network namespace is not needed.
	says(`failed to get init_net control plane handle|failed to select control plane instance|ci_netif_init: failed to open driver handle|`+
		`support for containers will be limited`, warning, nil, nil),

	says(`Failed to open /dev/onload`, cause, noDevice, nil),
	says(`failed to open driver \(`+errno, cause, noDevice, ofDevice),
	says(`_alloc_u: ENODEV`, cause, noNIC, nil),
	says(`Failed to allocate stack \(rc=`+errno, cause, noStack, ofStack),
	says(`stack '.*' not ready after`, cause, notReady, nil),
	says(`ci_tcp_helper_stack_attach `+errno, cause, noStack, ofStack),

	says(`(?:alloc_efct_resources failed rc=|restore_efct_resources )`+errno, cause, noQueue, ofQueues),
	says(`Expected shrub controller to use interrupts`, cause, badSettings, nil),
	says(`Failed to allocate huge pages`, cause, noPages, nil),
	says(`Insufficient packet buffers`, cause, noMemory, nil),
	says(`failed to allocate initial packet set: `+errno, cause, noMemory, ofMemory),
	says(`rxq_limit=\d+ is too small`, cause, fewPackets, nil),
	says(`Failed to mmap packet buffer for .*EACCES`, cause, otherUser, nil),
	says(`mmap\(0x[0-9a-f]+\) failed for pkt set \d+ (?:rc=|\()`+errno, cause, notMapped, ofMemory),
	says(`oo_resource_mmap (?:for pkt set \d+ failed \()?`+errno, cause, notMapped, ofMemory),
	says(`netif.*: OS failure \(memory low!\)|socket: failed to allocate epi|: out of memory \((?:alien|epoll|pipe|sock)_`, cause, noMemory, nil),
	says(`out of socket buffers`, cause, noSockets, nil),
	says(`CRITICAL: mprotect`, cause, noExecmod, nil),
	says(`Process will likely crash now`, consequence, noExecmod, nil),

	says(`netif_tcp_helper_build (?:failed rc=)?`+errno, consequence, notMapped, ofMemory),
	says(`netif_tcp_helper_restore returned `+errno, consequence, noStack, ofStack),
	says(`Failed to map packets!`, consequence, notMapped, nil),
	says(`(?:failed to (?:construct|create) netif|citp_netif_recreate_probed failed!) \(`+errno, consequence, noStack, ofStack),
	says(`(?:ci_tcp_helper_sock_attach|citp_tcp_ep_acquire_fd) .* failed `+errno, consequence, noStack, ofStack),
	says(`(?:tcp|udp)_ep_ctor failed`, consequence, noStack, nil),
	says(`failed \(errno:`+errno+`.*\) - PASSING TO OS`, consequence, noStack, ofStack),

	// What Onload says about settings, and about sockets and surroundings, although it goes on.
	says(`Unknown option "EF_|citp: bad option '|Invalid option (?:detected|for EF_VALIDATE_ENV)|EF_\w+ is deprecated|Can't set EF_FDTABLE_SIZE=|`+
		`config: .*(?:larger than maximum|smaller than minimum|is rounded up)|EF_INT_DRIVEN=0 and EF_UL_EPOLL=0 are not compatible|`+
		`EF_TPH_MODE found, but SDCI|EF_STACK_PER_THREAD=1 cannot be used|EF_SHARED_RXQ_NUM is outside|can only be cached if EF_UL_EPOLL=3`, warning, nil, nil),
	says(`RX ring fill level reduced|Prefaulting only allocated|use of .* with this adapter is likely|No space in active wild table|`+
		`Socket caching is not supported|handover of TCP sockets in an epoll set|RLIMIT_(?:AS|NOFILE): .* requested|SO_(?:RCV|SND)BUFFORCE|`+
		`Failed to get TX complete events|runtime error [0-9a-f]+ detected in|measured cpu_khz not stable|Failed to query cpu_khz`, warning, nil, nil),
}
