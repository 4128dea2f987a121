package result

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// What the ConfigMap of a run is made of.
const (
	// KeyClient and KeyServer hold the two documents, JSON in gzip, as the agents sent them.
	KeyClient = "client.json.gz"
	KeyServer = "server.json.gz"
	// AnnotationClientDigest and AnnotationServerDigest hold their SHA-256, in hex.
	AnnotationClientDigest = "tailgate.dev/client-sha256"
	AnnotationServerDigest = "tailgate.dev/server-sha256"
	// AnnotationFormat holds the version of their format.
	AnnotationFormat = "tailgate.dev/result-format"
	// maxStored bounds both documents together, in bytes. The API server takes ConfigMaps of up to 1 MiB.
	maxStored = 900 << 10
)

// Stored is the result of a run: what both ends had to say, as it is kept.
type Stored struct {
	Client, Server Document
	// ClientDigest and ServerDigest are the SHA-256 of the documents as the agents sent them, in hex.
	ClientDigest, ServerDigest string

	client, server []byte
}

// NewStored puts the results of the two ends of one attempt together. The error wraps ErrCorrupt when they are
// not that.
func NewStored(client, server Framed) (Stored, error) {
	c, s := client.Document, server.Document
	if c.Role != v1alpha1.RoleClient || s.Role != v1alpha1.RoleServer {
		return Stored{}, fmt.Errorf("%w: the ends are %.20q and %.20q, not client and server", ErrCorrupt, c.Role, s.Role)
	}
	if c.Run != s.Run || c.Attempt != s.Attempt {
		return Stored{}, fmt.Errorf("%w: the client is of %s, attempt %d, the server of %s, attempt %d", ErrCorrupt, c.Run, c.Attempt, s.Run, s.Attempt)
	}
	return Stored{
		Client: c, Server: s, ClientDigest: client.Digest, ServerDigest: server.Digest,
		client: client.Compressed, server: server.Compressed,
	}, nil
}

// ConfigMap makes the immutable ConfigMap that keeps the result. The error wraps ErrTooLarge when it would not
// be accepted.
func (s Stored) ConfigMap(name, namespace string, labels map[string]string, owner metav1.OwnerReference) (*corev1.ConfigMap, error) {
	if n := len(s.client) + len(s.server); n > maxStored {
		return nil, fmt.Errorf("%w: %d KiB, and a ConfigMap keeps %d KiB", ErrTooLarge, (n+1023)>>10, maxStored>>10)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, Labels: labels, OwnerReferences: []metav1.OwnerReference{owner},
			Annotations: map[string]string{
				AnnotationClientDigest: s.ClientDigest,
				AnnotationServerDigest: s.ServerDigest,
				AnnotationFormat:       strconv.Itoa(Version),
			},
		},
		Immutable:  new(true),
		BinaryData: map[string][]byte{KeyClient: s.client, KeyServer: s.server},
	}, nil
}

// FromConfigMap reads a stored result and verifies it again: people can delete an immutable ConfigMap and make
// another. The error wraps ErrMissing when it holds no result, ErrCorrupt when it is not the one that was put in.
func FromConfigMap(cm *corev1.ConfigMap) (Stored, error) {
	client, err := stored(cm, KeyClient, AnnotationClientDigest)
	if err != nil {
		return Stored{}, err
	}
	server, err := stored(cm, KeyServer, AnnotationServerDigest)
	if err != nil {
		return Stored{}, err
	}
	return NewStored(client, server)
}

// FromStatus reads a stored result and verifies that it is the one that a benchmark's status names: of that run, and
// with the digests that its agents gave. The errors are those of FromConfigMap.
func FromStatus(cm *corev1.ConfigMap, named v1alpha1.StoredResult) (Stored, error) {
	s, err := FromConfigMap(cm)
	if err != nil {
		return Stored{}, err
	}
	if s.Client.Run != named.Run {
		return Stored{}, fmt.Errorf("%w: ConfigMap %s holds the result of run %s, and the benchmark's status names %s", ErrCorrupt, cm.Name, s.Client.Run, named.Run)
	}
	for _, end := range []struct{ role, held, named string }{
		{v1alpha1.RoleClient, s.ClientDigest, named.SHA256}, {v1alpha1.RoleServer, s.ServerDigest, named.ServerSHA256},
	} {
		if end.held != end.named {
			return Stored{}, fmt.Errorf("%w: ConfigMap %s holds the %s's result with digest %s, and the benchmark's status names %s",
				ErrCorrupt, cm.Name, end.role, end.held, end.named)
		}
	}
	return s, nil
}

// OfVariant are the runs of one variant, in the order given.
func OfVariant(runs []Stored, variant string) []Stored {
	var own []Stored
	for _, run := range runs {
		if run.Client.Variant == variant {
			own = append(own, run)
		}
	}
	return own
}

func stored(cm *corev1.ConfigMap, key, annotation string) (Framed, error) {
	content, ok := cm.BinaryData[key]
	if !ok {
		return Framed{}, fmt.Errorf("%w: ConfigMap %s has no %s", ErrMissing, cm.Name, key)
	}
	framed, err := expand(content, cm.Annotations[annotation])
	if err != nil {
		return Framed{}, fmt.Errorf("%s of ConfigMap %s: %w", key, cm.Name, err)
	}
	return framed, nil
}
