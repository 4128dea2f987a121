package export

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// A ConfigMap has the files that are read again as keys of binaryData, with _ for slashes. The
// manifest's digest covers them, and names the export in both forms.

// The errors of an export in a ConfigMap, for errors.Is, besides ErrNone and ErrDamaged.
var (
	ErrDigest   = errors.New("another export")   // not the one that a digest names
	ErrTooLarge = errors.New("export too large") // it exceeds a ConfigMap, or expands too much
)

// An export's limits in a ConfigMap, in bytes: 1 MiB could expand to gigabytes.
const (
	maxConfigMap = 1 << 20
	maxExpanded  = 32 << 20
)

// ConfigMap returns a benchmark's export and its manifest's SHA-256, or wraps ErrTooLarge.
func ConfigMap(b Benchmark, name string) (*corev1.ConfigMap, string, error) {
	read := from(os.DirFS(b.Dir))
	if b.Dir == "" {
		contents := map[string][]byte{}
		w := writer{put: func(name string, content []byte) error {
			contents[name] = content
			return nil
		}}
		if err := w.benchmark("", b); err != nil {
			return nil, "", fmt.Errorf("writing the export of %s/%s: %w", b.Object.Namespace, b.Object.Name, err)
		}
		read = func(name string) ([]byte, error) {
			if content, ok := contents[name]; ok {
				return content, nil
			}
			return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
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
	for _, file := range names {
		content, err := read(file)
		if err != nil {
			return nil, "", fmt.Errorf("reading the export: %w", err)
		}
		cm.BinaryData[keyOf(file)] = content
	}
	return cm, result.NewFile(manifestFile, cm.BinaryData[manifestFile]).SHA256, bounded(cm)
}

func keyOf(file string) string { return strings.ReplaceAll(file, "/", "_") }

// bounded returns ErrTooLarge for more than is stored, or than a manager should decode.
func bounded(cm *corev1.ConfigMap) error {
	size, expanded := 0, int64(0)
	for key, content := range cm.BinaryData {
		size += len(key) + len(content)
		if z, err := gzip.NewReader(bytes.NewReader(content)); err == nil {
			n, _ := io.Copy(io.Discard, io.LimitReader(z, maxExpanded+1)) // A damaged file is found when it is decoded.
			expanded += n
		}
		if size > maxConfigMap || expanded > maxExpanded {
			return fmt.Errorf("%w: a ConfigMap has at most %d MiB, and its files expand to at most %d MiB; measure fewer rounds, variants or message sizes in one benchmark",
				ErrTooLarge, maxConfigMap>>20, maxExpanded>>20)
		}
	}
	return nil
}

// ReadConfigMap reads a LatencyBenchmark's export from any author's ConfigMap, passes it to begin,
// then each stored result to add. It decodes only what the manifest's digest, sha256, covers. The
// error wraps ErrDigest, ErrTooLarge, ErrNone or ErrDamaged, or is begin's or add's.
func ReadConfigMap(ctx context.Context, cm *corev1.ConfigMap, sha256 string, begin func(*v1alpha1.LatencyBenchmark) error, add func(result.Stored) error) error {
	if err := bounded(cm); err != nil {
		return err
	}
	from := func(name string) ([]byte, error) {
		content, ok := cm.BinaryData[keyOf(name)]
		if !ok {
			return nil, fmt.Errorf("the ConfigMap has no %s in binaryData", keyOf(name))
		}
		return content, nil
	}
	content, err := from(manifestFile)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNone, err)
	}
	if sum := result.NewFile(manifestFile, content).SHA256; sum != sha256 {
		return fmt.Errorf("%w: its manifest has SHA-256 %s", ErrDigest, sum)
	}
	m, err := parseManifest(content)
	if err != nil {
		return err
	}
	b, err := m.object(ctx, from)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	case b.Matrix != nil:
		return fmt.Errorf("%w: it is of a LatencyMatrix; export the LatencyBenchmark of one pair", ErrNone)
	}
	if err := begin(b.Object); err != nil {
		return err
	}
	for _, s := range b.Object.Status.Stored {
		run, err := m.run(from, s)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if err := add(run); err != nil {
			return err
		}
	}
	return nil
}
