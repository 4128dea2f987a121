// Command tailgate-exec is a container's entrypoint: it waits for the CPUs, makes the checks of
// kubectl tailgate inspect from inside, writes the termination message, and becomes the program.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/agent"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const usage = "usage: tailgate-exec [--require CHECK,...] [--cpus N] [--interface NAME] [--wait 10s] [--file PATH] -- PROGRAM ARGS"

// exitCodes are those of kubectl tailgate gate; exitError: bad input, or no program to become.
var exitCodes = map[v1alpha1.VerdictOutcome]int{v1alpha1.VerdictPass: 0, v1alpha1.VerdictFail: 1, v1alpha1.VerdictInconclusive: 2}

const exitError = 3

var pause = 100 * time.Millisecond // between two inspections, each of which takes a second

const maxTermination = 4096 // bytes of the termination message, as the kubelet takes

func main() {
	os.Exit(run(os.Args[1:], entrypoint{
		inspect: func(iface string) (result.Workload, error) {
			found, err := agent.Inspector{Interface: iface, Environ: os.Environ(), Root: "/"}.Workload("")
			if err != nil {
				return result.Workload{}, err
			}
			return *found.Workload, nil
		},
		become: syscall.Exec, environ: os.Environ(), terminationLog: "/dev/termination-log", stderr: os.Stderr,
	}))
}

type entrypoint struct {
	inspect        func(iface string) (result.Workload, error)
	become         func(path string, args, environ []string) error
	environ        []string
	terminationLog string
	stderr         io.Writer
}

func run(args []string, e entrypoint) int {
	flags := flag.NewFlagSet("tailgate-exec", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	require := flags.String("require", "", "")
	cpus := flags.Int("cpus", 0, "")
	iface := flags.String("interface", "", "")
	wait := flags.Duration("wait", 10*time.Second, "")
	file := flags.String("file", "", "")
	fail := func(err error) int {
		line := text.Line(err.Error())
		fmt.Fprintln(e.stderr, "tailgate-exec:", line)
		_ = os.WriteFile(e.terminationLog, []byte(line), 0o644) // it is in the log, too
		return exitError
	}
	if err := flags.Parse(args); err != nil {
		return fail(fmt.Errorf("%w; %s", err, usage))
	}
	if flags.NArg() == 0 || *cpus < 0 || *wait < 0 {
		return fail(errors.New(usage))
	}
	path, err := exec.LookPath(flags.Arg(0))
	if err != nil {
		return fail(err)
	}
	pod := proof.WorkloadPod{Seen: result.Seen{Requests: map[string]string{"cpu": strconv.Itoa(*cpus)}}}
	var requirements []string
	if *require != "" {
		if requirements, err = proof.ParseRequirements(*require, &pod); err != nil {
			return fail(fmt.Errorf("--require: %w", err))
		}
	}
	if *cpus == 0 && slices.Contains(requirements, v1alpha1.ProofCPUsExclusive) {
		return fail(errors.New("CPUsExclusive needs --cpus, the number of CPUs that the container requests"))
	}
	outcome, finding := e.await(pod, requirements, *iface, *wait)
	message := text.Shorten(finding, maxTermination)
	if err := os.WriteFile(e.terminationLog, []byte(message), 0o644); err != nil {
		fmt.Fprintln(e.stderr, "tailgate-exec: the finding is not in the termination message:", err)
	}
	if *file != "" {
		if err := os.WriteFile(*file, []byte(finding), 0o644); err != nil {
			return fail(err)
		}
	}
	if outcome != v1alpha1.VerdictPass {
		fmt.Fprint(e.stderr, finding)
		return exitCodes[outcome]
	}
	fmt.Fprintf(e.stderr, "tailgate-exec: starting %s: %v\n", path, e.become(path, flags.Args(), e.environ))
	return exitError
}

// await inspects until the requirements are met or wait has passed, and returns the last finding.
func (e entrypoint) await(pod proof.WorkloadPod, requirements []string, iface string, wait time.Duration) (v1alpha1.VerdictOutcome, string) {
	for began := time.Now(); ; {
		var lines []proof.WorkloadLine
		workload, err := e.inspect(iface)
		if err == nil {
			lines = proof.Workload(pod, workload)
		}
		outcome := proof.Met(requirements, lines)
		if outcome != v1alpha1.VerdictPass && time.Since(began) < wait {
			time.Sleep(pause)
			continue
		}
		var first, rest strings.Builder
		fmt.Fprintf(&first, "%s after %s\n", outcome, time.Since(began).Round(100*time.Millisecond))
		if err != nil {
			fmt.Fprintln(&first, text.Line(err.Error()))
		}
		for _, l := range lines {
			to := &rest
			if l.State == v1alpha1.ProofFailed || l.State == v1alpha1.ProofUnknown {
				to = &first
			}
			fmt.Fprintf(to, "%s %s: %s\n", l.State, l.Check, l.Found)
			if to == &first && slices.Contains(requirements, l.Check) {
				fmt.Fprintf(to, "  required: %s; to do: %s\n", l.Expected, l.Advice)
			}
		}
		return outcome, first.String() + rest.String()
	}
}
