package localcluster

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"runtime"
)

// writePauseImage puts the static program pause into an image that has nothing else.
func writePauseImage(program, target string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("reading the program of the pause image: %w", err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: "pause", Mode: 0o755, Size: int64(len(content))}); err != nil {
		return fmt.Errorf("writing the pause image: %w", err)
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("writing the pause image: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("writing the pause image: %w", err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		return fmt.Errorf("making the layer of the pause image: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return fmt.Errorf("making the pause image: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("making the pause image: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{"/pause"}}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return fmt.Errorf("making the pause image: %w", err)
	}
	tag, err := name.NewTag(pauseImage)
	if err != nil {
		return fmt.Errorf("naming the pause image: %w", err)
	}
	if err := tarball.WriteToFile(target, tag, image); err != nil {
		return fmt.Errorf("writing the pause image: %w", err)
	}
	return nil
}
