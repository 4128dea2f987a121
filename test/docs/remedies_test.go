package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/internal/cli"
	others "github.com/tailgate-dev/tailgate/internal/foreign"
)

// saying is a text that users read, and where it is.
type saying struct{ where, text string }

// sayings returns the texts of the programs that have several words, without those of other projects' tools and of the report's page, and the
// rows of the pages of reasons. A * stands for what a program computes.
func sayings(t *testing.T) []saying {
	t.Helper()
	var all []saying
	for _, dir := range []string{"internal", "controllers", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && slices.Contains([]string{"tool", "htmlreport", "imported"}, entry.Name()) {
				return filepath.SkipDir
			}
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ImportSpec:
					return false
				case *ast.Field:
					n.Tag = nil
				case ast.Expr:
					if text, ok := said(n); ok {
						if strings.Contains(strings.TrimSpace(text), " ") {
							all = append(all, saying{strings.TrimPrefix(path, root+"/"), text})
						}
						return false
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, page := range []string{"docs/internals/reasons.md", "docs/internals/doctor.md", "docs/troubleshooting.md"} {
		for line := range strings.Lines(read(t, page)) {
			all = append(all, saying{page, line})
		}
	}
	if len(all) < 2000 {
		t.Fatalf("%d texts", len(all))
	}
	return all
}

// said returns the text of a string, or of a sum of strings.
func said(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return regexp.MustCompile(`%(\[\d\])?[a-z]`).ReplaceAllString(text, "*"), e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, ok := said(e.X)
		right, too := said(e.Y)
		if !ok {
			left = "*"
		}
		if !too {
			right = "*"
		}
		return left + right, e.Op == token.ADD && (ok || too)
	}
	return "", false
}

// foreigners are flags of kubectl itself, and one of sfnt-pingpong.
var foreigners = []string{"--show-labels", "--previous", "--tail", "--type", "--dry-run", "--clusterrole", "--context", "--raw"}

// flags returns the flags of a command by its words, those of all commands as "", and those of the manager as "manager".
func flags(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{"": foreigners}
	var add func(c *cobra.Command)
	add = func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "kubectl ")
		for _, set := range []*pflag.FlagSet{c.LocalFlags(), c.InheritedFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				all[path], all[""] = append(all[path], "--"+f.Name), append(all[""], "--"+f.Name)
			})
		}
		all[path] = append(all[path], "--help")
		for _, child := range c.Commands() {
			add(child)
		}
	}
	add(cli.Command())
	defined := regexp.MustCompile(`(?:(?:fs|flags)\.\w+\((?:[^",]+, )?|[{ ])"([a-z-]+)"(?:,|: &e\.)`)
	for program, file := range map[string]string{"manager": "cmd/manager/main.go", "tailgate-exec": "cmd/tailgate-exec/main.go", "agent": "internal/bare/bare.go"} {
		for _, f := range defined.FindAllStringSubmatch(read(t, file), -1) {
			all[program], all[""] = append(all[program], "--"+f[1]), append(all[""], "--"+f[1])
		}
		if len(all[program]) == 0 {
			t.Errorf("%s defines no flag", file)
		}
	}
	return all
}

// schemas returns the schemas of the project's kinds, and of other projects' in the tests.
func schemas(t *testing.T) map[string]apiextensionsv1.JSONSchemaProps {
	t.Helper()
	all := map[string]apiextensionsv1.JSONSchemaProps{}
	for _, pattern := range []string{"config/crd/bases/*.yaml", "test/integration/testdata/crds/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no CRDs (%v)", err)
		}
		for _, file := range files {
			definition := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.UnmarshalStrict([]byte(read(t, strings.TrimPrefix(file, root+"/"))), definition); err != nil {
				t.Fatal(err)
			}
			all[definition.Spec.Names.Kind] = *definition.Spec.Versions[0].Schema.OpenAPIV3Schema
		}
	}
	return all
}

