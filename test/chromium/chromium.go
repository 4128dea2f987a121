// Package chromium provides the browser in which tests open a page: a headless Chromium of a fixed version, kept in the
// cache, that needs only the C library and a certificate store of the machine.
//
// It is the browser in the tarball of npm's package @sparticuz/chromium, with the libraries and a font that it needs. npm
// never changes published packages, and the tarball is verified against its digest.
package chromium

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/tailgate-dev/tailgate/test/cached"
)

const (
	// Version is the version of the package, and of the browser in it.
	Version = "153.0.0"
	// integrity is npm's digest of the tarball.
	integrity = "sha512-jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
	// axeVersion is the version of npm's package axe-core, and axeIntegrity the digest of its tarball.
	axeVersion   = "4.11.0"
	axeIntegrity = "sha512-ilYanEU8vxxBexpJd8cWM4ElSQq4QctCLKih0TSfjIfCQTeyH/6zVrmIJfLPrKTKJRbiG+cfnZbQIjAlJmF1jQ=="
	// registry is npm's registry. As for npm itself, npm_config_registry may name another.
	registry = "https://registry.npmjs.org"
)

// Browser is an installed Chromium.
type Browser struct {
	// Path is the path of the program.
	Path string
	// Env holds the variables, as KEY=value, with which it finds its libraries, its font and its language.
	Env []string
}

// Install returns the browser, from the cache or else from npm. It writes to log when it downloads the browser.
func Install(ctx context.Context, log io.Writer) (Browser, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return Browser{}, fmt.Errorf("there is a browser for tests on linux/amd64, and none on %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	dir, err := cached.Folder(ctx, "chromium-"+Version, func(tmp string) error {
		fmt.Fprintf(log, "fetching Chromium %s (once, 70 MB)\n", Version)
		return fetch(ctx, tmp)
	})
	if err != nil {
		return Browser{}, fmt.Errorf("installing Chromium %s: %w", Version, err)
	}
	return Browser{
		Path: filepath.Join(dir, "chromium"),
		Env:  []string{"LD_LIBRARY_PATH=" + filepath.Join(dir, "lib"), "FONTCONFIG_FILE=" + filepath.Join(dir, "fonts.xml"), "LC_ALL=en_US.UTF-8"},
	}, nil
}

// fetch downloads the package, verifies it and unpacks the files that tests need.
func fetch(ctx context.Context, dir string) error {
	tarball, err := download(ctx, "@sparticuz/chromium/-/chromium-"+Version+".tgz", integrity)
	if err != nil {
		return err
	}
	return unpack(tarball, dir)
}

// download downloads a tarball from npm, and verifies its digest.
func download(ctx context.Context, path, digest string) ([]byte, error) {
	from := registry
	if own := os.Getenv("npm_config_registry"); own != "" {
		from = own
	}
	url := strings.TrimSuffix(from, "/") + "/" + path
	tarball, err := cached.Download(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("downloading %s: %w; without a network put what it has into the cache of this machine", url, err)
	}
	sum := sha512.Sum512(tarball)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != digest {
		return nil, fmt.Errorf("%s has the digest %s, not %s", url, got, digest)
	}
	return tarball, nil
}

// Axe returns the script of axe-core, which checks the accessibility of the page in which it runs.
func Axe(ctx context.Context) (string, error) {
	dir, err := cached.Folder(ctx, "axe-core-"+axeVersion, func(tmp string) error {
		tarball, err := download(ctx, "axe-core/-/axe-core-"+axeVersion+".tgz", axeIntegrity)
		if err != nil {
			return err
		}
		zipped, err := gzip.NewReader(bytes.NewReader(tarball))
		if err != nil {
			return fmt.Errorf("reading the tarball: %w", err)
		}
		return files(zipped, func(name string, content io.Reader) error {
			if name != "package/axe.min.js" {
				return nil
			}
			return write(filepath.Join(tmp, "axe.min.js"), 0o644, content)
		})
	})
	if err != nil {
		return "", fmt.Errorf("installing axe-core %s: %w", axeVersion, err)
	}
	script, err := os.ReadFile(filepath.Join(dir, "axe.min.js"))
	return string(script), err
}

// unpack writes the browser, its libraries and its font.
func unpack(tarball []byte, dir string) error {
	zipped, err := gzip.NewReader(bytes.NewReader(tarball))
	if err != nil {
		return fmt.Errorf("reading the tarball: %w", err)
	}
	return files(zipped, func(name string, content io.Reader) error {
		plain := brotli.NewReader(content)
		switch name {
		case "package/bin/chromium.br":
			return write(filepath.Join(dir, "chromium"), 0o755, plain)
		case "package/bin/al2023.tar.br", "package/bin/fonts.tar.br":
			if err := files(plain, func(name string, content io.Reader) error {
				return write(filepath.Join(dir, filepath.FromSlash(name)), 0o644, content)
			}); err != nil {
				return err
			}
			// The package's own file names folders of the machines for which it was made.
			const fonts = `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><dir>%s</dir><cachedir>%s</cachedir></fontconfig>`
			final := strings.TrimSuffix(dir, ".tmp")
			return os.WriteFile(filepath.Join(dir, "fonts.xml"), fmt.Appendf(nil, fonts, filepath.Join(final, "fonts"), filepath.Join(final, "font-cache")), 0o644)
		}
		return nil
	})
}

// files calls handle for each regular file of a tar archive.
func files(archive io.Reader, handle func(name string, content io.Reader) error) error {
	t := tar.NewReader(archive)
	for {
		header, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading an archive: %w", err)
		}
		name := path.Clean(header.Name)
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if !filepath.IsLocal(name) {
			return fmt.Errorf("an archive has a file %q", header.Name)
		}
		if err := handle(name, t); err != nil {
			return fmt.Errorf("unpacking %s: %w", name, err)
		}
	}
}

func write(name string, mode os.FileMode, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
