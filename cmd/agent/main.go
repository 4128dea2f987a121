// Command agent is the program in a benchmark's pods (client, server), in hold pods (hold; on
// verified nodes, their probe verified fails if boot or kernel differ; on others, unverified
// fails), in inspect pods (inspect, answer), and between hosts without Kubernetes (bare).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/agent"
	"github.com/tailgate-dev/tailgate/internal/bare"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
)

const terminationLog = "/dev/termination-log"

const verbs = "client|server|hold|verified|unverified|inspect|answer|bare"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, terminationLog); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, getenv func(string) string, stdout io.Writer, terminationLog string) error {
	if len(args) > 0 && args[0] == "verified" {
		return agent.Verified("/", args[1:])
	}
	if len(args) > 0 && args[0] == "bare" {
		return bare.Run(ctx, args[1:], getenv(plan.EnvKey), all.Registry(), stdout)
	}
	if len(args) != 1 && (len(args) != 3 || args[0] != "inspect") {
		return fmt.Errorf("usage: agent %s", verbs)
	}
	switch args[0] {
	case "hold":
		<-ctx.Done()
		return nil
	case "unverified":
		return errors.New("the latency of the node is not verified")
	case "inspect":
		if getenv(plan.EnvView) == plan.ViewNode {
			return agent.Enter(getenv(plan.EnvContainer))
		}
		if err := inspect(ctx, inspector(getenv), getenv(plan.EnvContainer), args[1:], stdout); err != nil {
			return errors.Join(err, result.Termination{Reason: v1alpha1.OutcomeAgentFailed, Message: err.Error()}.WriteFile(terminationLog))
		}
		return nil
	case "answer":
		return inspector(getenv).Answer(ctx)
	case v1alpha1.RoleClient, v1alpha1.RoleServer:
	default:
		return fmt.Errorf("unknown verb %q: usage: agent %s", args[0], verbs)
	}
	scratch := plan.Scratch
	if folder := getenv(plan.EnvFolder); folder != "" {
		scratch, terminationLog = filepath.Join(folder, "scratch"), filepath.Join(folder, "termination")
	}
	task, err := plan.DecodeTask(getenv(plan.EnvTask))
	if err != nil {
		t := result.Termination{
			Reason:  v1alpha1.OutcomeVersionMismatch,
			Message: err.Error() + "; the manager and the bench image are of different versions: use images of the same release",
		}
		return errors.Join(err, t.WriteFile(terminationLog))
	}
	if task.Role != args[0] {
		return fmt.Errorf("the task is a %s's, not a %s's", task.Role, args[0])
	}
	if getenv(plan.EnvKey) == "" {
		return fmt.Errorf("%s is not set", plan.EnvKey)
	}
	a := &agent.Agent{
		Task: task, Node: getenv(plan.EnvNode), PodIP: getenv(plan.EnvPodIP), Key: getenv(plan.EnvKey),
		Tools: all.Registry(), Scratch: scratch, Log: stdout, TerminationLog: terminationLog, Root: "/",
	}
	// The tools inherit the environment of the agent, and do not need the key.
	if err := os.Unsetenv(plan.EnvKey); err != nil {
		return err
	}
	return a.Run(ctx)
}

// inspect inspects the node or the named container: once, or as often and as long as watch says.
func inspect(ctx context.Context, i agent.Inspector, container string, watch []string, stdout io.Writer) error {
	if len(watch) > 0 {
		every, wrong := time.ParseDuration(watch[0])
		length, err := time.ParseDuration(watch[1])
		if err := errors.Join(wrong, err); err != nil {
			return err
		}
		return i.Watch(ctx, container, every, length, stdout)
	}
	look := i.Inspect
	if container != "" {
		look = func(context.Context) (result.Inspection, error) { return i.Workload(container) }
	}
	inspection, err := look(ctx)
	if err != nil {
		return err
	}
	return inspection.Write(stdout)
}

func inspector(getenv func(string) string) agent.Inspector {
	return agent.Inspector{
		Node: getenv(plan.EnvNode), PodIP: getenv(plan.EnvPodIP), Interface: getenv(plan.EnvInterface), Peer: getenv(plan.EnvPeer),
		Environ: os.Environ(), Root: "/", FromNode: getenv(plan.EnvView) == plan.ViewEntered,
	}
}