// has reports whether a schema has a field; * is any.
func has(s apiextensionsv1.JSONSchemaProps, path []string) bool {
	if s.Items != nil {
		s = *s.Items.Schema
	}
	if len(path) == 0 || s.AdditionalProperties != nil {
		return true
	}
	for name, field := range s.Properties {
		if (name == path[0] || path[0] == "*") && has(field, path[1:]) {
			return true
		}
	}
	return false
}

// names adds the names of the fields of a schema, and of a type as JSON has them.
func names(s apiextensionsv1.JSONSchemaProps, into map[string]bool) {
	if s.Items != nil {
		s = *s.Items.Schema
	}
	for name, field := range s.Properties {
		into[name] = true
		names(field, into)
	}
}

func namesOf(of reflect.Type, into map[string]bool, seen map[reflect.Type]bool) {
	for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, of.Kind()) {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || seen[of] {
		return
	}
	seen[of] = true
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		into[name] = true
		namesOf(field.Type, into, seen)
	}
}

// elsewhere has words in the form of a field, of which the types below have none, with what they are.
var elsewhere = map[string]string{
	"cniVersion": "of a CNI configuration", "balanceIsolated": "of OpenShift's PerformanceProfile", "reconcileID": "of the manager's log",
	"serverAddress": "of the agents' task",
}

var (
	flagIn    = regexp.MustCompile(`(?:^|[\s(/'"` + "`" + `])(--[a-z][a-z-]+)`)
	ofManager = regexp.MustCompile(`(?:operator|manager) (?:must be started )?with ` + "`?" + `(--[a-z][a-z-]+)|(--[a-z][a-z-]+) of the (?:operator|manager)`)
	commandIn = regexp.MustCompile(`kubectl tailgate ([a-z][a-z-]+)([^` + "`" + `;:,)]*)`)
	pathIn    = regexp.MustCompile(`(?:^|[^\w./-])((?:spec|status|placement|workload|acceleration|onload|network|pods|criteria|template)(?:\.[a-zA-Z*]+(?:\[[^\]]*\])?)+)`)
	fieldIn   = regexp.MustCompile(`(?:^|[^\w./\\-])([a-z]{2,}(?:[A-Z][a-z]+)+)\b`)
	roleIn    = regexp.MustCompile(`(?:ClusterRole |--clusterrole=)(tailgate-[a-z-]+)`)
	fileIn    = regexp.MustCompile(`(?:^|[\s(])((?:docs|config)/[a-z/.-]*[a-z])`)
	index     = regexp.MustCompile(`\[[^\]]*\]`)
)

// conditions are what a text that proposes something also has to say, because it fails or harms otherwise.
var conditions = []struct{ proposes, says, because string }{
	{`cpuManagerPolicy: static`, `prepare-nodes\.md`, "a kubelet does not start with the state of another policy, nor without reserved CPUs"},
	{`memoryManagerPolicy: Static`, `reservedMemory.*drain.*memory_manager_state`, "a kubelet does not start without it, nor with the old state"},
	{`cpuCFSQuota: false`, `all pods of the node`, "it lifts the CPU limits of all pods"},
	{`(?i)\buncordon (?:the )?(?:node|them)|kubectl uncordon`, `maintenance|gate`, "who drained the node may work on it"},
	{`(?i)remove the taint\b|remove it from node`, `if no workload needs|from the gate|no controller`, "a taint keeps other workloads off a node"},
	{`(?i)more VFs`, `drain`, "the number of VFs changes only when there are none"},
	{`does not belong to this.*delete it`, `if nothing uses it|if no user needs`, "it is the object of another user"},
	{`ethtool -[CK]`, `a VF has its own`, "a setting of the PF is not that of its VFs"},
}

