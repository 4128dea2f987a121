package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/pinger"
)

const root = "../../.."

func TestParsePackages(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
		wantErr  string
	}{
		{name: "comments and blanks", in: "# list\n\n sockperf \nnetperf # non-free\nlibstdc++6", want: []string{"sockperf", "netperf", "libstdc++6"}},
		{name: "two on a line", in: "a1\nb1 c1\n", wantErr: `line 2: "b1 c1" is not`},
		{name: "an option of apt-get", in: "--allow-downgrades\n", wantErr: "line 1"},
		{name: "twice", in: "a1\nb1\na1\n", wantErr: "line 3: a1 is listed twice"},
		{name: "nothing", in: "# nothing\n", wantErr: "empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParsePackages(strings.NewReader(tt.in))
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error = %v, want one with %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParsePackages(f *testing.F) {
	f.Add("a1 # b\nc1")
	f.Add("\x00")
	f.Fuzz(func(t *testing.T, in string) {
		packages, err := ParsePackages(strings.NewReader(in))
		if err != nil {
			return
		}
		again, err := ParsePackages(strings.NewReader(strings.Join(packages, "\n")))
		if err != nil {
			t.Fatalf("%q is not read again: %v", packages, err)
		}
		if diff := cmp.Diff(packages, again); diff != "" {
			t.Errorf("read again (-first +second):\n%s", diff)
		}
	})
}

// entries lists an archive: type, mode, owner, name, target of links, content.
func entries(t *testing.T, r io.Reader) []string {
	t.Helper()
	var list []string
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(epoch) {
			t.Errorf("%s has the time %v", h.Name, h.ModTime)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		line := strings.TrimSpace(strings.Join([]string{h.FileInfo().Mode().String(), h.Name, h.Linkname, string(content)}, " "))
		list = append(list, line)
	}
}

func TestWriteFiles(t *testing.T) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	err := writeFiles(w, []file{
		{path: "/usr/local/bin/b", mode: 0o755, data: []byte("B")},
		{path: "/etc/passwd", mode: 0o644, data: []byte("P")},
		{path: "/usr/local/bin/a", mode: 0o755, data: []byte("A")},
		{path: "/top", mode: 0o600},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"drwxr-xr-x etc/", "-rw-r--r-- etc/passwd  P", "-rw------- top", "drwxr-xr-x usr/", "drwxr-xr-x usr/local/",
		"drwxr-xr-x usr/local/bin/", "-rwxr-xr-x usr/local/bin/a  A", "-rwxr-xr-x usr/local/bin/b  B",
	}
	if diff := cmp.Diff(want, entries(t, &buffer)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFilterRootfs(t *testing.T) {
	var in, out bytes.Buffer
	w := tar.NewWriter(&in)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "./dev/", Mode: 0o755},
		{Typeflag: tar.TypeChar, Name: "./dev/null", Mode: 0o666},
		{Typeflag: tar.TypeReg, Name: "./etc/hostname", Mode: 0o644},
		{Typeflag: tar.TypeSymlink, Name: "./lib64/ld.so", Linkname: "/lib/ld.so", Mode: 0o777},
		{Typeflag: tar.TypeDir, Name: "./tmp/", Mode: 0o1777},
		{Typeflag: tar.TypeReg, Name: "./usr/bin/sockperf", Mode: 0o755, Uname: "builder"},
		{Typeflag: tar.TypeLink, Name: "./usr/bin/sp", Linkname: "./usr/bin/sockperf", Mode: 0o755},
		{Typeflag: tar.TypeLink, Name: "./usr/bin/manual", Linkname: "./usr/share/man/man1/x", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "./usr/lib/x86_64-linux-gnu/gconv/BIG5.so", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "./usr/lib/x86_64-linux-gnu/gconvert.so", Mode: 0o644},
		{Typeflag: tar.TypeDir, Name: "./usr/share/doc/sockperf/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "./usr/share/doc/sockperf/changelog.gz", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "./usr/share/doc/sockperf/copyright", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "./usr/share/man/man1/x", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "./var/lib/dpkg/status", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "./var/lib/dpkg/status.d/sockperf", Mode: 0o644},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := filterRootfs(&in, &out); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Lrwxrwxrwx lib64/ld.so /lib/ld.so",
		"dtrwxrwxrwx tmp/",
		"-rwxr-xr-x usr/bin/sockperf",
		"-rwxr-xr-x usr/bin/sp ./usr/bin/sockperf",
		"-rw-r--r-- usr/lib/x86_64-linux-gnu/gconvert.so",
		"drwxr-xr-x usr/share/doc/sockperf/",
		"-rw-r--r-- usr/share/doc/sockperf/copyright",
		"-rw-r--r-- var/lib/dpkg/status.d/sockperf",
		"drwxr-xr-x etc/",
		"-rw-r--r-- etc/group  nonroot:x:65532:",
		"-rw-r--r-- etc/passwd  nonroot:x:65532:65532:nonroot:/:/sbin/nologin",
	}
	if diff := cmp.Diff(want, entries(t, &out)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestImageIsDeterministic(t *testing.T) {
	dir := t.TempDir()
	r := recipes()[0]
	var images []Image
	for _, name := range []string{"a.tar", "b.tar"} {
		layer, err := fileLayer(append(userFiles(), file{path: "/manager", mode: 0o755, data: []byte("program")})...)
		if err != nil {
			t.Fatal(err)
		}
		made, err := r.assemble(Options{Arch: "arm64"}, append(mustLayers(t), layer))
		if err != nil {
			t.Fatal(err)
		}
		image, err := write(r, made, filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, image)
	}
	if images[0].ID != images[1].ID {
		t.Errorf("ids differ: %v and %v", images[0].ID, images[1].ID)
	}
	a, errA := os.ReadFile(images[0].Path)
	b, errB := os.ReadFile(images[1].Path)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("archives differ")
	}

	image, err := tarball.ImageFromPath(images[0].Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.config, config.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if config.Architecture != "arm64" {
		t.Errorf("architecture %q", config.Architecture)
	}
	flat := mutate.Extract(image)
	defer flat.Close()
	if got := strings.Join(entries(t, flat), "\n"); !strings.Contains(got, "-rwxr-xr-x manager  program") {
		t.Errorf("the program is not in the image:\n%s", got)
	}
}

func mustLayers(t *testing.T) []v1.Layer {
	t.Helper()
	layer, err := fileLayer(file{path: "/below", mode: 0o644})
	if err != nil {
		t.Fatal(err)
	}
	return []v1.Layer{layer}
}

func TestSfntTools(t *testing.T) {
	if files, err := sfntTools(""); err != nil || len(files) > 0 {
		t.Errorf("without a folder: %v, %v", files, err)
	}
	dir := t.TempDir()
	if _, err := sfntTools(dir); err == nil || !strings.Contains(err.Error(), "SFNETTEST_BIN") {
		t.Errorf("empty folder: %v, want an error that names SFNETTEST_BIN", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sfnt-pingpong"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := sfntTools(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 1 || files[0].path != "/usr/local/bin/sfnt-pingpong" || files[0].mode != 0o755 {
		t.Errorf("got %+v", files)
	}
}

// TestSfnettest compiles a stand-in of the source of the sfnt tools, which it fetches from a repository on this machine.
func TestSfnettest(t *testing.T) {
	if testing.Short() {
		t.Skip("it may fetch a compiler")
	}
	o, err := DefaultOptions(root, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Toolchain(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	repository := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		command := exec.Command("git", append([]string{"-C", repository, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		command.Env = environment.Tool("GIT_COMMITTER_DATE=2026-01-01T00:00:00Z", "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z")
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, output)
		}
		return strings.TrimSpace(string(output))
	}
	if err := os.MkdirAll(filepath.Join(repository, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"LICENSE":        "the license\n",
		"src/main.c":     "const char *version = VERSION; int main(void) { return 0; }\n",
		"src/Makefile":   "CFLAGS += -g\nall: sfnt-pingpong sfnt-stream\nsfnt-%: main.c\n\t$(CC) $(CFLAGS) -DVERSION='\"$(SFNT_VERSION) $*\"' -o $@ $<\n\t$(AR) -V > /dev/null\n",
		".gitattributes": "* text=auto\n",
	} {
		if err := os.WriteFile(filepath.Join(repository, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "--quiet")
	git("add", "--all")
	git("commit", "--quiet", "--message=a")
	commit := git("rev-parse", "HEAD")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	linkToolchain(t, o)

	if _, err := sfnettest(t.Context(), o, repository, strings.Repeat("0", 40)); err == nil || !strings.Contains(err.Error(), "fetching the source of the sfnt tools") {
		t.Errorf("a commit that does not exist: %v", err)
	}
	files, err := sfnettest(t.Context(), o, repository, commit)
	if err != nil {
		t.Fatal(err)
	}
	again, err := sfnettest(t.Context(), o, repository, commit)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, f := range files {
		got = append(got, fmt.Sprintf("%s %o", f.path, f.mode))
		if !bytes.Equal(f.data, again[i].data) {
			t.Errorf("%s is another one, compiled in another folder", f.path)
		}
	}
	want := []string{
		"/usr/local/bin/sfnt-pingpong 755", "/usr/local/bin/sfnt-stream 755",
		"/usr/share/doc/sfnettest/LICENSE 644", "/usr/share/doc/sfnettest/SOURCE 644", "/usr/share/doc/sfnettest/source.tar 644",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if !bytes.Contains(files[0].data, []byte(sfnettestVersion+" pingpong")) || string(files[2].data) != "the license\n" ||
		!bytes.Contains(files[3].data, []byte(sfnettestCommit)) || !bytes.Contains(files[4].data, []byte("int main(void)")) {
		t.Error("the files are not those of the source")
	}
}

// linkToolchain makes the toolchain known in the cache folder of a test.
func linkToolchain(t *testing.T, o Options) {
	t.Helper()
	cache, err := cached.Dir()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(filepath.Dir(o.CacheDir), "toolchain-*-for-"+o.Arch+"-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if err := os.Symlink(folder, filepath.Join(cache, filepath.Base(folder))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBuildRefusesUnknownNames(t *testing.T) {
	if _, err := Build(t.Context(), Options{}, "manger"); err == nil || !strings.Contains(err.Error(), `"manger"`) {
		t.Errorf("error = %v, want one with the name", err)
	}
}

// TestDockerfilesSayTheSame checks that the Dockerfiles describe the same images as this package.
func TestDockerfilesSayTheSame(t *testing.T) {
	packages, err := loadPackages(filepath.Join(root, "bench-image", "packages.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, path string }{
		{"manager", "Dockerfile"}, {"bench", "bench-image/Dockerfile"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join(root, tt.path))
			if err != nil {
				t.Fatal(err)
			}
			text := string(content)
			for _, r := range recipes() {
				if r.name != tt.name {
					continue
				}
				for _, line := range []string{"USER " + r.config.User, `ENTRYPOINT ["` + r.config.Entrypoint[0] + `"]`} {
					if !strings.Contains(text, "\n"+line+"\n") {
						t.Errorf("no line %q", line)
					}
				}
				for _, env := range r.config.Env {
					if !strings.HasPrefix(env, "PATH=") && !strings.Contains(text, "\nENV "+env+"\n") {
						t.Errorf("does not set %s", env)
					}
				}
			}
			if tt.name == "manager" {
				for _, program := range []string{"-o /rootfs/manager ./cmd/manager ", "-o /rootfs/tailgate ./cmd/kubectl-tailgate "} {
					if !strings.Contains(text, program) {
						t.Errorf("no %q", program)
					}
				}
				return
			}
			for _, want := range []string{
				"\nFROM debian:" + suite, "Components: " + components + "/", "COPY bench-image/packages.txt /tmp/packages.txt",
				"git fetch --quiet --depth=1 --no-tags " + sfnettestURL + " " + sfnettestCommit + " ", "SFNT_VERSION=" + sfnettestVersion + " ",
				"COPY --from=sfnettest /doc-sfnettest/ " + sfnettestDoc + "\n", "COPY bench-image/sfnettest-SOURCE " + sfnettestDoc + "SOURCE\n",
				"xargs apt-get install", "COPY --from=pinger /tailgate-pinger /usr/local/bin/" + pinger.Program + "\n",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("no %q", want)
				}
			}
			for _, p := range packages {
				if regexp.MustCompile(`(?m)^[^#].*\b` + regexp.QuoteMeta(p) + `\b`).MatchString(text) {
					t.Errorf("names the package %s, which belongs into packages.txt alone", p)
				}
			}
		})
	}
}
