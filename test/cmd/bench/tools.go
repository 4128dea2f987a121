package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// benchTool is a tool to compare: its two commands, and the parser of its output.
type benchTool struct {
	name string
	// spins is true if it can poll; coarse if it does not report nanoseconds.
	spins, coarse bool
	server        func(m mode) []string
	client        func(m mode, size int, duration time.Duration) []string
	read          func(out string) (latency, error)
}

const (
	port = "23456"
	// portHex is the port as /proc/net shows it.
	portHex = "5BA0"
	key     = "00000000000000000000000000000000"
)

// in returns the tool with a folder as the root of its file system.
func (t benchTool) in(root string) benchTool {
	server, client := t.server, t.client
	t.server = func(m mode) []string { return slices.Concat([]string{"chroot", root}, server(m)) }
	t.client = func(m mode, size int, d time.Duration) []string {
		return slices.Concat([]string{"chroot", root}, client(m, size, d))
	}
	return t
}

func when(condition bool, args ...string) []string {
	if condition {
		return args
	}
	return nil
}

func protocol(m mode) string {
	if m.udp {
		return "udp"
	}
	return "tcp"
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

func pingerTool(program string) benchTool {
	return benchTool{
		name: "pinger", spins: true,
		server: func(m mode) []string {
			return slices.Concat([]string{program, "server", "--bind", serverIP, "--port", port, "--key", key, "--deadline", "3600"}, when(m.spin, "--spin"))
		},
		client: func(m mode, size int, d time.Duration) []string {
			return slices.Concat([]string{program, "client", "--server", serverIP, "--port", port, "--key", key, "--protocol", protocol(m),
				"--sizes", strconv.Itoa(size), "--duration", d.String()}, when(m.spin, "--spin"))
		},
		read: readPinger,
	}
}

// readPinger returns the exact minimum, and the median from the histogram.
func readPinger(out string) (latency, error) {
	var document struct {
		Cells []struct {
			RTT struct {
				Count   int64      `json:"count"`
				Min     float64    `json:"min_ns"`
				Buckets [][2]int64 `json:"buckets"`
			} `json:"rtt"`
		} `json:"cells"`
	}
	if err := json.Unmarshal([]byte(out), &document); err != nil {
		return latency{}, fmt.Errorf("reading the result: %w", err)
	}
	if len(document.Cells) != 1 {
		return latency{}, fmt.Errorf("%d cells instead of one", len(document.Cells))
	}
	rtt := document.Cells[0].RTT
	var seen int64
	l := latency{min: rtt.Min}
	i := 0
	for _, b := range rtt.Buckets {
		for seen += b[1]; i < len(quantiles) && float64(seen) >= quantiles[i]*float64(rtt.Count); i++ {
			l.at[i] = float64(b[0])
		}
	}
	if i < len(quantiles) {
		return latency{}, fmt.Errorf("the histogram of %d samples holds %d", rtt.Count, seen)
	}
	return l, nil
}

// sfntTool connects its UDP socket, which is faster. It writes its samples into a folder, because it computes only one percentile.
func sfntTool(path, dir string) benchTool {
	return benchTool{
		name: "sfnt-pingpong", spins: true,
		server: func(mode) []string { return []string{path, "--port=" + port} },
		client: func(m mode, size int, d time.Duration) []string {
			ms := strconv.Itoa(int(d / time.Millisecond))
			return slices.Concat([]string{path, "--port=" + port, "--affinity=any;any", "--sizes=" + strconv.Itoa(size), "--rtt", "--minms=" + ms, "--maxms=" + ms,
				"--maxiter=10000000", "--raw=" + filepath.Join(dir, "raw")},
				when(m.spin, "--spin"), when(m.udp, "--connect"), []string{protocol(m), serverIP})
		},
		read: func(out string) (latency, error) {
			files, err := filepath.Glob(filepath.Join(dir, "raw-*.dat"))
			if err != nil || len(files) != 1 {
				return latency{}, fmt.Errorf("it wrote the samples of %d sizes: %.200q", len(files), out)
			}
			text, err := os.ReadFile(files[0])
			if err != nil {
				return latency{}, err
			}
			var samples []float64
			for _, word := range strings.Fields(string(text)) {
				ns, err := strconv.ParseFloat(word, 64)
				if err != nil {
					return latency{}, fmt.Errorf("a sample: %w", err)
				}
				samples = append(samples, ns)
			}
			if err := os.Remove(files[0]); err != nil || len(samples) == 0 {
				return latency{}, fmt.Errorf("%d samples, %w", len(samples), err)
			}
			slices.Sort(samples)
			l := latency{min: samples[0]}
			for i, q := range quantiles {
				l.at[i] = samples[max(int(math.Ceil(q*float64(len(samples))))-1, 0)]
			}
			return l, nil
		},
	}
}

var (
	sockperfMin         = regexp.MustCompile(`<MIN> observation *= *([0-9.]+)`)
	sockperfPercentiles = regexp.MustCompile(`percentile (?:50.000|99.000|99.900) *= *([0-9.]+)`) // the largest first
)

func sockperfTool() benchTool {
	args := func(m mode, command string) []string {
		return slices.Concat([]string{"sockperf", command, "-i", serverIP, "-p", port}, when(!m.udp, "--tcp"), when(m.spin, "--nonblocked"))
	}
	return benchTool{
		name: "sockperf", spins: true,
		// Without --uc-reuseaddr it cannot reuse the port while connections of the previous server exist.
		server: func(m mode) []string { return slices.Concat(args(m, "server"), when(!m.udp, "--uc-reuseaddr")) },
		client: func(m mode, size int, d time.Duration) []string {
			return append(args(m, "ping-pong"), "-m", strconv.Itoa(size), "-t", seconds(d), "--full-rtt")
		},
		read: func(out string) (latency, error) {
			least, percentiles := sockperfMin.FindStringSubmatch(out), sockperfPercentiles.FindAllStringSubmatch(out, -1)
			if least == nil || len(percentiles) != len(quantiles) {
				return latency{}, fmt.Errorf("it reported nothing: %.200q", out)
			}
			return numbers(least[1], percentiles[2][1], percentiles[1][1], percentiles[0][1])
		},
	}
}

// netperfTool connects the client's UDP socket, as the other tools do. The server's socket stays unconnected: 2.7.0 has no option
// for it.
func netperfTool() benchTool {
	return benchTool{
		name: "netperf", coarse: true,
		server: func(mode) []string { return []string{"netserver", "-D", "-f", "-N", "-L", serverIP, "-p", port} },
		client: func(m mode, size int, d time.Duration) []string {
			bytes := strconv.Itoa(size)
			return slices.Concat([]string{"netperf", "-H", serverIP, "-p", port, "-t", strings.ToUpper(protocol(m)) + "_RR", "-l", seconds(d), "-P", "0", "--"},
				when(m.udp, "-n"), []string{"-r", bytes + "," + bytes, "-k", "MIN_LATENCY,P50_LATENCY,P99_LATENCY"})
		},
		read: func(out string) (latency, error) {
			values := map[string]string{}
			for line := range strings.Lines(out) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				values[name] = value
			}
			return numbers(values["MIN_LATENCY"], values["P50_LATENCY"], values["P99_LATENCY"])
		},
	}
}

// numbers parses a minimum and the first percentiles, in µs. The others are 0.
func numbers(least string, percentiles ...string) (latency, error) {
	var l latency
	for i, text := range append([]string{least}, percentiles...) {
		us, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return latency{}, fmt.Errorf("a latency: %w", err)
		}
		if i == 0 {
			l.min = us * 1e3
		} else {
			l.at[i-1] = us * 1e3
		}
	}
	return l, nil
}