// TestRemedies holds what the programs and the pages of reasons say against what there is: the commands with their flags, the fields of the
// kinds, of the kubelet and of Kubernetes, the roles and the files that a text names exist.
func TestRemedies(t *testing.T) {
	known, kinds := flags(t), schemas(t)
	fields := map[string]bool{}
	for _, s := range kinds {
		names(s, fields)
	}
	for _, of := range []any{
		kubeletv1beta1.KubeletConfiguration{}, corev1.Node{}, corev1.Pod{}, corev1.ConfigMap{}, corev1.Event{}, resourcev1.DeviceClass{},
		admissionregistrationv1.ValidatingAdmissionPolicy{}, others.SriovNetworkNodeState{},
	} {
		namesOf(reflect.TypeOf(of), fields, map[reflect.Type]bool{})
	}
	benchmark := kinds["LatencyBenchmark"].Properties["spec"]
	from := slices.Collect(maps.Values(kinds))
	from = append(from, benchmark, kinds["LatencyGate"].Properties["spec"], benchmark.Properties["acceleration"])
	rbac := ""
	for _, file := range []string{"config/rbac/users.yaml", "config/rbac/role.yaml", "config/rbac/gates/role.yaml", "config/rbac/metrics.yaml", "config/rbac/identity.yaml"} {
		rbac += read(t, file)
	}
	seen := map[string]int{}
	for _, s := range sayings(t) {
		wrong := func(kind, name string) { t.Errorf("%s: there is no %s %s: %s", s.where, kind, name, s.text) }
		for _, m := range flagIn.FindAllStringSubmatch(s.text, -1) {
			seen["flag"]++
			if !slices.Contains(known[""], m[1]) {
				wrong("flag", m[1])
			}
		}
		for _, m := range ofManager.FindAllStringSubmatch(s.text, -1) {
			seen["flag of the manager"]++
			if name := m[1] + m[2]; !slices.Contains(known["manager"], name) {
				wrong("flag of the manager", name)
			}
		}
		for _, m := range commandIn.FindAllStringSubmatch(s.text, -1) {
			seen["command"]++
			of, ok := known["tailgate "+m[1]]
			if !ok {
				wrong("command", m[1])
			}
			for _, f := range flagIn.FindAllStringSubmatch(m[2], -1) {
				if ok && !slices.Contains(of, f[1]) {
					wrong("flag of "+m[1], f[1])
				}
			}
		}
		for _, m := range pathIn.FindAllStringSubmatch(s.text, -1) {
			seen["path"]++
			path := strings.Split(index.ReplaceAllString(m[1], ""), ".")
			if path[len(path)-1] == "md" { // a page
				continue
			}
			if !slices.ContainsFunc(from, func(f apiextensionsv1.JSONSchemaProps) bool { return has(f, path) }) {
				wrong("path", m[1])
			}
		}
		for _, m := range fieldIn.FindAllStringSubmatch(s.text, -1) {
			seen["field"]++
			if !fields[m[1]] && elsewhere[m[1]] == "" {
				wrong("field", m[1])
			}
		}
		for _, c := range conditions {
			if regexp.MustCompile(c.proposes).MatchString(s.text) {
				seen[c.proposes]++
				if !regexp.MustCompile(c.says).MatchString(s.text) {
					t.Errorf("%s: %s: %s", s.where, c.because, s.text)
				}
			}
		}
		for _, m := range roleIn.FindAllStringSubmatch(s.text, -1) {
			seen["role"]++
			if !strings.Contains(rbac, "name: "+m[1]+"\n") {
				wrong("ClusterRole", m[1])
			}
		}
		for _, m := range fileIn.FindAllStringSubmatch(s.text, -1) {
			seen["file"]++
			if matches, err := filepath.Glob(filepath.Join(root, m[1])); err != nil || len(matches) == 0 {
				wrong("file", m[1])
			}
		}
	}
	for _, kind := range []string{"flag", "flag of the manager", "command", "path", "field", "role", "file"} {
		if seen[kind] < 5 {
			t.Errorf("only %d texts name a %s", seen[kind], kind)
		}
	}
	for _, c := range conditions {
		if seen[c.proposes] == 0 {
			t.Errorf("no text proposes %s", c.proposes)
		}
	}
}
