package main

import (
	"encoding/json"
	"fmt"
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
	token   = "bench"
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
			return slices.Concat([]string{program, "server", "--bind", serverIP, "--port", port, "--token", token, "--deadline", "3600"}, when(m.spin, "--spin"))
		},
		client: func(m mode, size int, d time.Duration) []string {
			return slices.Concat([]string{program, "client", "--server", serverIP, "--port", port, "--token", token, "--protocol", protocol(m),
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
	for _, b := range rtt.Buckets {
		if seen += b[1]; 2*seen >= rtt.Count {
			return latency{min: rtt.Min, p50: float64(b[0])}, nil
		}
	}
	return latency{}, fmt.Errorf("the histogram of %d samples holds %d", rtt.Count, seen)
}

// sfntTool connects its UDP socket, which is faster.
func sfntTool(path string) benchTool {
	return benchTool{
		name: "sfnt-pingpong", spins: true,
		server: func(mode) []string { return []string{path, "--port=" + port} },
		client: func(m mode, size int, d time.Duration) []string {
			ms := strconv.Itoa(int(d / time.Millisecond))
			return slices.Concat([]string{path, "--port=" + port, "--affinity=any;any", "--sizes=" + strconv.Itoa(size), "--rtt", "--minms=" + ms, "--maxms=" + ms,
				"--maxiter=10000000"}, when(m.spin, "--spin"), when(m.udp, "--connect"), []string{protocol(m), serverIP})
		},
		read: func(out string) (latency, error) {
			for line := range strings.Lines(out) {
				// size, mean, min, median, max, percentile, standard deviation, iterations
				if f := strings.Fields(line); len(f) == 8 && !strings.HasPrefix(line, "#") {
					return numbers(f[2], f[3], 1)
				}
			}
			return latency{}, fmt.Errorf("there is no row: %.200q", out)
		},
	}
}

var (
	sockperfMin    = regexp.MustCompile(`<MIN> observation *= *([0-9.]+)`)
	sockperfMedian = regexp.MustCompile(`percentile 50.000 *= *([0-9.]+)`)
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
			least, median := sockperfMin.FindStringSubmatch(out), sockperfMedian.FindStringSubmatch(out)
			if least == nil || median == nil {
				return latency{}, fmt.Errorf("it reported nothing: %.200q", out)
			}
			return numbers(least[1], median[1], 1e3)
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
				when(m.udp, "-n"), []string{"-r", bytes + "," + bytes, "-k", "MIN_LATENCY,P50_LATENCY"})
		},
		read: func(out string) (latency, error) {
			values := map[string]string{}
			for line := range strings.Lines(out) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				values[name] = value
			}
			return numbers(values["MIN_LATENCY"], values["P50_LATENCY"], 1e3)
		},
	}
}

// numbers parses a minimum and a median in a unit of this many ns.
func numbers(least, median string, unit float64) (latency, error) {
	a, err := strconv.ParseFloat(least, 64)
	if err != nil {
		return latency{}, fmt.Errorf("the minimum: %w", err)
	}
	b, err := strconv.ParseFloat(median, 64)
	if err != nil {
		return latency{}, fmt.Errorf("the median: %w", err)
	}
	return latency{min: a * unit, p50: b * unit}, nil
}
