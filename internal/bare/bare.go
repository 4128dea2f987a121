// Package bare measures between two hosts without Kubernetes. Each round starts a new agent at both
// ends, on CPUs that the user names: proved exclusive only with isolcpus or a partition of cpuset.
package bare

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/agent"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const (
	// maxFile bounds the file with the benchmark, in bytes: an API server accepts no larger object.
	maxFile   = 3 << 20
	maxRounds = 100
	// peerTimeout is the server's, in each round: a person starts the client.
	peerTimeout = 10 * time.Minute
	// stopGrace is how long an agent may take to end when the program is interrupted.
	stopGrace = 5 * time.Second
	usage     = "usage: tailgate-agent bare server -f FILE --server ADDRESS --cpus LIST, then, on the other host, " +
		plan.EnvKey + "=KEY tailgate-agent bare client -f FILE --server ADDRESS --cpus LIST -o DIR"
)

type end struct {
	role, file, variant, cpuList, server, output string
	key                                          string
	cpus                                         []int
	host                                         string
	driver                                       tool.Driver
	runs                                         []plan.Run
	stdout                                       io.Writer
}

// Run measures at one end: args are server or client, and flags. The error has one line.
func Run(ctx context.Context, args []string, key string, tools tool.Registry, stdout io.Writer) error {
	e := &end{key: key, stdout: stdout}
	if err := e.parse(args); err != nil {
		return err
	}
	benchmark, err := read(e.file, e.variant)
	if err != nil {
		return fmt.Errorf("-f %s: %w", e.file, err)
	}
	if e.driver, err = tools.Get(benchmark.Spec.Tool); err != nil {
		return fmt.Errorf("-f %s: spec.tool: %w", e.file, err)
	}
	if benchmark.Spec.Custom != nil {
		return fmt.Errorf("-f %s: spec.custom: its image needs Kubernetes", e.file)
	}
	e.runs = plan.Runs(benchmark)
	for _, cell := range e.runs[0].Cells {
		if err := e.driver.Validate(cell); err != nil {
			return fmt.Errorf("-f %s: spec.workload: %w", e.file, err)
		}
		if n := tool.CPUsOf(e.driver, cell, e.role); n > len(e.cpus) {
			return fmt.Errorf("--cpus: %s needs %d CPUs at the %s's end for %s, and has %s", e.driver.Name(), n, e.role, cell.Name, e.cpuList)
		}
	}
	if e.host, err = os.Hostname(); err != nil {
		return fmt.Errorf("reading the name of the host: %w", err)
	}
	if e.role == v1alpha1.RoleServer {
		return e.serve(ctx)
	}
	return e.measure(ctx, benchmark)
}

