package localcluster

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
)

// Status prints a line for each process and node. If a process does not run or a node is not ready, it returns an error
// after it has printed all of them.
func Status(ctx context.Context, o Options, out io.Writer) error {
	c, err := existing(ctx, o)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	missing := 0
	for _, pr := range c.processes() {
		running, err := findProcesses(c.runs(pr.Name, pr.Args[0]))
		if err != nil {
			return err
		}
		if len(running) == 0 {
			missing++
			fmt.Fprintf(w, "%s\tnot running\tlog: %s\n", pr.Name, c.log(pr.Name))
			continue
		}
		fmt.Fprintf(w, "%s\trunning\tpid %d\n", pr.Name, running[0].PID)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	for _, n := range c.nodes {
		ready, err := nodeAnswers(ctx, client, n)
		switch {
		case err != nil:
			missing++
			fmt.Fprintf(w, "%s\tunknown\t%v\n", n.Name, err)
		case !ready:
			missing++
			fmt.Fprintf(w, "%s\tnot ready\t\n", n.Name)
		default:
			fmt.Fprintf(w, "%s\tready\tpods get CPUs %s\n", n.Name, cpuList(n.Exclusive))
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing the status: %w", err)
	}
	if missing > 0 {
		return fmt.Errorf("%d parts of the cluster are not well", missing)
	}
	return nil
}
