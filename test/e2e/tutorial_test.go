//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tailgate-dev/tailgate/test/docs"
)

// asAdapted lists what the specs change in commands and files of the pages before they use them. All else is unchanged.
var asAdapted = strings.NewReplacer(
	// Names that the page tells the reader to replace.
	"REGISTRY/", registry+"/", "imageRegistry=REGISTRY", "imageRegistry="+registry,
	// The pages' measurements would take half an hour. The quick start shows percentiles and intervals, which need time, and rounds; the gate
	// needs six rounds.
	"protocols: [TCP, UDP], messageSizes: [64], duration: 3s", "protocols: [TCP, UDP], messageSizes: [64], duration: 600ms, warmup: 100ms",
	"duration: 3s", "duration: 300ms, warmup: 100ms",
	"rounds: 6", "rounds: 3", "rounds: 10\n  placement:", "rounds: 5\n  placement:", "rounds: 10\n", "rounds: 6\n",
	// The VFs are simulated, both nodes use the CPUs of this machine, and a round is short: no time decides until the reader asks for a Fail.
	"{metric: p50, max: 40us}", "{metric: p50, max: 1s}", "{metric: p50, maxIncrease: 10%}", "{metric: p50, max: 2s}",
)

// registry is the registry to which the reader can push.
const registry = "registry.test"

// configz is the command that shows the CPU manager of a node.
const configz = `kubectl get --raw /api/v1/nodes/NODE/proxy/configz | grep -o '"cpuManagerPolicy":"[a-z]*"'`

// notRun lists commands in sentences and tables that are no whole commands, or are for a reader in another situation.
var notRun = []string{
	configz, // run below, for each node
	"kubectl label node A B example.com/nic=solarflare-x2", "kubectl create namespace latency", // they exist
	"kubectl describe node NODE", "oc wait", "oc tailgate compare", "oc tailgate accept",
}

// shown holds what the output of a command must match, by the comment at the end of the command. A comment that is not here fails the
// spec, and so does the error of a command whose comment does not begin with "refused: ".
var shown = map[string]string{
	"also REGISTRY/tailgate-bench:latest":                                     "build -t 'registry.test/tailgate-bench:latest'[^$]*push 'registry.test/tailgate-bench:latest'",
	"also REGISTRY/tailgate-bench:latest; CONTAINER_TOOL=podman":              "build -t 'registry.test/tailgate-bench:latest'[^$]*push 'registry.test/tailgate-bench:latest'",
	"both nodes are Verified":                                                 `worker-1 .*\bVerified\b.*\n.*worker-2 .*\bVerified\b`,
	"worker-1: Unverified, then Measuring":                                    `worker-1 .*\b(Unverified|Measuring)\b`,
	"refused: latency of node worker-1 is not verified, so it stays cordoned": "denied request: latency of node worker-1 is not verified, so it stays cordoned",
	"CPUs, NUMA nodes and devices of these nodes; each finding has a remedy":  `(?m)^good: 2 nodes, [0-9]+ good$`,
	"keeps the results after the benchmark is deleted":                        "",
	"1: Fail":                           "exit code 1\n",
	"two reboots":                       "/worker-cnf condition met\n.*/worker-cnf condition met",
	"UPDATING is True":                  `worker-cnf .* False +True +False`,
	"one node is cordoned, and reboots": `worker-[12] .*SchedulingDisabled`,
	"after the boot: Unverified, then Measuring":      `worker-[12] .*\b(Unverified|Measuring)\b`,
	"status.history: the benchmarks to compare":       `\n  history:\n`,
	"UPDATING is True, and DEGRADED after 10 minutes": `worker-cnf .* False +True +True`,
	"Failed, with the rule":                           `worker-1 .*\bFailed\b.*100ns`,
	"tailgate.dev/latency-unverified":                 `"key":"tailgate.dev/latency-unverified"`,
}

