package admit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// guesses are fields that people expect, with what to write instead.
var guesses = map[string]string{
	"protocol": "workload: {protocols: [TCP]}", "messageSize": "workload: {messageSizes: [64]}", "iterations": "rounds: 6", "resources": "placement: {cpus: 2, memory: 512Mi}",
	"onload": "acceleration: {type: Onload}", "dryRun": "enforcement: {mode: Observe}", "selector": "nodeSelector: {matchLabels: {KEY: VALUE}}",
}

// unknownField says what to write instead of a field that the schema does not have: a field of its name further down, or of a similar name.
func unknownField(path string, root *schema.Structural, object map[string]any) error {
	parent, name := path[:max(strings.LastIndexByte(path, '.'), 0)], path[strings.LastIndexByte(path, '.')+1:]
	at, _ := resolve(parent, root, object)
	instead := guesses[name]
	switch _, labels := at.Properties["matchLabels"]; {
	case labels:
		instead = fmt.Sprintf("matchLabels: {%s: VALUE}", name)
	case instead == "":
		found := further(parent, name, at)
		if spec := root.Properties["spec"]; len(found) == 0 {
			found = further("spec", name, &spec)
		}
		if instead = strings.Join(found, " or "); instead == "" {
			instead = "one of " + strings.Join(slices.Sorted(maps.Keys(at.Properties)), ", ")
		}
	}
	return fmt.Errorf("%s: unknown field; write %s", path, instead)
}

// further returns the paths of the least depth that end with a name, with its plural, or with what it begins with.
func further(path, name string, s *schema.Structural) []string {
	var below []string
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(s.Properties))) {
		if strings.EqualFold(key, name) || strings.EqualFold(key, name+"s") || strings.HasPrefix(name, key) && name != key+"s" {
			return []string{path + "." + key}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[key]
		below = append(below, further(path+"."+key, name, &property)...)
	}
	least := 0
	for _, p := range below {
		if depth := strings.Count(p, "."); least == 0 || depth < least {
			least = depth
		}
	}
	return slices.DeleteFunc(below, func(p string) bool { return strings.Count(p, ".") > least })
}

func wrongType(e *field.Error, root *schema.Structural, object map[string]any) error {
	s, value := resolve(e.Field, root, object)
	text, isText := value.(string)
	instead := ""
	switch _, named := s.Properties["name"]; {
	case isText && named:
		instead = fmt.Sprintf("write {name: %s}", text)
	case isText && s.Type == "object":
		kind := s.Properties["type"]
		instead = "write {type: TYPE} with one of"
		for _, each := range cmp.Or(kind.ValueValidation, &schema.ValueValidation{}).Enum {
			if each.Object == value {
				instead = fmt.Sprintf("write {type: %s}", text)
				break
			}
			instead += fmt.Sprintf(" %v", each.Object)
		}
	case s.Type != "object" && len(s.XValidations) > 0:
		instead = s.XValidations[0].Message
	case s.XIntOrString:
		instead = "write a whole number, or a text such as 10us, 9G or 5%"
	}
	if instead == "" {
		return e
	}
	return fmt.Errorf("%s: %v has the type %v; %s", e.Field, value, e.BadValue, instead)
}

// resolve returns the schema and the value of a path such as spec.criteria.rules[0].max.
func resolve(path string, s *schema.Structural, object map[string]any) (*schema.Structural, any) {
	value := any(object)
	for step := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		if list, ok := value.([]any); ok && s.Items != nil {
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(list) {
				break
			}
			s, value = s.Items, list[i]
			continue
		}
		property, ok := s.Properties[step]
		if !ok {
			break
		}
		fields, _ := value.(map[string]any)
		s, value = &property, fields[step]
	}
	return s, value
}
