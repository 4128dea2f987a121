package docs

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// Block is a fenced block of a page, or a command in a sentence or table of it.
type Block struct {
	// Line is the number of its first line in the page, from 1.
	Line int
	// Language is that of the fence, or code for a command in a sentence.
	Language string
	// Text is its content.
	Text string
}

// inline matches code in a sentence that is a command.
var inline = regexp.MustCompile(`^(kubectl|oc) .`)

// Blocks returns the blocks of a page in order.
func Blocks(source []byte) ([]Block, error) {
	var blocks []Block
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM))
	err := ast.Walk(markdown.Parser().Parse(text.NewReader(source)), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		line := 1 + strings.Count(string(source[:start(n)]), "\n")
		switch n := n.(type) {
		case *ast.FencedCodeBlock:
			blocks = append(blocks, Block{line, string(n.Language(source)), string(n.Lines().Value(source))})
		case *ast.CodeSpan:
			var content strings.Builder
			for child := n.FirstChild(); child != nil; child = child.NextSibling() {
				content.Write(child.(*ast.Text).Value(source))
			}
			if inline.MatchString(content.String()) {
				blocks = append(blocks, Block{line, "code", content.String() + "\n"})
			}
		}
		return ast.WalkContinue, nil
	})
	return blocks, err
}

// Command is a command of a console block.
type Command struct {
	// Line is the number of its first line in the page, from 1.
	Line int
	// Node is the node whose prompt it has; empty for the workstation.
	Node string
	// Text is the command, possibly of several lines.
	Text string
	// Says is the comment at the command's end.
	Says string
	// Prints holds the lines of output that the page shows.
	Prints []string
}

var (
	prompt  = regexp.MustCompile(`^(?:\$|(worker-\d)#) (.+)$`)
	comment = regexp.MustCompile(`\s{2,}# (.+)$`)
)

// Commands returns the commands of a console block. A command continues on the next lines until the shell knows its end. The lines after
// it, up to the next prompt, are its output.
func (b Block) Commands() ([]Command, error) {
	var all []Command
	open := false
	for i, line := range strings.Split(strings.TrimSuffix(b.Text, "\n"), "\n") {
		said := ""
		if match := prompt.FindStringSubmatch(line); match != nil && !open {
			all = append(all, Command{Line: b.Line + i, Node: match[1]})
			line = match[2]
		} else if len(all) == 0 {
			return nil, fmt.Errorf("line %d: a console block starts with a command after a prompt", b.Line+i)
		} else if !open {
			all[len(all)-1].Prints = append(all[len(all)-1].Prints, line)
			continue
		}
		if match := comment.FindStringSubmatch(line); match != nil {
			said, line = match[1], strings.TrimSuffix(line, match[0])
		}
		last := &all[len(all)-1]
		last.Text, last.Says = last.Text+line+"\n", said
		open = strings.HasSuffix(line, `\`) || exec.Command("bash", "-n", "-c", last.Text).Run() != nil
	}
	if open {
		return nil, fmt.Errorf("line %d: the shell does not see the end of %q", b.Line, all[len(all)-1].Text)
	}
	return all, nil
}