func (e *end) parse(args []string) error {
	if len(args) == 0 || args[0] != v1alpha1.RoleServer && args[0] != v1alpha1.RoleClient {
		return errors.New(usage)
	}
	e.role = args[0]
	flags := flag.NewFlagSet(e.role, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	for name, value := range map[string]*string{"f": &e.file, "variant": &e.variant, "cpus": &e.cpuList, "server": &e.server, "o": &e.output} {
		flags.StringVar(value, name, "", "")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return fmt.Errorf("%w; %s", err, usage)
	}
	cpus, err := result.ParseCPUs(e.cpuList)
	switch client := e.role == v1alpha1.RoleClient; {
	case flags.NArg() > 0:
		return fmt.Errorf("%q is not a flag; %s", flags.Arg(0), usage)
	case e.file == "":
		return errors.New("-f: name the file with the JSON of the LatencyBenchmark")
	case err != nil:
		return fmt.Errorf("--cpus: %q is not a list of CPUs such as 2-3", e.cpuList)
	case net.ParseIP(e.server) == nil:
		return fmt.Errorf("--server: %q is not an IP address: give that of the server's host on the measured network", e.server)
	case client && e.output == "":
		return errors.New("-o: name the directory to write the export to")
	case client && e.key == "":
		return fmt.Errorf("%s is not set: set it to the key that the server's end prints", plan.EnvKey)
	}
	e.cpus = cpus.List()
	return nil
}

// read reads a LatencyBenchmark as an API server returns it: one variant, on the hosts' network.
func read(file, variant string) (*v1alpha1.LatencyBenchmark, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil || len(content) > maxFile {
		return nil, fmt.Errorf("it is not a file of at most %d MiB", maxFile>>20)
	}
	return parse(content, variant)
}

func parse(content []byte, variant string) (*v1alpha1.LatencyBenchmark, error) {
	given := &v1alpha1.LatencyBenchmark{}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(given); err != nil {
		return nil, fmt.Errorf("it is not the JSON of a LatencyBenchmark of this version: %w", err)
	}
	spec := &given.Spec
	switch {
	case given.APIVersion != v1alpha1.GroupVersion.String() || given.Kind != "LatencyBenchmark" || given.Name == "" || strings.Contains(given.Name, "/"):
		return nil, fmt.Errorf("it has apiVersion %.80q, kind %.80q, name %.80q, and is not a LatencyBenchmark of %s", given.APIVersion, given.Kind, given.Name, v1alpha1.GroupVersion)
	case spec.Rounds < 1 || spec.Rounds > maxRounds || spec.Workload.Duration.Duration <= 0 || len(spec.Workload.Protocols)+len(spec.Workload.Streams) == 0:
		return nil, errors.New("spec.rounds, spec.workload.duration or spec.workload.protocols is not as an API server fills it in: " +
			"use kubectl get lbench NAME -o json, or kubectl create --dry-run=server -o json")
	}
	if len(spec.Variants) == 0 && variant == "" {
		return ofHosts(given, nil)
	}
	names := []string{}
	for i := range spec.Variants {
		if names = append(names, spec.Variants[i].Name); spec.Variants[i].Name == variant {
			return ofHosts(given, spec.Variants[i:i+1])
		}
	}
	return nil, fmt.Errorf("--variant: %q is not one of its variants (%s); two hosts measure one at a time", variant, strings.Join(names, ", "))
}

func ofHosts(given *v1alpha1.LatencyBenchmark, variants []v1alpha1.Variant) (*v1alpha1.LatencyBenchmark, error) {
	b := &v1alpha1.LatencyBenchmark{TypeMeta: given.TypeMeta}
	b.Name, b.Namespace, b.Generation = given.Name, given.Namespace, 1
	b.Spec = *given.Spec.DeepCopy()
	spec := &b.Spec
	spec.Network, spec.Variants, spec.Criteria = v1alpha1.Network{Type: v1alpha1.NetworkHost}, variants, nil
	for i := range spec.Variants {
		spec.Variants[i].Network = nil
	}
	if spec.Pods != nil {
		spec.Pods = &v1alpha1.PodSettings{Env: given.Spec.Pods.Env}
	}
	spec.Placement.Client, spec.Placement.Server = &v1alpha1.EndpointPlacement{}, &v1alpha1.EndpointPlacement{}
	if plan.Variants(*spec)[0].Acceleration.OnloadSettings().ProfileRef != nil {
		return nil, errors.New("acceleration.onload.profileRef: a host has no ConfigMaps; write its settings to the variant's env")
	}
	return b, nil
}

func (e *end) serve(ctx context.Context) error {
	if e.key == "" {
		e.key = rand.Text()
		fmt.Fprintf(e.stdout, "%s=%s\n", plan.EnvKey, e.key)
	}
	for _, run := range e.runs {
		if _, err := e.round(ctx, run, e.server); err != nil {
			return err
		}
	}
	return nil
}

func (e *end) round(ctx context.Context, run plan.Run, address string) ([]byte, error) {
	task, err := e.task(run)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "tailgate-bare-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the tools: %w", err)
	}
	defer os.RemoveAll(folder)
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the agent's program: %w", err)
	}
	var log, said bytes.Buffer
	cmd := exec.CommandContext(ctx, self, e.role)
	cmd.Env = append(os.Environ(), plan.EnvTask+"="+task, plan.EnvKey+"="+e.key, plan.EnvNode+"="+e.host, plan.EnvPodIP+"="+address, plan.EnvFolder+"="+folder)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &log, &said, stopGrace
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := agent.StartOn(cmd, e.cpus); err != nil {
		return nil, fmt.Errorf("--cpus: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return nil, fmt.Errorf("%s: %s", run.Name, cmp.Or(strings.TrimPrefix(lines[len(lines)-1], "agent: "), err.Error()))
	}
	own, err := result.ReadFrameOf(bytes.NewReader(log.Bytes()), e.role)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", run.Name, err)
	}
	if cpus, err := result.ParseCPUs(own.Document.Evidence.CPUsAllowed); err != nil || len(cpus.List()) != len(e.cpus) {
		return nil, fmt.Errorf("--cpus: the agent could run on %s only, not on %s: the others are offline, or not in its cpuset", own.Document.Evidence.CPUsAllowed, e.cpuList)
	}
	fmt.Fprintf(e.stdout, "%s: measured, round %d of %d\n", run.Name, run.Round, len(e.runs))
	return log.Bytes(), nil
}