// loosely returns a pattern of lines of output with any numbers, widths and durations, but the same names. A line … stands for any lines, and … in a line
// for the rest of a word or of the line.
func loosely(lines []string) string {
	for i, line := range lines {
		line = regexp.MustCompile(`(^|[ (])[0-9][0-9.,]*(ns|µs|ms|m[0-9]+s|s)?`).ReplaceAllString(line, "${1}\x00")
		line = regexp.QuoteMeta(strings.TrimSpace(line))
		line = regexp.MustCompile(` +`).ReplaceAllString(line, `\s+`)
		line = strings.ReplaceAll(line, `\s+\(`+"\x00"+`\)`, `(?:\s+\(`+"\x00"+`\))?`) // an interval, for which a short measurement may lack samples
		line = strings.ReplaceAll(line, "\x00", `[0-9][0-9.,]*(ns|µs|ms|m[0-9]+s|s)?`)
		lines[i] = strings.ReplaceAll(line, "…", `.*`)
	}
	return "(?m)^ *" + strings.Join(lines, `\s*\n(?:.*\n)*? *`)
}

// quoted quotes a text for the shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// expected holds the same for commands without a comment, most of them in the table of what the quick start needs, by a part of the command.
var expected = map[string]string{
	"for n in worker-1 worker-2; do":                    "node/worker-1 uncordoned\n(.*\n)+node/worker-2 uncordoned\n$",
	"tailgate doctor -n latency":                        `(?m)^good: 2 nodes, [0-9]+ good$`,
	"oc tailgate doctor":                                `(?m)^good: 2 nodes, [0-9]+ good$`,
	`N:.metadata.name,VF:`:                              `worker-1 +4\nworker-2 +4\n`,
	`N:.metadata.name,O:`:                               `worker-1 +<none>\nworker-2 +<none>\n`, // No node has Onload; see addOnload.
	"get node -l example.com/nic":                       `worker-1 (.*\n)+worker-2 `,
	"kubectl tailgate version":                          "registry.test/tailgate:latest",
	"get namespace latency":                             "Active",
	"oc get --raw /api/v1/nodes/worker-1/proxy/configz": `"cpuManagerPolicy":"static"`,
	"get sriovnetworknodestates":                        "name: enp59s0f0",
	"gate lgate/fast-nodes --wait --timeout=15m\n":      "Pass: all 2 nodes are verified",
	"&& kubectl uncordon worker-1":                      "node/worker-1 uncordoned\n$",
}

// walk runs the commands of pages as a reader enters them, on the cluster of the tutorials, with stand-ins for the programs and the
// operators that the machine does not have.
type walk struct {
	*workers
	// path is that of the page.
	path string
	// before holds what the reader does before a command: what a sentence requests without a command. Keys are parts of commands.
	before map[string]func(context.Context)
	// transcript holds the commands with their output.
	transcript strings.Builder
	// differences are between the output of commands and what the page shows.
	differences []string
}

// walkThrough runs all commands of a page.
func (w *workers) walkThrough(ctx context.Context, path string, before map[string]func(context.Context, *walk)) {
	GinkgoHelper()
	begin := time.Now()
	source, err := os.ReadFile(filepath.Join(root, path))
	Expect(err).NotTo(HaveOccurred())
	blocks, err := docs.Blocks(source)
	Expect(err).NotTo(HaveOccurred())
	page, err := docs.Parse(path, source)
	Expect(err).NotTo(HaveOccurred())
	walk := &walk{workers: w, path: path, before: map[string]func(context.Context){}}
	for part, do := range before {
		walk.before[part] = func(ctx context.Context) { do(ctx, walk) }
	}
	DeferCleanup(func() {
		text := walk.transcript.String()
		AddReportEntry(fmt.Sprintf("%s took %s, with a transcript of %d lines", path, time.Since(begin).Round(time.Second), strings.Count(text, "\n")))
		GinkgoWriter.Printf("%s\n%s", path, text)
	})
	out, ran := "", 0
	for _, block := range blocks {
		switch block.Language {
		case "yaml":
			w.fragment = block.Text
			for _, step := range page.Steps {
				if step.Line == block.Line && step.File != "" {
					walk.save(step.File, block.Text)
				}
			}
		case "text":
			walk.compare(out, loosely(strings.Split(strings.TrimSpace(block.Text), "\n")), fmt.Sprintf("%s:%d", path, block.Line))
		case "code":
			if command := strings.TrimSpace(block.Text); !slices.Contains(notRun, command) {
				out = walk.enter(ctx, docs.Command{Line: block.Line, Text: block.Text})
				ran++
			}
		case "console":
			commands, err := block.Commands()
			Expect(err).NotTo(HaveOccurred(), path)
			for _, c := range commands {
				out = walk.enter(ctx, c)
				ran++
			}
		default:
			Fail(fmt.Sprintf("%s:%d: a block of language %s, which no reader enters", path, block.Line, block.Language))
		}
	}
	AddReportEntry(fmt.Sprintf("%s has %d commands, which ran", path, ran))
	Expect(strings.Join(walk.differences, "\n")).To(BeEmpty())
	Expect(walk.before).To(BeEmpty(), "no command of the page contains these")
}

