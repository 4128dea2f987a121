package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	yamlv3 "go.yaml.in/yaml/v3"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const stdinName = "-"

func fileFlag(cmd *cobra.Command, file *string, kinds ...*kind) {
	cmd.Flags().StringVarP(file, "filename", "f", "", "YAML or JSON of the "+kindNames(kinds)+"; - is standard input")
}

func kindNames(kinds []*kind) string {
	names := text.Of(kinds, func(k *kind) string { return k.name })
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// readManifest reads a file's only object, of one of the kinds, without an API server's parts.
func readManifest(file string, stdin io.Reader, kinds ...*kind) (*unstructured.Unstructured, error) {
	content, err := readFile("--filename", file, stdin, maxManifest)
	if err != nil {
		return nil, err
	}
	objects, err := parseObjects(content)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if len(objects) != 1 {
		return nil, fmt.Errorf("%s has %d objects: give one %s, and apply the other objects with kubectl", file, len(objects), kindNames(kinds))
	}
	u := objects[0]
	switch {
	case u.GetAPIVersion() != v1alpha1.GroupVersion.String() || !slices.ContainsFunc(kinds, func(k *kind) bool { return k.name == u.GetKind() }):
		return nil, fmt.Errorf("%s has apiVersion %q, kind %q; expected %s, %s",
			file, u.GetAPIVersion(), u.GetKind(), v1alpha1.GroupVersion, kindNames(kinds))
	case u.GetName() == "":
		return nil, fmt.Errorf("%s: metadata.name: the %s has no name; add one", file, u.GetKind())
	case len(u.GetOwnerReferences()) > 0:
		owner := u.GetOwnerReferences()[0]
		return nil, fmt.Errorf("%s: metadata.ownerReferences: it was made for %s %s, and is deleted with it; remove this field and the labels of %s to run it on its own",
			file, owner.Kind, owner.Name, v1alpha1.GroupVersion.Group)
	}
	unstructured.RemoveNestedField(u.Object, "status") // as all that an API server sets
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	return u, nil
}

const (
	maxManifest = 3 << 20   // bytes of a file with one object, as of an API server's request
	maxNodes    = 256 << 20 // bytes of a file with nodes: 5,000 with their images take 100 MiB
)

func kindOf(u *unstructured.Unstructured) *kind {
	for _, k := range kinds() {
		if k.name == u.GetKind() {
			return k
		}
	}
	return benchmarks
}

func readFile(flag, file string, stdin io.Reader, most int64) ([]byte, error) {
	switch file {
	case "":
		return nil, fmt.Errorf("%s: name a file, or - for standard input", flag)
	case stdinName:
	default:
		if strings.Contains(file, "://") {
			return nil, fmt.Errorf("%s: %s is a URL, and only files are read; use `curl -fsSL %[2]s | %s ... %[1]s -`", flag, file, name)
		}
		opened, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		defer opened.Close()
		if info, err := opened.Stat(); err == nil && info.IsDir() {
			return nil, fmt.Errorf("%s: %s is a directory; name a file, or use `kubectl kustomize %[2]s | %s ... %[1]s -`", flag, file, name)
		}
		stdin = opened
	}
	content, err := io.ReadAll(atMost(stdin, most))
	if err != nil {
		return nil, fmt.Errorf("%s: reading %s: %w", flag, file, err)
	}
	return content, nil
}

func atMost(r io.Reader, most int64) io.Reader {
	return io.MultiReader(io.LimitReader(r, most), &tooLarge{r, most})
}

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

// manifest reads a file's only object, of one of the kinds, into the command's namespace.
func (c *cluster) manifest(file string, stdin io.Reader, kinds ...*kind) (*unstructured.Unstructured, error) {
	u, err := readManifest(file, stdin, kinds...)
	if err != nil || kindOf(u) == gates {
		return u, err
	}
	namespace, flagged, err := c.namespace()
	if err != nil {
		return nil, err
	}
	return u, inNamespace(u, namespace, flagged)
}

// inNamespace sets the namespace of a manifest without one; a flag must agree.
func inNamespace(u *unstructured.Unstructured, namespace string, flagged bool) error {
	switch own := u.GetNamespace(); {
	case own == "":
		u.SetNamespace(namespace)
	case flagged && own != namespace:
		return fmt.Errorf("--namespace is %s, but the file has metadata.namespace: %s; remove one of the two", namespace, own)
	}
	return nil
}

// documentEnd ends a YAML document. NewYAMLReader knows only the line that begins one.
var documentEnd = regexp.MustCompile(`(?m)^\.\.\.[ \t]*(#.*)?\r?$`)

// parseObjects reads a file as kubectl does: YAML, JSON, or both, in UTF-8, of which it replaces
// invalid bytes, or UTF-16. It refuses what kubectl drops: duplicate keys, text after a document.
func parseObjects(content []byte) ([]*unstructured.Unstructured, error) {
	text, _, err := transform.Bytes(unicode.BOMOverride(unicode.UTF8.NewDecoder()), content)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(text, []byte("\n...")) {
		text = documentEnd.ReplaceAll(text, []byte("---"))
	}
	var all []*unstructured.Unstructured
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		each, isJSON := jsonStream(document)
		if !isJSON {
			if each, err = yamlDocument(document); err != nil {
				return nil, err
			}
		}
		for _, raw := range each {
			u, err := parseObject(raw)
			if err != nil {
				return nil, err
			}
			if len(u.Object) > 0 {
				all = append(all, u)
			}
		}
	}
}

