// Command crdbounds adds bounds to the fields of generated CRDs whose types are Kubernetes' own, which have no markers: selectors of
// labels, and tolerations. Its arguments are the files.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// The bounds of selectors and tolerations. A key is a DNS name of 253 characters, a slash, and a name of 63.
const (
	mostTerms, mostValues                 = 16, 64
	longestKey, longestValue, longestWord = 317, 63, 32
)

func main() {
	for _, file := range os.Args[1:] {
		if err := bound(file); err != nil {
			fmt.Fprintln(os.Stderr, "crdbounds:", err)
			os.Exit(1)
		}
	}
}

func bound(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(content, &crd); err != nil {
		return err
	}
	walk(crd)
	if content, err = yaml.Marshal(crd); err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte("---\n"), content...), 0o644)
}

// walk adds the bounds below a schema.
func walk(schema any) {
	switch schema := schema.(type) {
	case []any:
		for _, each := range schema {
			walk(each)
		}
	case map[string]any:
		if within, ok := schema["properties"].(map[string]any); ok {
			boundProperties(within)
		}
		for _, each := range schema {
			walk(each)
		}
	}
}

func boundProperties(within map[string]any) {
	field := func(of map[string]any, name string) map[string]any { return of[name].(map[string]any) }
	switch {
	case within["matchLabels"] != nil && within["matchExpressions"] != nil:
		labels, expressions := field(within, "matchLabels"), field(within, "matchExpressions")
		labels["maxProperties"], expressions["maxItems"] = mostTerms, mostTerms
		field(labels, "additionalProperties")["maxLength"] = longestValue
		of := field(field(expressions, "items"), "properties")
		field(of, "key")["maxLength"], field(of, "operator")["maxLength"] = longestKey, longestWord
		field(of, "values")["maxItems"], field(field(of, "values"), "items")["maxLength"] = mostValues, longestValue
	case within["tolerationSeconds"] != nil:
		field(within, "key")["maxLength"], field(within, "value")["maxLength"] = longestKey, longestValue
		field(within, "operator")["maxLength"], field(within, "effect")["maxLength"] = longestWord, longestWord
	}
}
