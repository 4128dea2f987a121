package docs

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// readers holds the folders of the packages that read data from other sources.
var readers = []string{
	"cmd/manager", "controllers/benchmark", "controllers/gate", "internal/agent", "internal/cli", "internal/doctor", "internal/evaluate", "internal/export",
	"internal/foreign", "internal/observe", "internal/report", "internal/result", "internal/summary", "internal/verdicthttp",
}

// constants holds the typed values of the constants of a package, and in limits the names of those that limit a reader or a
// wait, or with which the length of something is compared.
type constants struct {
	values map[string]types.Object
	limits map[string]token.Position
}

// onlyTime imports a package time that has only its durations; constants of other packages are not needed.
type onlyTime struct{}

func (onlyTime) Import(path string) (*types.Package, error) {
	if path != "time" {
		return nil, fmt.Errorf("%s is not imported", path)
	}
	p := types.NewPackage("time", "time")
	duration := types.NewNamed(types.NewTypeName(token.NoPos, p, "Duration", nil), types.Typ[types.Int64], nil)
	for name, d := range map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour} {
		p.Scope().Insert(types.NewConst(token.NoPos, p, name, duration, constant.MakeInt64(int64(d))))
	}
	p.MarkComplete()
	return p, nil
}

func constantsOf(t *testing.T, folder string) constants {
	t.Helper()
	set := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files in %s (%v)", folder, err)
	}
	var files []*ast.File
	for _, path := range paths {
		if !strings.HasSuffix(path, "_test.go") {
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
	}
	// Packages that are not imported cause errors that do not matter here.
	config := types.Config{Importer: onlyTime{}, Error: func(error) {}}
	checked, _ := config.Check(folder, set, files, nil)
	all := constants{map[string]types.Object{}, map[string]token.Position{}}
	for _, name := range checked.Scope().Names() {
		if c, ok := checked.Scope().Lookup(name).(*types.Const); ok {
			all.values[name] = c
		}
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			for _, limit := range limitsIn(n) {
				ast.Inspect(limit, func(n ast.Node) bool {
					if name, ok := n.(*ast.Ident); ok && all.values[name.Name] != nil {
						all.limits[name.Name] = set.Position(name.Pos())
					}
					return true
				})
			}
			return true
		})
	}
	return all
}

// limiters matches functions and methods whose last argument is a limit.
var limiters = regexp.MustCompile(`^(LimitReader|Buffer|atMost|readFile|WithTimeout|SetDeadline)$`)

// limitsIn returns the expressions of a node that limit something.
func limitsIn(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		name := ""
		switch f := n.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
		}
		if limiters.MatchString(name) && len(n.Args) > 0 {
			return n.Args[len(n.Args)-1:]
		}
	case *ast.BinaryExpr:
		if call, ok := n.X.(*ast.CallExpr); ok && n.Op == token.GTR {
			if f, ok := call.Fun.(*ast.Ident); ok && f.Name == "len" {
				return []ast.Expr{n.Y}
			}
		}
	}
	return nil
}

// written returns the notations of a value in the table.
func written(c types.Object) []string {
	v, _ := constant.Int64Val(constant.ToInt(c.(*types.Const).Val()))
	if strings.HasSuffix(c.Type().String(), "time.Duration") {
		d := time.Duration(v)
		return []string{fmt.Sprintf("%d s", d/time.Second), fmt.Sprintf("%d min", d/time.Minute)}
	}
	thousands := fmt.Sprint(v)
	for i := len(thousands) - 3; i > 0; i -= 3 {
		thousands = thousands[:i] + "," + thousands[i:]
	}
	all := []string{thousands}
	if v > 0 && v%(1<<20) == 0 {
		all = append(all, fmt.Sprintf("%d MiB", v>>20))
	}
	if v > 0 && v%(1<<10) == 0 {
		all = append(all, fmt.Sprintf("%d KiB", v>>10), fmt.Sprintf("%d Ki", v>>10))
	}
	return all
}

// noBounds holds constants that limit our own output.
var noBounds = map[string]bool{
	"internal/observe.fewNodes": true, "controllers/benchmark.maxSaid": true, "internal/cli.mostShown": true, "internal/doctor.maxSaid": true, "internal/report.mostNodes": true,
	"internal/result.maxShown": true, "internal/result.mostIntervals": true,
}

// TestBounds: the table of bounds in docs/internals/bounds.md has each constant of the code that limits input, with its value.
func TestBounds(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "internals", "bounds.md"))
	if err != nil {
		t.Fatal(err)
	}
	code := map[string]constants{}
	for _, folder := range readers {
		code[folder] = constantsOf(t, folder)
	}
	listed := map[string]bool{}
	named := regexp.MustCompile("`((?:cmd|controllers|internal)/[a-z/]+)\\.([A-Za-z]+)`")
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(cells[4], -1) {
			listed[m[1]+"."+m[2]] = true
			c := code[m[1]].values[m[2]]
			if c == nil {
				t.Errorf("docs/internals/bounds.md has the bound %s.%s, which the code does not have", m[1], m[2])
				continue
			}
			if ways := written(c); !regexp.MustCompile(`(^|[^0-9,])(` + strings.Join(ways, "|") + `)($|[^0-9,]|,[^0-9])`).MatchString(cells[2]) {
				t.Errorf("docs/internals/bounds.md writes %s.%s as %q; it is %s", m[1], m[2], strings.TrimSpace(cells[2]), strings.Join(ways, " or "))
			}
		}
	}
	for folder, all := range code {
		for name, position := range all.limits {
			if full := folder + "." + name; !listed[full] && !noBounds[full] {
				t.Errorf("the table of bounds in docs/internals/bounds.md does not have %s (%s)", full, position)
			}
		}
	}
}
