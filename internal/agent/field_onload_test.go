package agent

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/field"
)

// Cases of Onload (test/field).
func TestFieldOnload(t *testing.T) {
	field.Run(t, "onload", "internal/agent", func(t *testing.T, c field.Case) map[string]string {
		if library := c.Arguments["library"]; library != "" {
			return map[string]string{"Onload's": fmt.Sprint(onload.IsLibrary(library))}
		}
		if name := c.Arguments["signal"]; name != "" {
			p, err := start(tool.Command{Path: "sh", Args: []string{"-c", "kill -" + name + " $$"}}, []int{0}, t.TempDir(), os.Environ())
			if err != nil {
				t.Fatal(err)
			}
			return map[string]string{"message": awaitListening(t.Context(), p, v1alpha1.ProtocolTCP, plan.ToolPort, listenTimeout).Error()}
		}
		// A tool with Onload ended with an error after it had printed the input.
		t.Setenv(preloadVariable, "")
		e := &endpoint{Agent: &Agent{Task: plan.Task{Tool: v1alpha1.ToolPinger, Acceleration: v1alpha1.AccelerationOnload, Library: library}, Root: t.TempDir()}}
		p := &process{}
		p.stderr.WriteString(c.Arguments["stderr"])
		if c.Input != "" {
			p.stderr.Write(c.Read(t))
		}
		var f *tool.Failure
		if !errors.As(orOnload(e, p, tool.Fail(v1alpha1.OutcomeToolFailed, "%s", p.lastWords())), &f) {
			t.Fatal("no failure")
		}
		return map[string]string{"outcome": f.Reason, "message": f.Message}
	})
}

// orOnload returns the failure of Onload if it is the reason for the failure of a tool, or else err.
func orOnload(e *endpoint, p *process, err error) error { return cmp.Or(e.onloadFailure(p), err) }
