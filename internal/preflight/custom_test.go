package preflight

import (
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// A prefix ends where a part of a name ends, and short names are those of docker.io.
func TestCustomImages(t *testing.T) {
	digest := "@sha256:0000000000000000000000000000000000000000000000000000000000000000"
	for _, c := range []struct {
		image, prefix string
		want          bool
	}{
		{"registry.example/team/app:1", "registry.example/team", true},
		{"registry.example/team/app" + digest, "registry.example/team/", true},
		{"registry.example/team", "registry.example/team", true},
		{"registry.example/team:1", "registry.example/team", true},
		{"registry.example/team-evil/app", "registry.example/team", false},
		{"registry.example/teams", "registry.example/team", false},
		{"registry.example/team/app", "registry.example", true},
		{"registry.example.evil.com/team/app", "registry.example", false},
		{"registry.example:5000/team/app", "registry.example", false},
		{"registry.example:5000/team/app:1" + digest, "registry.example:5000/team", true},
		{"evil.com/registry.example/team/app", "registry.example/team", false},
		{"registry.example/other/registry.example/team", "registry.example/team", false},
		{"redis", "docker.io", true},
		{"redis:7", "docker.io/library/redis", true},
		{"redis", "docker.io/redis", false},
		{"docker.io/redis", "docker.io/library", true},
		{"index.docker.io/team/app", "docker.io/team", true},
		{"team/app", "docker.io/team", true},
		{"team/app", "team", false},
		{"localhost/team/app", "localhost/team", true},
		{"localhost/team/app", "docker.io", false},
		{"any/app", "*", true},
		{"any/app", "", false},
		{"any/app", "/", false},
	} {
		if got := (v1alpha1.Custom{Image: c.image}).Within([]string{"other.example", c.prefix}); got != c.want {
			t.Errorf("%s within %q: %t, want %t", c.image, c.prefix, got, c.want)
		}
	}
	if (v1alpha1.Custom{Image: "app"}).Within(nil) {
		t.Error("no prefix allows an image")
	}
	for image, want := range map[string]string{
		"redis": "docker.io/library/redis", "redis:7" + digest: "docker.io/library/redis:7" + digest, "a/b": "docker.io/a/b", "index.docker.io/a": "docker.io/library/a",
		"localhost/a": "localhost/a", "r.example:5000/a:1": "r.example:5000/a:1", "UPPER/a": "UPPER/a",
	} {
		if got := (v1alpha1.Custom{Image: image}).FullImage(); got != want {
			t.Errorf("%s is %s, want %s", image, got, want)
		}
	}
}
