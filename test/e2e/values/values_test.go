package values

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const nodes = "client: a\nserver: b\n"
	for name, test := range map[string]struct{ in, want string }{
		"nodes are enough":         {nodes, ""},
		"an unknown key":           {nodes + "sever: c\n", `x.yaml: unknown field "sever"`},
		"an unknown key below":     {nodes + "vf: {resource: a/b}\n", `x.yaml: unknown field "resource"`},
		"a key twice":              {nodes + "server: c\n", `key "server" already set in map`},
		"a value of another type":  {nodes + "cpus: two\n", "cpus"},
		"no client":                {"server: b\n", "x.yaml: client: "},
		"no server":                {"client: a\n", "x.yaml: server: "},
		"one node twice":           {"client: a\nserver: a\n", "x.yaml: server: "},
		"another's namespace":      {nodes + "namespace: default\n", "x.yaml: namespace: "},
		"no manager's namespace":   {nodes + "managerNamespace: ''\n", "x.yaml: managerNamespace: "},
		"one namespace for both":   {nodes + "managerNamespace: tailgate-e2e\nchart: {}\n", "x.yaml: managerNamespace: "},
		"a VF without a resource":  {nodes + "vf: {ipam: {type: Static, range: 10.0.0.0/24}}\n", "x.yaml: vf: "},
		"a VF without addresses":   {nodes + "vf: {resourceName: a/b}\n", "x.yaml: vf: "},
		"a PF without a name":      {nodes + "networksFrom: c\npf: {resourceName: a/b, networkRef: {}}\n", "x.yaml: pf: "},
		"a network of nowhere":     {nodes + "vf: {resourceName: a/b, networkRef: {name: c}}\n", "x.yaml: networksFrom: "},
		"Onload without VFs":       {nodes + "onload: amd.com/onload\n", "x.yaml: onload: "},
		"an upgrade of nothing":    {nodes + "upgrade: {timeout: 1m}\n", "x.yaml: upgrade.command: "},
		"an upgrade without bound": {nodes + "upgrade: {command: reboot}\n", "x.yaml: upgrade.timeout: "},
		"slow forever":             {nodes + "upgrade: {command: reboot, timeout: 1m, slow: tc}\n", "x.yaml: upgrade.slow"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse("x.yaml", []byte(test.in))
			switch {
			case test.want == "":
				if err != nil {
					t.Fatal(err)
				}
			case err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n"):
				t.Errorf("got %v, want one line with %q", err, test.want)
			}
		})
	}
}

func TestLocal(t *testing.T) {
	v, err := Local()
	if err != nil {
		t.Fatal(err)
	}
	if v.VF == nil || v.PF == nil || v.Upgrade.Timeout.Duration != time.Minute {
		t.Errorf("got %+v", v)
	}
}

// The sample has every key, and docs/internals/e2e.md explains every key.
func TestSample(t *testing.T) {
	v, err := Read("sriov.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/internals/e2e.md")
	if err != nil {
		t.Fatal(err)
	}
	check := func(prefix string, of reflect.Value) {
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Type().Field(i).Tag.Get("json"), ",")
			if of.Field(i).IsZero() {
				t.Errorf("sriov.yaml has no %s%s", prefix, name)
			}
			if !regexp.MustCompile("(?m)^\\| .*`" + regexp.QuoteMeta(prefix+name) + "`.* \\|").Match(page) {
				t.Errorf("docs/internals/e2e.md has no row of %s%s", prefix, name)
			}
		}
	}
	check("", reflect.ValueOf(v))
	check("upgrade.", reflect.ValueOf(*v.Upgrade))
}