// jsonStream splits a stream of JSON objects, unless it is else, as YAML with a brace.
func jsonStream(text []byte) (each []json.RawMessage, ok bool) {
	if !yaml.IsJSONBuffer(text) {
		return nil, false
	}
	stream := json.NewDecoder(bytes.NewReader(text))
	for {
		var raw json.RawMessage
		switch err := stream.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return each, true
		case err != nil:
			return nil, false
		}
		each = append(each, raw)
	}
}

// yamlDocument converts a YAML document to JSON; it returns nothing for one without content.
func yamlDocument(text []byte) ([]json.RawMessage, error) {
	// kubectl's parser ignores duplicate keys, but decides values, and refuses large aliases.
	raw, err := yaml.ToJSON(text)
	if err != nil {
		return nil, err
	}
	documents := yamlv3.NewDecoder(bytes.NewReader(text))
	var node yamlv3.Node
	switch err := documents.Decode(&node); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := distinctKeys(&node); err != nil {
		return nil, err
	}
	var next yamlv3.Node
	switch err := documents.Decode(&next); {
	case err == nil:
		return nil, fmt.Errorf("line %d: text after the end of the document", next.Line)
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	return []json.RawMessage{raw}, nil
}

const mergeKey = "<<"

// distinctKeys refuses a key twice, and a merge key after keys that it overrides only for kubectl.
func distinctKeys(n *yamlv3.Node) error {
	if n.Kind == yamlv3.MappingNode {
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := resolved(n.Content[i]), n.Content[i+1]
			if key.Value == mergeKey {
				if seen[mergeKey] {
					return fmt.Errorf("line %d: key %q already set in map", key.Line, mergeKey)
				}
				if overridden, found := overrides(value, seen, map[*yamlv3.Node]bool{}); found {
					return fmt.Errorf("line %d: %s overrides %q before it for kubectl, and does not in the YAML standard; put %[2]s first", key.Line, mergeKey, overridden)
				}
				seen[mergeKey] = true
				continue
			}
			if key.Kind == yamlv3.ScalarNode && seen[key.Value] {
				return fmt.Errorf("line %d: key %q already set in map", key.Line, key.Value)
			}
			seen[key.Value] = true
		}
	}
	for _, child := range n.Content {
		if err := distinctKeys(child); err != nil {
			return err
		}
	}
	return nil
}

func resolved(n *yamlv3.Node) *yamlv3.Node {
	if n.Kind == yamlv3.AliasNode {
		return n.Alias
	}
	return n
}

// overrides returns one of keys in the mappings that a merge key names, or in theirs.
func overrides(value *yamlv3.Node, keys map[string]bool, visited map[*yamlv3.Node]bool) (string, bool) {
	value = resolved(value)
	if len(keys) == 0 || visited[value] {
		return "", false
	}
	visited[value] = true
	for i, n := range value.Content {
		switch {
		case value.Kind == yamlv3.SequenceNode, value.Kind == yamlv3.MappingNode && i%2 == 1 && resolved(value.Content[i-1]).Value == mergeKey:
			if key, found := overrides(n, keys, visited); found {
				return key, true
			}
		case value.Kind == yamlv3.MappingNode && i%2 == 0:
			if key := resolved(n).Value; key != mergeKey && keys[key] {
				return key, true
			}
		}
	}
	return "", false
}

// parseObject reads an object. Unstructured's getters hide metadata of a wrong type: refused.
func parseObject(raw []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	strict, err := kjson.UnmarshalStrict(raw, &u.Object, kjson.DisallowDuplicateFields)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, err
	}
	for _, texts := range []string{"labels", "annotations"} {
		if _, _, err := unstructured.NestedStringMap(u.Object, "metadata", texts); err != nil { // It names the key, which the decoder does not.
			return nil, err
		}
	}
	var typed struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   metav1.ObjectMeta `json:"metadata"`
	}
	err = json.Unmarshal(raw, &typed)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && wrong.Type.Kind() == reflect.String {
		return nil, fmt.Errorf("%s: it has the type %s, and must be a string; put the value in quotes", wrong.Field, wrong.Value)
	}
	return u, err
}