// save writes a file of a page.
func (w *walk) save(name, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(w.home, name), []byte(asAdapted.Replace(content)), 0o600)).To(Succeed())
}

// compare notes that an output does not match what the page shows.
func (w *walk) compare(out, pattern, where string) {
	if !regexp.MustCompile(pattern).MatchString(out) {
		w.differences = append(w.differences, fmt.Sprintf("%s: the output does not match %s:\n%s", strings.TrimSpace(where), pattern, out))
	}
}

// saveFrom writes a file of another page.
func (w *walk) saveFrom(path, name string) {
	GinkgoHelper()
	source, err := os.ReadFile(filepath.Join(root, path))
	Expect(err).NotTo(HaveOccurred())
	page, err := docs.Parse(path, source)
	Expect(err).NotTo(HaveOccurred())
	i := slices.IndexFunc(page.Steps, func(s docs.Step) bool { return s.File == name })
	Expect(i).To(BeNumerically(">=", 0), "%s has no %s", path, name)
	w.save(name, page.Steps[i].Text)
}

// addOnload does what the quick start says before step 4: it changes the name of the benchmark and adds the variant with Onload. No node
// has Onload: the plan names the reason, and the variant measures the kernel with a thread that polls instead.
func (w *walk) addOnload(ctx context.Context) {
	GinkgoHelper()
	file := filepath.Join(w.home, "vf-onload.yaml")
	content, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	before, _, found := strings.Cut(strings.ReplaceAll(string(content), "name: vf-kernel", "name: vf-onload"), "  variants:\n")
	Expect(found).To(BeTrue())
	Expect(os.WriteFile(file, []byte(before+w.fragment), 0o600)).To(Succeed())
	out, err := w.shell(ctx, "kubectl tailgate plan -f vf-onload.yaml")
	Expect(err).To(HaveOccurred())
	Expect(out).To(MatchRegexp("obstacle: .*amd.com/onload"))
	stand := strings.ReplaceAll(w.fragment, "acceleration: {type: Onload, onload: {profile: latency-best}}", "wait: Spin")
	Expect(stand).NotTo(Equal(w.fragment))
	Expect(os.WriteFile(file, []byte(before+stand), 0o600)).To(Succeed())
}

