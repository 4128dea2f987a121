// Package chromium brings the browser in which tests open a page: a headless Chromium that needs nothing of the machine
// but its C library and a certificate store, at one version, kept in the cache.
//
// It is the one that npm's package @sparticuz/chromium carries in its tarball, with the libraries and a font that it
// needs. npm never changes what it published, and the tarball is held against its digest.
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
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/andybalholm/brotli"
	"golang.org/x/sys/unix"
)

const (
	// Version is that of the package, and of the browser in it.
	Version = "153.0.0"
	// integrity is npm's digest of its tarball.
	integrity = "sha512-jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
	// registry is npm's, unless npm_config_registry names another, as for npm itself.
	registry = "https://registry.npmjs.org"
	// patience is how long 70 MB may take.
	patience = 5 * time.Minute
)

// Browser is an installed Chromium.
type Browser struct {
	// Path is the program.
	Path string
	// Env are variables without which it does not find its libraries, its font and its language, as KEY=value.
	Env []string
}

// Install returns the browser, from the cache or else from npm. It says on log when it has to fetch it.
func Install(ctx context.Context, log io.Writer) (Browser, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return Browser{}, fmt.Errorf("there is a browser for tests on linux/amd64, and none on %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Browser{}, fmt.Errorf("looking for the cache folder: %w", err)
	}
	dir := filepath.Join(cache, "tailgate", "chromium-"+Version)
	if err := once(dir, func(tmp string) error {
		fmt.Fprintf(log, "fetching Chromium %s (once, 70 MB)\n", Version)
		return fetch(ctx, tmp)
	}); err != nil {
		return Browser{}, fmt.Errorf("installing Chromium %s in %s: %w", Version, dir, err)
	}
	return Browser{
		Path: filepath.Join(dir, "chromium"),
		Env:  []string{"LD_LIBRARY_PATH=" + filepath.Join(dir, "lib"), "FONTCONFIG_FILE=" + filepath.Join(dir, "fonts.xml"), "LC_ALL=en_US.UTF-8"},
	}, nil
}

// once fills a folder unless it is there: completely or not at all, and by one process at a time.
func once(dir string, fill func(tmp string) error) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("waiting for another that installs it: %w", err)
	}
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	// Who died while filling it left it.
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return err
	}
	if err := fill(tmp); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return os.Rename(tmp, dir)
}

// fetch downloads the package, verifies it and unpacks what a test needs of it.
func fetch(ctx context.Context, dir string) error {
	from := registry
	if own := os.Getenv("npm_config_registry"); own != "" {
		from = own
	}
	url := strings.TrimSuffix(from, "/") + "/@sparticuz/chromium/-/chromium-" + Version + ".tgz"
	tarball, err := download(ctx, url)
	if err != nil {
		return fmt.Errorf("downloading %s: %w; without a network put what it has into the cache of this machine", url, err)
	}
	sum := sha512.Sum512(tarball)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != integrity {
		return fmt.Errorf("%s has the digest %s, not %s", url, got, integrity)
	}
	return unpack(tarball, dir)
}

func download(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	return io.ReadAll(response.Body)
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
			// The package's own names folders of the machines that it was made for.
			const fonts = `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><dir>%s</dir><cachedir>%s</cachedir></fontconfig>`
			final := strings.TrimSuffix(dir, ".tmp")
			return os.WriteFile(filepath.Join(dir, "fonts.xml"), fmt.Appendf(nil, fonts, filepath.Join(final, "fonts"), filepath.Join(final, "font-cache")), 0o644)
		}
		return nil
	})
}

// files calls what handles a file for each of a tar archive.
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
