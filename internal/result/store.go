package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
)

const (
	// KeyClient and KeyServer hold the two documents, JSON in gzip, as the agents sent them.
	KeyClient = "client.json.gz"
	KeyServer = "server.json.gz"
	// KeyPods holds the API server's data about both pods: JSON, two Seen under client and server.
	KeyPods          = "pods.json"
	AnnotationFormat = "tailgate.dev/result-format"
	// maxStored bounds both documents, maxPods the pods' data; ConfigMaps have 1 MiB.
	maxStored = 900 << 10
	maxPods   = 32 << 10
)

// Seen is what the API server says of an endpoint's pod, to check the agent's report.
type Seen struct {
	// PodUID is the pod's UID; empty if the pod was not read.
	PodUID string `json:"podUID,omitempty"`
	// ImageID is the digest of the image that ran, as the container runtime reports it.
	ImageID string `json:"imageID,omitempty"`
	// Requests are those of the agent's container at creation, by resource.
	Requests map[string]string `json:"requests,omitempty"`
	// Changed lists an admission webhook's changes, as requests amd.com/sf_vf: 2 instead of 1.
	Changed []string `json:"changed,omitempty"`
	// Network is Multus's report about the measured interface; nil if there is none.
	Network *foreign.Status `json:"network,omitempty"`
	// ClaimedDevice is the PCI address in the ResourceClaim; empty with a plugin.
	ClaimedDevice string `json:"claimedDevice,omitempty"`
	QOSClass      string `json:"qosClass,omitempty"`   // only guaranteed pods get CPUs of their own
	NodeBootID    string `json:"nodeBootID,omitempty"` // by the kubelet, when the result was stored
	Bare          bool   `json:"bare,omitempty"`       // the end ran on a host without Kubernetes
}

// Stored is a run's stored result: both ends' reports, and the API server's data on their pods.
type Stored struct {
	Client, Server                         Document
	ClientSeen, ServerSeen                 Seen
	ClientDigest, ServerDigest, PodsDigest string // the parts' SHA-256, in hex

	client, server, pods []byte
}

type seenPods struct {
	Client Seen `json:"client"`
	Server Seen `json:"server"`
}

// NewStored combines the two ends of one attempt. The error wraps ErrCorrupt if they are not.
func NewStored(client, server Framed, clientSeen, serverSeen Seen) (Stored, error) {
	pods, err := json.Marshal(seenPods{clientSeen, serverSeen})
	if err != nil {
		return Stored{}, fmt.Errorf("encoding what was seen of the pods: %w", err)
	}
	return newStored(client, server, pods)
}

func newStored(client, server Framed, pods []byte) (Stored, error) {
	c, s := client.Document, server.Document
	if c.Role != v1alpha1.RoleClient || s.Role != v1alpha1.RoleServer {
		return Stored{}, fmt.Errorf("%w: the ends are %.20q and %.20q, not client and server", ErrCorrupt, c.Role, s.Role)
	}
	if c.Run != s.Run || c.Attempt != s.Attempt {
		return Stored{}, fmt.Errorf("%w: the client is of %s, attempt %d, the server of %s, attempt %d", ErrCorrupt, c.Run, c.Attempt, s.Run, s.Attempt)
	}
	var seen seenPods
	if err := json.Unmarshal(pods, &seen); err != nil {
		return Stored{}, fmt.Errorf("%w: what was seen of the pods of %s cannot be read: %w", ErrCorrupt, c.Run, err)
	}
	return Stored{
		Client: c, Server: s, ClientSeen: seen.Client, ServerSeen: seen.Server,
		ClientDigest: client.Digest, ServerDigest: server.Digest, PodsDigest: digestOf(pods),
		client: client.Compressed, server: server.Compressed, pods: pods,
	}, nil
}

// ConfigMap returns the immutable ConfigMap of the result. The error wraps ErrTooLarge.
func (s Stored) ConfigMap(name, namespace string, labels map[string]string, owner metav1.OwnerReference) (*corev1.ConfigMap, error) {
	if n := len(s.client) + len(s.server); n > maxStored {
		return nil, fmt.Errorf("%w: %d KiB, and a ConfigMap keeps %d KiB", ErrTooLarge, (n+1023)>>10, maxStored>>10)
	}
	if n := len(s.pods); n > maxPods {
		return nil, fmt.Errorf("%w: what was seen of the pods takes %d KiB, and a ConfigMap keeps %d KiB of it", ErrTooLarge, (n+1023)>>10, maxPods>>10)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, Labels: labels, OwnerReferences: []metav1.OwnerReference{owner},
			Annotations: map[string]string{AnnotationFormat: strconv.Itoa(Version)},
		},
		Immutable:  new(true),
		Data:       map[string]string{KeyPods: string(s.pods)},
		BinaryData: map[string][]byte{KeyClient: s.client, KeyServer: s.server},
	}, nil
}

// Files returns the result's files in an export, by KeyClient, KeyServer and KeyPods.
func (s Stored) Files() map[string][]byte {
	return map[string][]byte{KeyClient: s.client, KeyServer: s.server, KeyPods: s.pods}
}

