// Package docs reads the pages of the documentation, README.md and those in docs/ and its folders, for tests: the commands that run on the
// local cluster, the files that they use, and the targets of links.
//
// Every fenced block has one of these languages, so that no block is omitted by mistake:
//
//   - sh is run, in the page's order, on the local cluster;
//   - yaml becomes a file if its first line is a comment with a name, such as `# vf.yaml`;
//   - console, text and json are only read: commands that need another cluster, and the output of commands.
package docs

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"sigs.k8s.io/yaml"
)

// Page is a page of the documentation.
type Page struct {
	// Path is the path of the file from the repository's root, with slashes.
	Path string
	// Steps holds the blocks that become files or run commands, in order.
	Steps []Step
	// YAML holds its yaml blocks, including those that become files, whose File is set.
	YAML []Step
	// Links holds its links as they are written, including images.
	Links []Link
	// Anchors holds the names of its headings in links, such as a-first-benchmark.
	Anchors []string
	// Terms holds the code in the first column of its tables, such as `Queued`.
	Terms []Term
}

// Step is a block that becomes a file or runs commands.
type Step struct {
	// Line is the number of the block's first line in the page, from 1.
	Line int
	// File is the name of the file that the block becomes; otherwise empty.
	File string
	// Text is the block's content.
	Text string
}

// Link is a link.
type Link struct {
	// Line is the line of the paragraph or table cell with the link, from 1.
	Line int
	// To is its destination.
	To string
}

// Term is the subject of a table's row.
type Term struct {
	// Line is the line of the row, from 1.
	Line int
	// Name is its text without the backticks.
	Name string
}

// Commands reports whether a page has commands to run.
func (p Page) Commands() bool {
	for _, s := range p.Steps {
		if s.File == "" {
			return true
		}
	}
	return false
}

// fileName matches the first line of a block that becomes a file.
var fileName = regexp.MustCompile(`^# ([a-z0-9][-a-z0-9.]*\.yaml)\n`)

// Parse parses a page. An error names the path and line of its block.
func Parse(path string, source []byte) (Page, error) {
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	page := Page{Path: path}
	line := func(n ast.Node) int { return 1 + bytes.Count(source[:start(n)], []byte("\n")) }
	err := ast.Walk(markdown.Parser().Parse(text.NewReader(source)), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.FencedCodeBlock:
			content := string(n.Lines().Value(source))
			if strings.TrimSpace(content) == "" {
				return ast.WalkStop, fmt.Errorf("%s: a fenced block is empty: remove it", path)
			}
			switch language := string(n.Language(source)); language {
			case "sh":
				page.Steps = append(page.Steps, Step{Line: line(n), Text: content})
			case "yaml":
				block := Step{Line: line(n), Text: content}
				if name := fileName.FindStringSubmatch(content); name != nil {
					block.File = name[1]
					page.Steps = append(page.Steps, block)
				}
				page.YAML = append(page.YAML, block)
			case "console", "text", "json":
			default:
				return ast.WalkStop, fmt.Errorf("%s:%d: a fenced block of language %q: use sh for what a test runs on the local cluster, or console, yaml, text or json", path, line(n), language)
			}
		case *ast.Heading:
			if id, ok := n.AttributeString("id"); ok {
				page.Anchors = append(page.Anchors, string(id.([]byte)))
			}
		case *ast.Link:
			page.Links = append(page.Links, Link{Line: line(n), To: string(n.Destination)})
		case *ast.Image:
			page.Links = append(page.Links, Link{Line: line(n), To: string(n.Destination)})
		case *ast.CodeSpan:
			if inFirstColumn(n) {
				page.Terms = append(page.Terms, Term{Line: line(n), Name: string(n.FirstChild().(*ast.Text).Value(source))})
			}
		}
		return ast.WalkContinue, nil
	})
	return page, err
}

// start returns the offset at which a node, or the innermost block around it, begins in its page.
func start(n ast.Node) int {
	for ; n != nil; n = n.Parent() {
		if n.Type() == ast.TypeBlock && n.Lines() != nil && n.Lines().Len() > 0 {
			return n.Lines().At(0).Start
		}
	}
	return 0
}

// inFirstColumn reports whether code is in the first cell of a table's row, excluding the header.
func inFirstColumn(n ast.Node) bool {
	cell := n.Parent()
	return cell.Kind() == tables.KindTableCell && cell.PreviousSibling() == nil && cell.Parent().Kind() == tables.KindTableRow
}

// Pages reads all pages of the repository at root, README.md first.
func Pages(root string) ([]Page, error) {
	var files []string
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for pages: %w", err)
	}
	var pages []Page
	for _, file := range append([]string{filepath.Join(root, "README.md")}, files...) {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a page: %w", err)
		}
		path, err := filepath.Rel(root, file)
		if err != nil {
			return nil, fmt.Errorf("naming %s: %w", file, err)
		}
		page, err := Parse(filepath.ToSlash(path), source)
		if err != nil {
			return nil, err
		}
		pages = append(pages, page)
	}
	return pages, nil
}

// Object is an object of an API.
type Object struct {
	// From is its location: a file, or a page with the line of its block.
	From string
	// Content is the object as maps, slices and values.
	Content map[string]any
}

// Documents parses the objects of a manifest, which are separated by lines of three hyphens.
func Documents(from, manifest string) ([]Object, error) {
	var objects []Object
	for document := range strings.SplitSeq("\n"+manifest, "\n---\n") {
		var content map[string]any
		if err := yaml.Unmarshal([]byte(document), &content); err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		if content != nil {
			objects = append(objects, Object{from, content})
		}
	}
	return objects, nil
}

// Objects reads the objects of an API group from the samples and the pages of the repository at root. It excludes parts of
// objects.
func Objects(root, group string) ([]Object, error) {
	var all []Object
	samples := os.DirFS(filepath.Join(root, "config", "samples"))
	err := fs.WalkDir(samples, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := fs.ReadFile(samples, path)
		if err != nil {
			return err
		}
		found, err := Documents("config/samples/"+path, string(content))
		all = append(all, found...)
		return err
	})
	if err != nil {
		return nil, err
	}
	pages, err := Pages(root)
	if err != nil {
		return nil, err
	}
	for _, p := range pages {
		for _, block := range p.YAML {
			found, err := Documents(fmt.Sprintf("%s:%d", p.Path, block.Line), block.Text)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return slices.DeleteFunc(all, func(o Object) bool {
		version, _ := o.Content["apiVersion"].(string)
		return !strings.HasPrefix(version, group+"/")
	}), nil
}