func (e *end) task(run plan.Run) (string, error) {
	v := run.Variant
	env, err := onload.Environment(v, nil)
	if err != nil {
		return "", err
	}
	task := plan.Task{
		Run: run.Name, Variant: v.Name, Attempt: 1, Role: e.role, Tool: e.driver.Name(), Cells: run.Cells, SendResult: true,
		Acceleration: v.Acceleration.Type, Library: onload.Library(*v.Acceleration), Env: env, Deadline: plan.Deadline(e.driver, run.Cells), ServerAddress: e.server,
	}
	if task.Library == onload.DevicePluginLibrary {
		task.Library = onload.ImageLibrary
	}
	if e.role == v1alpha1.RoleServer {
		task.Deadline += peerTimeout
		task.Capture = v.Capture == v1alpha1.CaptureServer
	}
	return task.Encode(), nil
}

func (e *end) measure(ctx context.Context, b *v1alpha1.LatencyBenchmark) error {
	dir := filepath.Join(e.output, b.Name)
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("-o: %s exists; remove it, or name another directory", dir)
	}
	// Nothing is sent: this finds the address from which the route leads to the server.
	route, err := net.Dial("udp", net.JoinHostPort(e.server, fmt.Sprint(plan.ControlPort)))
	if err != nil {
		return fmt.Errorf("--server: %w", err)
	}
	defer route.Close()
	own, _, err := net.SplitHostPort(route.LocalAddr().String())
	if err != nil {
		return fmt.Errorf("--server: %w", err)
	}
	var all []result.Stored
	for _, run := range e.runs {
		log, err := e.round(ctx, run, own)
		if err != nil {
			return err
		}
		stored, err := both(log)
		if err != nil {
			return fmt.Errorf("%s: %w", run.Name, err)
		}
		all = append(all, stored)
	}
	sum, err := write(dir, b, all)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "%s: %d rounds, %s has SHA-256 %s\n", dir, len(all), result.ExportManifest, sum)
	return nil
}

func both(log []byte) (result.Stored, error) {
	client, err := result.ReadFrameOf(bytes.NewReader(log), v1alpha1.RoleClient)
	if err != nil {
		return result.Stored{}, err
	}
	server, err := result.ReadFrameOf(bytes.NewReader(log), v1alpha1.RoleServer)
	if err != nil {
		return result.Stored{}, err
	}
	return result.NewStored(client, server, result.Seen{Bare: true}, result.Seen{Bare: true})
}

// write writes an export to a new directory, whole or not at all, and returns its digest in hex.
func write(dir string, b *v1alpha1.LatencyBenchmark, runs []result.Stored) (string, error) {
	b.UID, b.CreationTimestamp = uuid.NewUUID(), metav1.Now()
	complete(b, runs)
	object, err := result.EncodeJSON(b)
	if err != nil {
		return "", err
	}
	files := map[string][]byte{result.ExportBenchmark: object}
	for _, run := range runs {
		for name, content := range run.Files() {
			files[path.Join(result.ExportRuns, run.Client.Run, name)] = content
		}
	}
	m := result.Manifest{Format: result.ExportFormat, Version: result.ExportVersion, Namespace: b.Namespace, Name: b.Name, UID: string(b.UID)}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		m.Files = append(m.Files, result.NewFile(name, files[name]))
	}
	if files[result.ExportManifest], err = result.EncodeJSON(m); err != nil {
		return "", err
	}
	unfinished := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+"-"+strings.ToLower(string(b.UID)))
	defer os.RemoveAll(unfinished)
	for name, content := range files {
		file := filepath.Join(unfinished, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return "", fmt.Errorf("-o: %w", err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return "", fmt.Errorf("-o: %w", err)
		}
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return "", fmt.Errorf("-o: %w", err)
	}
	return result.NewFile(result.ExportManifest, files[result.ExportManifest]).SHA256, nil
}

func complete(b *v1alpha1.LatencyBenchmark, runs []result.Stored) {
	client, server := runs[0].Client.Evidence, runs[0].Server.Evidence
	b.Spec.Placement.Client.CPUs, b.Spec.Placement.Server.CPUs = cpus(client), cpus(server)
	b.Status = v1alpha1.LatencyBenchmarkStatus{ObservedGeneration: 1, Pair: &v1alpha1.Pair{ClientNode: client.Node, ServerNode: server.Node}}
	for _, run := range runs {
		b.Status.Stored = append(b.Status.Stored, run.Named(run.Client.Run))
	}
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete,
		fmt.Sprintf("%d of %d runs were measured on two hosts without Kubernetes", len(runs), len(runs))))
}

func cpus(e result.Evidence) int32 {
	list, err := result.ParseCPUs(e.CPUsAllowed)
	if err != nil {
		return 0
	}
	return int32(list.Size())
}
