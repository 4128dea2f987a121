package bare

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// write writes the files of an export that are read again into a new directory, completely or not at all, and returns the digest of
// its manifest in hexadecimal.
func write(dir string, b *v1alpha1.LatencyBenchmark, runs []result.Stored) (string, error) {
	b.UID, b.CreationTimestamp = uuid.NewUUID(), metav1.Now()
	complete(b, runs)
	object, err := result.EncodeJSON(b)
	if err != nil {
		return "", err
	}
	files := map[string][]byte{result.ExportBenchmark: object}
	for _, run := range runs {
		for name, content := range run.Files() {
			files[path.Join(result.ExportRuns, run.Client.Run, name)] = content
		}
	}
	m := result.Manifest{Format: result.ExportFormat, Version: result.ExportVersion, Namespace: b.Namespace, Name: b.Name, UID: string(b.UID)}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		m.Files = append(m.Files, result.NewFile(name, files[name]))
	}
	if files[result.ExportManifest], err = result.EncodeJSON(m); err != nil {
		return "", err
	}
	unfinished := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+"-"+strings.ToLower(string(b.UID)))
	defer os.RemoveAll(unfinished)
	for name, content := range files {
		file := filepath.Join(unfinished, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return "", fmt.Errorf("-o: %w", err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return "", fmt.Errorf("-o: %w", err)
		}
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return "", fmt.Errorf("-o: %w", err)
	}
	return result.NewFile(result.ExportManifest, files[result.ExportManifest]).SHA256, nil
}

// complete gives a benchmark the status of one that is measured, and the CPUs and nodes on which it was.
func complete(b *v1alpha1.LatencyBenchmark, runs []result.Stored) {
	client, server := runs[0].Client.Evidence, runs[0].Server.Evidence
	b.Spec.Placement.Client.CPUs, b.Spec.Placement.Server.CPUs = cpus(client), cpus(server)
	b.Status = v1alpha1.LatencyBenchmarkStatus{ObservedGeneration: 1, Pair: &v1alpha1.Pair{ClientNode: client.Node, ServerNode: server.Node}}
	for _, run := range runs {
		b.Status.Stored = append(b.Status.Stored, run.Named(run.Client.Run))
	}
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete,
		fmt.Sprintf("%d of %d runs were measured on two hosts without Kubernetes", len(runs), len(runs))))
}

func cpus(e result.Evidence) int32 {
	list, err := result.ParseCPUs(e.CPUsAllowed)
	if err != nil {
		return 0
	}
	return int32(list.Size())
}
