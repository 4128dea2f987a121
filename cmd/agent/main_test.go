package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
)

func TestRunRefuses(t *testing.T) {
	const server = `{"run":"x-r1","variant":"default","attempt":1,"role":"server","tool":"sockperf","cells":[{"name":"tcp-64"}],"deadline":1}`
	cases := map[string]struct {
		args []string
		task string
		// want is part of the error.
		want string
	}{
		"no verb":                         {want: "usage"},
		"two verbs":                       {args: []string{"client", "server"}, want: "usage"},
		"a verb that does not exist":      {args: []string{"judge"}, want: `"judge"`},
		"an empty verb":                   {args: []string{""}, want: "usage"},
		"a flag":                          {args: []string{"--help"}, want: "usage"},
		"no task":                         {args: []string{"server"}, want: "reading the task"},
		"an invalid task":                 {args: []string{"server"}, task: "?", want: "reading the task"},
		"a task that is incomplete":       {args: []string{"server"}, task: `{"run":"x-r1","attempt":1,"role":"server"}`, want: "cells"},
		"the server's task at the client": {args: []string{"client"}, task: server, want: "a server's"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			getenv := func(name string) string {
				if name == plan.EnvTask {
					return c.task
				}
				return ""
			}
			err := run(context.Background(), c.args, getenv, io.Discard, filepath.Join(t.TempDir(), "termination"))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that names %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

// The manager may have another version than the agent.
func TestTaskOfAnotherVersionIsRefused(t *testing.T) {
	for name, task := range map[string]string{
		"an unknown field":         `{"run":"x-r1","variant":"default","attempt":1,"role":"server","tool":"sockperf","cells":[{"name":"tcp-64"}],"deadline":1,"jumbo":true}`,
		"an unknown field, nested": `{"run":"x-r1","variant":"default","attempt":1,"role":"server","tool":"sockperf","cells":[{"name":"tcp-64","burst":2}],"deadline":1}`,
		"another type":             `{"run":"x-r1","variant":"default","attempt":1,"role":"server","tool":"sockperf","cells":[{"name":"tcp-64"}],"deadline":"1s"}`,
		"an unknown acceleration":  `{"run":"x-r1","variant":"default","attempt":1,"role":"server","tool":"sockperf","cells":[{"name":"tcp-64"}],"deadline":1,"acceleration":"XDP"}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "termination")
			getenv := func(name string) string { return map[string]string{plan.EnvTask: task, plan.EnvKey: "key"}[name] }
			if err := run(t.Context(), []string{"server"}, getenv, io.Discard, path); err == nil {
				t.Fatal("it ran the task")
			}
			message, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := result.ParseTermination(string(message))
			if err != nil || got.Reason != v1alpha1.OutcomeVersionMismatch || !strings.Contains(got.Message, "same release") {
				t.Errorf("it said %+v, %v", got, err)
			}
		})
	}
}

func TestHold(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	held := make(chan error, 1)
	go func() { held <- run(ctx, []string{"hold"}, func(string) string { return "" }, io.Discard, "") }()
	select {
	case err := <-held:
		t.Fatalf("it did not wait to be told: %v", err)
	default:
	}
	cancel()
	if err := <-held; err != nil {
		t.Error(err)
	}
}

func TestInspect(t *testing.T) {
	var log bytes.Buffer
	getenv := func(name string) string { return map[string]string{plan.EnvNode: "a", plan.EnvInterface: "lo"}[name] }
	if err := run(context.Background(), []string{"inspect"}, getenv, &log, ""); err != nil {
		t.Fatal(err)
	}
	i, err := result.ReadInspection(&log)
	if err != nil {
		t.Fatal(err)
	}
	if i.Evidence.Node != "a" || i.Evidence.Interface != "lo" || i.Evidence.CPUsAllowed == "" {
		t.Errorf("%+v", i)
	}
}

func TestInspectRepeatedly(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"inspect", "often", "1m"}, `invalid duration "often"`},
		{[]string{"inspect", "1s", "long"}, `invalid duration "long"`},
		{[]string{"inspect", "1s"}, "usage"},
		{[]string{"hold", "1s", "1m"}, "usage"},
		{[]string{"inspect", "1s", "1m"}, "no process of the container is visible"},
	} {
		path := filepath.Join(t.TempDir(), "termination")
		getenv := func(name string) string { return map[string]string{plan.EnvContainer: "none such"}[name] }
		if err := run(t.Context(), c.args, getenv, io.Discard, path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got error %v, want %q", c.args, err, c.want)
		}
	}
}

func TestUnverified(t *testing.T) {
	err := run(context.Background(), []string{"unverified"}, func(string) string { return "" }, io.Discard, "")
	if err == nil || err.Error() != "the latency of the node is not verified" {
		t.Errorf("got %v", err)
	}
}

// The agent runs in the pods of users: it links the code that it shares with the operator, but not the operator's decisions.
func TestLinksNothingOfTheOperator(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/tailgate-dev/tailgate/"
	shared := regexp.MustCompile(`^(api/v1alpha1|cmd/agent|internal/(agent|bare|capture|foreign|onload|plan|result|samples|stats|text|tool(/\w+)?))$`)
	for line := range strings.Lines(string(out)) {
		name, ours := strings.CutPrefix(strings.TrimSpace(line), module)
		if ours && !shared.MatchString(name) {
			t.Errorf("the agent links %s", name)
		}
		if strings.HasPrefix(name, "k8s.io/client-go") || strings.HasPrefix(name, "sigs.k8s.io/controller-runtime") {
			t.Errorf("the agent links %s", name)
		}
	}
}
