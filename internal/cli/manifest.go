package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// stdinName is the file name that means standard input.
const stdinName = "-"

// fileFlag adds the flag that names the manifest of a verb.
func fileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "filename", "f", "", "YAML or JSON of the LatencyBenchmark or LatencyMatrix; - is standard input")
	if err := cmd.MarkFlagFilename("filename", "yaml", "yml", "json"); err != nil {
		panic(err) // There is no such flag.
	}
}

// readManifest reads the only LatencyBenchmark or LatencyMatrix of a file, unchanged.
func readManifest(file string, stdin io.Reader) (*unstructured.Unstructured, error) {
	content, err := readFile("--filename", file, stdin, maxManifest)
	if err != nil {
		return nil, err
	}
	objects, err := parseObjects(content)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if len(objects) != 1 {
		return nil, fmt.Errorf("%s has %d objects: give one LatencyBenchmark or LatencyMatrix, and apply the other objects with kubectl", file, len(objects))
	}
	u := objects[0]
	switch {
	case u.GetAPIVersion() != v1alpha1.GroupVersion.String() || u.GetKind() != benchmarks.name && u.GetKind() != matrices.name:
		return nil, fmt.Errorf("%s has apiVersion %q, kind %q; expected %s, %s or %s",
			file, u.GetAPIVersion(), u.GetKind(), v1alpha1.GroupVersion, benchmarks.name, matrices.name)
	case u.GetName() == "":
		return nil, fmt.Errorf("%s: metadata.name: the %s has no name; add one", file, u.GetKind())
	}
	return u, nil
}

const (
	// maxManifest bounds a file with one object: it is the largest request that an API server accepts.
	maxManifest = 3 << 20
	// maxNodes bounds a file with nodes: 5,000 nodes with their images take 100 MiB.
	maxNodes = 256 << 20
)

// kindOf returns the kind of a manifest.
func kindOf(u *unstructured.Unstructured) *kind {
	if u.GetKind() == matrices.name {
		return matrices
	}
	return benchmarks
}

// readFile reads a file, or standard input. It returns an error if the input has more bytes than most.
func readFile(flag, file string, stdin io.Reader, most int64) ([]byte, error) {
	switch file {
	case "":
		return nil, fmt.Errorf("%s: name a file, or - for standard input", flag)
	case stdinName:
	default:
		opened, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		defer opened.Close()
		stdin = opened
	}
	content, err := io.ReadAll(atMost(stdin, most))
	if err != nil {
		return nil, fmt.Errorf("%s: reading %s: %w", flag, file, err)
	}
	return content, nil
}

// atMost returns a reader that fails if r has more bytes than most.
func atMost(r io.Reader, most int64) io.Reader {
	return io.MultiReader(io.LimitReader(r, most), &tooLarge{r, most})
}

// tooLarge returns no data, and an error if rest has any.
type tooLarge struct {
	rest io.Reader
	most int64
}

func (t *tooLarge) Read([]byte) (int, error) {
	n, err := io.ReadFull(t.rest, make([]byte, 1))
	if n > 0 {
		return 0, fmt.Errorf("it has more than %d MiB", t.most>>20)
	}
	return 0, err
}

// parseObjects reads all objects of a YAML or JSON file. A duplicate key is an error.
func parseObjects(content []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &u.Object); err != nil {
			return nil, err
		}
		if len(u.Object) > 0 {
			all = append(all, u)
		}
	}
}

// inNamespace sets the namespace of a manifest without one. If the manifest has a namespace, a flag must name the same one.
func inNamespace(u *unstructured.Unstructured, namespace string, flagged bool) error {
	switch own := u.GetNamespace(); {
	case own == "":
		u.SetNamespace(namespace)
	case flagged && own != namespace:
		return fmt.Errorf("--namespace is %s, but the file has metadata.namespace: %s; remove one of the two", namespace, own)
	}
	return nil
}