// enter runs a command, compares its output with what the page shows, and returns the output.
func (w *walk) enter(ctx context.Context, c docs.Command) string {
	GinkgoHelper()
	for part, do := range w.before {
		if strings.Contains(c.Text+"# "+c.Says, part) {
			delete(w.before, part)
			do(ctx)
		}
	}
	where := fmt.Sprintf("%s:%d: %s", w.path, c.Line, c.Text)
	text, prompt := asAdapted.Replace(c.Text), "$ "
	begin := time.Now()
	out, err := w.shell(ctx, text)
	if c.Node != "" {
		prompt = c.Node + "# "
		out, err = w.shell(ctx, fmt.Sprintf("ssh root@%s %s", c.Node, quoted(text)))
	}
	defer func() { fmt.Fprintf(&w.transcript, "%s%s%s", prompt, text, out) }()
	GinkgoWriter.Printf("%s took %s\n%s\n", strings.TrimSpace(where), time.Since(begin).Round(100*time.Millisecond), out)
	// kubectl uncordon exits 0 although the API server refused it.
	if err != nil && !strings.HasPrefix(c.Says, "refused: ") {
		Fail(strings.Join(append(w.differences, fmt.Sprintf("%s%v, and printed\n%s", where, err, out)), "\n"))
	}
	if c.Says != "" {
		pattern, known := shown[c.Says]
		Expect(known).To(BeTrue(), "%s: shown has no row for the comment %q", where, c.Says)
		if strings.Contains(text, " get ") { // The reader looks again.
			for end := time.Now().Add(measured); !regexp.MustCompile(pattern).MatchString(out) && time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
				out, _ = w.shell(ctx, text)
			}
		}
		w.compare(out, pattern, where)
	}
	for part, pattern := range expected {
		if strings.Contains(c.Text, part) {
			w.compare(out, pattern, where)
		}
	}
	if len(c.Prints) > 0 {
		w.compare(out, loosely(c.Prints), where)
	}
	return out
}

// shell runs a command on the workstation, in the reader's folder. It returns what the command prints.
func (w *workers) shell(ctx context.Context, text string) (string, error) {
	c := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", text)
	c.Dir, c.Env = w.home, w.environment
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 5 * time.Second
	out, err := c.CombinedOutput()
	return string(out), err
}

var _ = Describe("A reader of a tutorial, who enters each of its commands,", Label("tutorial"), needs("a second local cluster"), Serial, func() {
	const kubeadm, quickstart, openshift = "docs/tutorial-kubeadm.md", "docs/quickstart-vf-onload.md", "docs/tutorial-openshift.md"

	It("reaches a gated upgrade on kubeadm, and compares Onload with the kernel", func(ctx context.Context) {
		w := newWorkers(ctx)
		w.startSriovOperator(ctx, "sriov-network-operator")
		w.walkThrough(ctx, kubeadm, nil)
		for _, name := range names {
			out, err := w.shell(ctx, strings.ReplaceAll(configz, "NODE", name))
			Expect(err).NotTo(HaveOccurred(), out)
			Expect(out).To(Equal("\"cpuManagerPolicy\":\"static\"\n"))
		}
		// The gate measures at the end of the page, and the doctor waits for no benchmark.
		out, err := w.shell(ctx, "kubectl delete lgate --all && kubectl delete lbench -n latency --all && kubectl wait -n latency --for=delete pod --all --timeout=2m")
		Expect(err).NotTo(HaveOccurred(), out)
		w.walkThrough(ctx, quickstart, map[string]func(context.Context, *walk){
			"kubectl tailgate plan -f vf-onload.yaml && ": func(ctx context.Context, walk *walk) {
				walk.addOnload(ctx)
			},
		})
	})

	It("reaches a gated rollout on OpenShift", func(ctx context.Context) {
		w := newWorkers(ctx)
		w.startOpenShift(ctx)
		w.startSriovOperator(ctx, "openshift-sriov-network-operator")
		w.walkThrough(ctx, openshift, map[string]func(context.Context, *walk){
			"oc tailgate doctor -f pod-and-vf-x2.yaml":      func(_ context.Context, walk *walk) { walk.saveFrom(kubeadm, "pod-and-vf-x2.yaml") },
			"oc label node worker-1 worker-2 latency=gated": func(_ context.Context, walk *walk) { walk.saveFrom(kubeadm, "fast-nodes.yaml") },
			// "If the node became slower": another change of the pool, and a limit that no kernel socket reaches.
			"# Failed, with the rule": func(ctx context.Context, walk *walk) {
				out, err := walk.shell(ctx, `kubectl patch latencygates.tailgate.dev fast-nodes --type=json \
					-p '[{"op": "replace", "path": "/spec/template/spec/criteria/rules/0/max", "value": "100ns"}]' &&
					sed 's/exercise/slower/' exercise.yaml | kubectl apply -f -`)
				Expect(err).NotTo(HaveOccurred(), out)
			},
		})
	})
})
