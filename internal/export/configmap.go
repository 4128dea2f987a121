package export

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// A ConfigMap contains the files of an export that are read again, as keys of binaryData: the path with _ for each slash, and with
// .gz after it if the file is compressed only there. The digest of the manifest covers all of them, so that the same digest
// names the export in a directory and in a ConfigMap.

// The errors of an export in a ConfigMap, for errors.Is, besides ErrNone and ErrDamaged.
var (
	// ErrDigest is returned for another export than the one that a digest names.
	ErrDigest = errors.New("another export")
	// ErrTooLarge is returned for an export that does not fit into a ConfigMap, or would expand to too much.
	ErrTooLarge = errors.New("export too large")
)

// The limits of an export in a ConfigMap, in bytes: an API server stores at most 1 MiB, and a small part of it may expand to
// gigabytes.
const (
	maxConfigMap = 1 << 20
	maxExpanded  = 4 << 20  // of the manifest, and of the LatencyBenchmark
	maxDocuments = 32 << 20 // of all documents of all runs together
)

// ConfigMap returns the export of a LatencyBenchmark as an immutable ConfigMap, and the SHA-256 of its manifest in hexadecimal. The
// error wraps ErrTooLarge if it does not fit.
func ConfigMap(b Benchmark, name string) (*corev1.ConfigMap, string, error) {
	dir := b.Dir
	if dir == "" {
		parent, err := os.MkdirTemp("", "tailgate-export-")
		if err != nil {
			return nil, "", fmt.Errorf("making a directory for the export: %w", err)
		}
		defer os.RemoveAll(parent)
		dir = filepath.Join(parent, "export")
		if _, err := Write(dir, b, false); err != nil {
			return nil, "", err
		}
	}
	names := []string{manifestFile, benchmarkFile}
	for _, s := range b.Object.Status.Stored {
		for _, key := range []string{result.KeyClient, result.KeyServer, result.KeyPods} {
			names = append(names, path.Join(runsDir, s.Run, key))
		}
	}
	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate}},
		Immutable:  new(true), BinaryData: map[string][]byte{},
	}
	sum := ""
	for _, file := range names {
		content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(file)))
		if err != nil {
			return nil, "", fmt.Errorf("reading the export: %w", err)
		}
		if file == manifestFile {
			sum = result.NewFile(file, content).SHA256
		}
		key, compressed := keyOf(file)
		if compressed {
			content = deflated(content)
		}
		cm.BinaryData[key] = content
	}
	return cm, sum, fits(cm)
}

// keyOf returns the key of a file in a ConfigMap, and whether its content is compressed there.
func keyOf(file string) (key string, compressed bool) {
	key = strings.ReplaceAll(file, "/", "_")
	if strings.HasSuffix(key, ".gz") {
		return key, false
	}
	return key + ".gz", true
}

func deflated(content []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(content) // A buffer takes everything.
	_ = z.Close()
	return out.Bytes()
}

// inflated returns the content of a compressed file of at most most bytes.
func inflated(content []byte, most int64) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(z, most+1))
	if err == nil && int64(len(plain)) > most {
		return nil, fmt.Errorf("%w: it expands to more than %d MiB", ErrTooLarge, most>>20)
	}
	return plain, err
}

// fits returns an error that wraps ErrTooLarge for a ConfigMap that is larger than an API server stores.
func fits(cm *corev1.ConfigMap) error {
	size := 0
	for key, content := range cm.BinaryData {
		size += len(key) + len(content)
	}
	for key, content := range cm.Data {
		size += len(key) + len(content)
	}
	if size > maxConfigMap {
		return fmt.Errorf("%w: %d KiB, and a ConfigMap has at most %d KiB; measure fewer rounds, variants or message sizes in one benchmark",
			ErrTooLarge, (size+1023)>>10, maxConfigMap>>10)
	}
	return nil
}

// Held is the export of a LatencyBenchmark in a ConfigMap.
type Held struct {
	// Object is the LatencyBenchmark.
	Object *v1alpha1.LatencyBenchmark

	manifest manifest
	from     source
}

// ReadConfigMap reads the LatencyBenchmark of an export from a ConfigMap of any author. It decodes nothing but what the digest of the
// manifest, sha256, covers. The error wraps ErrDigest, ErrTooLarge, ErrNone or ErrDamaged.
func ReadConfigMap(ctx context.Context, cm *corev1.ConfigMap, sha256 string) (*Held, error) {
	if err := fits(cm); err != nil {
		return nil, err
	}
	h := &Held{from: func(name string) ([]byte, error) {
		key, compressed := keyOf(name)
		content, ok := cm.BinaryData[key]
		switch {
		case !ok:
			return nil, fmt.Errorf("the ConfigMap has no %s in binaryData", key)
		case compressed:
			return inflated(content, maxExpanded)
		}
		return content, nil
	}}
	content, err := h.from(manifestFile)
	switch {
	case errors.Is(err, ErrTooLarge):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	if sum := result.NewFile(manifestFile, content).SHA256; sum != sha256 {
		return nil, fmt.Errorf("%w: its manifest has SHA-256 %s", ErrDigest, sum)
	}
	if h.manifest, err = parseManifest(content); err != nil {
		return nil, err
	}
	if err := h.boundDocuments(cm); err != nil {
		return nil, err
	}
	b, err := h.manifest.object(ctx, h.from)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	case b.Matrix != nil:
		return nil, fmt.Errorf("%w: it is of a LatencyMatrix; export the LatencyBenchmark of one pair", ErrNone)
	}
	h.Object = b.Object
	return h, nil
}

// boundDocuments returns an error if the documents of all runs together expand to more than a manager should decode.
func (h *Held) boundDocuments(cm *corev1.ConfigMap) error {
	left := int64(maxDocuments)
	for key, content := range cm.BinaryData {
		z, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			return fmt.Errorf("%w: %.253s: %w", ErrDamaged, key, err)
		}
		n, err := io.Copy(io.Discard, io.LimitReader(z, left+1))
		if left -= n; left < 0 {
			return fmt.Errorf("%w: it expands to more than %d MiB", ErrTooLarge, maxDocuments>>20)
		}
		if err != nil {
			return fmt.Errorf("%w: %.253s: %w", ErrDamaged, key, err)
		}
	}
	return nil
}

// Runs returns the stored results in the order of the status, one at a time, each verified. It ends with the first error, which wraps
// ErrDamaged.
func (h *Held) Runs() iter.Seq2[result.Stored, error] {
	return func(yield func(result.Stored, error) bool) {
		for _, s := range h.Object.Status.Stored {
			run, err := h.manifest.run(h.from, s)
			if err != nil {
				err = fmt.Errorf("%w: %w", ErrDamaged, err)
			}
			if !yield(run, err) || err != nil {
				return
			}
		}
	}
}