// Named returns a status's reference to the result, which its digests identify.
func (s Stored) Named(configMap string) v1alpha1.StoredResult {
	return v1alpha1.StoredResult{ConfigMap: configMap, Run: s.Client.Run, SHA256: s.ClientDigest, ServerSHA256: s.ServerDigest, PodsSHA256: s.PodsDigest}
}

// Verify checks whether a ConfigMap holds the result that a status names, byte by byte, without
// decoding. The error wraps ErrMissing if a part is missing, ErrCorrupt if it differs.
func Verify(cm *corev1.ConfigMap, named v1alpha1.StoredResult) error {
	pods, ok := cm.Data[KeyPods]
	parts := []struct {
		key, digest string
		content     []byte
		ok          bool
	}{
		{KeyClient, named.SHA256, cm.BinaryData[KeyClient], cm.BinaryData[KeyClient] != nil},
		{KeyServer, named.ServerSHA256, cm.BinaryData[KeyServer], cm.BinaryData[KeyServer] != nil},
		{KeyPods, named.PodsSHA256, []byte(pods), ok},
	}
	for _, part := range parts {
		if !part.ok {
			return fmt.Errorf("%w: ConfigMap %s has no %s", ErrMissing, cm.Name, part.key)
		}
		if held := digestOf(part.content); held != part.digest {
			return fmt.Errorf("%w: %s of ConfigMap %s has digest %s, and the benchmark's status names %.64s", ErrCorrupt, part.key, cm.Name, held, part.digest)
		}
	}
	return nil
}

// Open reads the result that a status names from its ConfigMap, whose author and other content do
// not matter. Errors are Verify's, or ErrCorrupt if it is undecodable or of another run.
func Open(cm *corev1.ConfigMap, named v1alpha1.StoredResult) (Stored, error) {
	if err := Verify(cm, named); err != nil {
		return Stored{}, err
	}
	if n := len(cm.Data[KeyPods]); n > maxPods {
		return Stored{}, fmt.Errorf("%w: %s of ConfigMap %s has %d KiB, and at most %d KiB are stored", ErrCorrupt, KeyPods, cm.Name, (n+1023)>>10, maxPods>>10)
	}
	client, err := expand(cm.BinaryData[KeyClient], named.SHA256)
	if err != nil {
		return Stored{}, fmt.Errorf("%s of ConfigMap %s: %w", KeyClient, cm.Name, err)
	}
	server, err := expand(cm.BinaryData[KeyServer], named.ServerSHA256)
	if err != nil {
		return Stored{}, fmt.Errorf("%s of ConfigMap %s: %w", KeyServer, cm.Name, err)
	}
	s, err := newStored(client, server, []byte(cm.Data[KeyPods]))
	if err != nil {
		return Stored{}, err
	}
	if s.Client.Run != named.Run {
		return Stored{}, fmt.Errorf("%w: ConfigMap %s holds the result of run %s, and the benchmark's status names %s", ErrCorrupt, cm.Name, s.Client.Run, named.Run)
	}
	return s, nil
}

// WithoutMeasurements returns the result with only the conditions of both ends and of each cell.
func (s Stored) WithoutMeasurements() Stored {
	s.Client, s.Server = s.Client.withoutMeasurements(), s.Server.withoutMeasurements()
	s.client, s.server, s.pods = nil, nil, nil
	return s
}

// Imported returns the source of imported runs; empty if an agent measured.
func Imported(runs []Stored) string {
	if len(runs) == 0 {
		return ""
	}
	return runs[0].Client.Imported
}

// Cell returns a cell as the client measured it, and a complete capture. All readers use it.
func (s *Stored) Cell(name string) (measured *Cell, captured *Captured) {
	for i := range s.Client.Cells {
		if s.Client.Cells[i].Name == name {
			measured = &s.Client.Cells[i]
		}
	}
	for i := range s.Server.Captured {
		if c := &s.Server.Captured[i]; c.Cell == name && c.Incomplete == "" {
			captured = c
		}
	}
	return measured, captured
}

func OfVariant(runs []Stored, variant string) []Stored {
	return slices.DeleteFunc(slices.Clone(runs), func(run Stored) bool { return run.Client.Variant != variant })
}

// The format and version of a Manifest. A reader refuses any other version.
const (
	ExportFormat  = "tailgate-export"
	ExportVersion = 1
)

// Files of an export that are read again; each run's KeyClient and so on in ExportRuns/RUN.
const (
	ExportManifest  = "manifest.json"
	ExportBenchmark = "benchmark.json"
	ExportRuns      = "runs"
)

type Manifest struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Namespace, Name and UID identify the LatencyBenchmark or LatencyMatrix.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Files are all but the manifest itself, also of pairs, by path.
	Files []File `json:"files"`
	// Pairs lists the names of the benchmarks of the pairs of a LatencyMatrix, in order.
	Pairs []string `json:"pairs,omitempty"`
}

type File struct {
	Path   string `json:"path"` // relative to the manifest, with slashes
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

func NewFile(path string, content []byte) File {
	return File{Path: path, Bytes: int64(len(content)), SHA256: digestOf(content)}
}

// EncodeJSON returns a value as exports and kubectl tailgate get contain it: JSON with two spaces.
func EncodeJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding JSON: %w", err)
	}
	return out.Bytes(), nil
}
