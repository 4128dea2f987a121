// Command demo demonstrates Tailgate: it starts the local cluster, installs Tailgate from its own images, applies the
// samples, follows them and prints their results. The cluster stays up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/localcluster/install"
)

const (
	// samples are the examples of the docs; the demo deletes existing ones of the same name and measures them again.
	samples = "config/samples"
	// patience is how long all samples together may take.
	patience = 10 * time.Minute
	// followEvery is the polling interval for their status.
	followEvery = 500 * time.Millisecond
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		if ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, localcluster.Interrupted)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	installOnly := fs.Bool("install-only", false, "start the cluster and install Tailgate, and measure nothing")
	lab := fs.Bool("lab", false, "the nodes are emulated machines (docs/internals/lab.md)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	begin := time.Now()
	fmt.Fprintln(stderr, localcluster.Killed)
	options := localcluster.Options{Log: stderr, Lab: *lab}
	if err := localcluster.Look(ctx, options); err != nil {
		return err
	}
	built, err := install.Build(ctx, stderr)
	if err != nil {
		return err
	}
	if !*lab {
		release, err := localcluster.Use(ctx, stderr, "make demo or make cluster-deploy")
		if err != nil {
			return err
		}
		defer release()
	}
	if err := install.Install(ctx, options, built); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "Tailgate is installed (%s).\n", time.Since(begin).Round(time.Second))
	if *installOnly {
		fmt.Fprint(stdout, "\nThe cluster stays up. ", localcluster.Usage(options))
		return nil
	}
	if err := measure(ctx, options, stdout, stderr); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "The demo took %s.\n", time.Since(begin).Round(time.Second))
	fmt.Fprint(stdout, "\nThe cluster stays up. ", localcluster.Usage(options))
	return nil
}

// measure applies the samples, follows them to their end and prints the results. It fails if a sample does not succeed.
func measure(ctx context.Context, o localcluster.Options, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the samples took too long"))
	defer cancel()
	if err := install.Kubectl(ctx, localcluster.Kubeconfig(o), stderr, "delete", "--ignore-not-found", "--wait", "-k", samples); err != nil {
		return err
	}
	if err := install.Kubectl(ctx, localcluster.Kubeconfig(o), stderr, "apply", "-k", samples); err != nil {
		return err
	}
	benchmarks, err := follow(ctx, o, stderr)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "\n$ kubectl get lbench -A")
	if err := install.Kubectl(ctx, localcluster.Kubeconfig(o), stdout, "get", "lbench", "-A"); err != nil {
		return err
	}
	var failed []string
	for i := range benchmarks {
		b := &benchmarks[i]
		fmt.Fprintln(stdout)
		if err := report.Table(stdout, b); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionSucceeded) {
			failed = append(failed, b.Name)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("benchmarks that did not succeed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// follow prints a line whenever the state of a benchmark changes, until all have finished.
func follow(ctx context.Context, o localcluster.Options, progress io.Writer) ([]v1alpha1.LatencyBenchmark, error) {
	c, err := install.Client(localcluster.Kubeconfig(o))
	if err != nil {
		return nil, err
	}
	printed := map[string]string{}
	for {
		list := &v1alpha1.LatencyBenchmarkList{}
		if err := c.List(ctx, list); err != nil {
			return nil, fmt.Errorf("listing benchmarks: %w", err)
		}
		finished := len(list.Items) > 0
		for i := range list.Items {
			b := &list.Items[i]
			finished = finished && b.Finished()
			if line := standing(b); printed[b.Name] != line {
				printed[b.Name] = line
				fmt.Fprintln(progress, line)
			}
		}
		if finished {
			return list.Items, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(followEvery):
		}
	}
}

// standing returns the state of a benchmark in one line.
func standing(b *v1alpha1.LatencyBenchmark) string {
	runs, state, message := "-", "new", ""
	if b.Status.Progress != nil {
		runs = b.Status.Progress.Runs
	}
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded); c != nil {
		state, message = c.Reason, c.Message
	}
	return fmt.Sprintf("  %-10s %-5s %-10s %s", b.Name, runs, state, message)
}
