package result

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cri-client/pkg/logs"
)

// Container runtimes write a log in chunks, with the mark P where a chunk ends within a line, and kubelets join the lines.
// containerd reads lines of up to 16 KiB. conmon, which writes the logs of CRI-O, reads 8 KiB at a time, wherever a line ends.
func TestFrameInLogsOfContainerRuntimes(t *testing.T) {
	want := clientDocument(t)
	log, _ := framed(t, want)
	text := strings.Repeat("measuring tcp-64\n", 470) + log // the first 8 KiB end within the frame
	byLine := strings.SplitAfter(text, "\n")
	var byChunk []string
	for rest := text; rest != ""; {
		chunk := rest[:min(len(rest), 8192)]
		rest = rest[len(chunk):]
		byChunk = append(byChunk, strings.SplitAfter(chunk, "\n")...)
	}
	for runtime, pieces := range map[string][]string{"containerd": byLine, "CRI-O": byChunk} {
		t.Run(runtime, func(t *testing.T) {
			var file bytes.Buffer
			partial := 0
			for _, piece := range pieces {
				if piece == "" {
					continue
				}
				tag := "F"
				if !strings.HasSuffix(piece, "\n") {
					tag, partial = "P", partial+1
				}
				fmt.Fprintf(&file, "2026-11-22T08:00:00.123456789+01:00 stdout %s %s\n", tag, strings.TrimSuffix(piece, "\n"))
			}
			if (partial > 0) != (runtime == "CRI-O") {
				t.Fatalf("%d partial lines", partial)
			}
			path := filepath.Join(t.TempDir(), "0.log")
			if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			// Read the log as the kubelet does for kubectl logs.
			limit := int64(MaxLog)
			var read bytes.Buffer
			if err := logs.ReadLogs(t.Context(), path, "", &logs.LogOptions{LimitBytes: &limit}, nil, &read, &read); err != nil {
				t.Fatal(err)
			}
			got, err := ReadFrame(&read)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Document); diff != "" {
				t.Error(diff)
			}
		})
	}
}
