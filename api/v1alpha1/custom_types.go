package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Custom is a user's own program, at both ends.
type Custom struct {
	// image has the program; its user is a number above 0. --custom-images must allow it. A LatencyGate needs a digest.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9][-A-Za-z0-9.]*(:[0-9]{1,5})?/)?[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@sha256:[0-9a-f]{64})?$`
	Image string `json:"image"`
	// client is started when the server is ready, and ends by itself.
	// +required
	Client CustomProgram `json:"client"`
	// server is started before the client of each cell, and killed after it.
	// +required
	Server CustomProgram `json:"server"`
	// ready is the protocol of the socket that a ready server has bound to TAILGATE_PORT; default the messages' protocol.
	// +kubebuilder:validation:Enum=TCP;UDP
	Ready Protocol `json:"ready,omitempty"`
	// output has the latencies that the client measures.
	// +required
	Output CustomOutput `json:"output"`
	// timeout is how long a client may take besides warm-up and duration, 1s to 10m; default 30s.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m))+$') && duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="must be a duration from 1s to 10m, such as 30s"
	Timeout metav1.Duration `json:"timeout,omitzero"`
}

type CustomProgram struct {
	// command begins with the path of the program in the image, at most 8 words.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self[0].startsWith('/')",message="command must begin with an absolute path"
	Command []string `json:"command"`
	// args follow the command, at most 32 words. In both, $(NAME) is replaced by a variable, such as $(TAILGATE_PORT).
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	Args []string `json:"args,omitempty"`
	// env are environment variables of the program, at most 16.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Env []CustomVariable `json:"env,omitempty"`
	// cpus is the number of CPUs on which the program runs, 1 to 64; default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	CPUs int32 `json:"cpus,omitempty"`
}

// CustomVariable is an environment variable of a user's program.
type CustomVariable struct {
	// name begins with none of TAILGATE_, LD_ and EF_: acceleration and spec.pods.env set variables of Onload.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(TAILGATE|LD|EF)_')",message="must not begin with TAILGATE_, LD_ or EF_"
	Name string `json:"name"`
	// value of the variable, in printable ASCII.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[ -~]*$`
	Value string `json:"value,omitempty"`
}

// +kubebuilder:validation:Enum=Values;HdrHistogram;SfntPingpong
type CustomFormat string

const (
	CustomValues       CustomFormat = "Values"
	CustomHdrHistogram CustomFormat = "HdrHistogram"
	CustomSfntPingpong CustomFormat = "SfntPingpong"
)

// CustomOutput is where the latencies of a program are, all of whole round trips.
// +kubebuilder:validation:XValidation:rule="self.format != 'SfntPingpong' || !has(self.unit) || self.unit == 'ns'",message="unit: the table of sfnt-pingpong is in ns"
type CustomOutput struct {
	// path is the name of the file that the client writes in its folder; default its standard output.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][-A-Za-z0-9_.]*$`
	Path string `json:"path,omitempty"`
	// format is Values (a number a line), HdrHistogram (its log) or SfntPingpong (its table).
	// +required
	Format CustomFormat `json:"format"`
	// unit of the numbers: ns (default), us, ms or s. Only ns are whole numbers.
	// +kubebuilder:default=ns
	// +kubebuilder:validation:Enum=ns;us;ms;s
	Unit string `json:"unit,omitempty"`
}

// FullImage returns the image with its registry and repository in full: library/NAME of docker.io is the short NAME.
func (c Custom) FullImage() string {
	registry, repository, found := strings.Cut(c.Image, "/")
	switch {
	case !found || !strings.ContainsAny(registry, ".:") && registry != "localhost" && strings.ToLower(registry) == registry:
		registry, repository = "docker.io", c.Image
	case registry == "index.docker.io":
		registry = "docker.io"
	}
	if registry == "docker.io" && !strings.Contains(repository, "/") {
		repository = "library/" + repository
	}
	return registry + "/" + repository
}

// Within reports whether one of the prefixes, each a registry or a repository in it, contains the image; * contains all.
func (c Custom) Within(prefixes []string) bool {
	name, _, _ := strings.Cut(c.FullImage(), "@")
	if tag := strings.LastIndex(name, ":"); tag > strings.LastIndex(name, "/") {
		name = name[:tag]
	}
	for _, prefix := range prefixes {
		if prefix == "*" || strings.HasPrefix(name+"/", strings.TrimRight(prefix, "/")+"/") {
			return true
		}
	}
	return false
}
