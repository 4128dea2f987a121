package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"

	yamlv3 "go.yaml.in/yaml/v3"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
)

// documentEnd is the line with which YAML ends a document. NewYAMLReader knows only the line that begins one.
var documentEnd = regexp.MustCompile(`(?m)^\.\.\.[ \t]*(#.*)?\r?$`)

// parseObjects reads all objects of a file as kubectl does: YAML documents, JSON objects one after another, or both, in UTF-8 or,
// with a byte order mark, UTF-16. Unlike kubectl, it refuses what kubectl drops: duplicate keys, and text after a document.
func parseObjects(content []byte) ([]*unstructured.Unstructured, error) {
	// Like kubectl, it replaces bytes that are not UTF-8.
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

// jsonStream splits a stream of JSON objects. ok is false if the text is anything else, such as YAML that begins with a brace.
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
	// The parser of kubectl decides what a value is, as yes is true, but it ignores duplicate keys and what follows the document.
	// It comes first because it also refuses files that aliases make large.
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

// mergeKey is the key whose value is one or several mappings to merge into the mapping that has it.
const mergeKey = "<<"

// distinctKeys returns an error if a mapping has a key twice, or if kubectl and the YAML standard read a merge key differently:
// for kubectl, the last of equal keys counts, and in the standard the mapping's own key, wherever the merge key is.
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

// overrides returns a key of keys that is in the mappings that the value of a merge key names, or in those that they merge themselves.
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

// parseObject reads an object. The getters of Unstructured treat metadata of a wrong type as absent, so that it is refused here.
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
