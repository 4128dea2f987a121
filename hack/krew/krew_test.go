// Package krew holds the manifest of kubectl tailgate for krew; this is its test.
package krew

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// plugin has the fields of krew's Plugin, apiVersion krew.googlecontainertools.github.com/v1alpha2; other fields are rejected.
type plugin struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string     `json:"version"`
		Homepage         string     `json:"homepage"`
		ShortDescription string     `json:"shortDescription"`
		Description      string     `json:"description"`
		Caveats          string     `json:"caveats"`
		Platforms        []platform `json:"platforms"`
	} `json:"spec"`
}

type platform struct {
	Selector *metav1.LabelSelector `json:"selector"`
	URI      string                `json:"uri"`
	Sha256   string                `json:"sha256"`
	Bin      string                `json:"bin"`
	Files    []struct {
		From string `json:"from"`
		To   string `json:"to"`
	} `json:"files"`
}

// TestManifest checks that the manifest, filled in for a release, meets the requirements of krew and its index.
func TestManifest(t *testing.T) {
	content, err := os.ReadFile("tailgate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	filled := strings.ReplaceAll(string(content), "VERSION", "v0.4.0")
	filled = regexp.MustCompile(`SHA256_[A-Z0-9_]+`).ReplaceAllString(filled, strings.Repeat("0a", 32))
	var p plugin
	if err := yaml.UnmarshalStrict([]byte(filled), &p); err != nil {
		t.Fatal(err)
	}
	if p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin" || p.Metadata.Name != "tailgate" {
		t.Errorf("it is %s %s %s", p.APIVersion, p.Kind, p.Metadata.Name)
	}
	if s := p.Spec.ShortDescription; s == "" || len(s) > 50 || strings.ContainsAny(s, "\r\n") {
		t.Errorf("the short description is %q: one line of at most 50 characters", s)
	}
	if p.Spec.Version != "v0.4.0" || p.Spec.Description == "" || !strings.HasPrefix(p.Spec.Homepage, "https://") {
		t.Errorf("spec is %+v", p.Spec)
	}
	var selected []string
	for _, one := range p.Spec.Platforms {
		labels := one.Selector.MatchLabels
		name := labels["os"] + "_" + labels["arch"]
		if len(labels) != 2 || len(one.Selector.MatchExpressions) > 0 || slices.Contains(selected, name) {
			t.Errorf("selector %v", one.Selector)
		}
		selected = append(selected, name)
		if one.URI != "https://github.com/tailgate-dev/tailgate/releases/download/v0.4.0/kubectl-tailgate_"+name+".tar.gz" {
			t.Errorf("%s is downloaded from %s", name, one.URI)
		}
		if !regexp.MustCompile(`^[a-f0-9]{64}$`).MatchString(one.Sha256) || !strings.Contains(string(content), "SHA256_"+strings.ToUpper(name)+"\n") {
			t.Errorf("sha256 of %s is %q", name, one.Sha256)
		}
		var files []string
		for _, f := range one.Files {
			if f.To != "." {
				t.Errorf("%s goes to %q", f.From, f.To)
			}
			files = append(files, f.From)
		}
		bin := "kubectl-tailgate"
		if labels["os"] == "windows" {
			bin += ".exe"
		}
		if one.Bin != bin || !slices.Equal(files, []string{bin, "LICENSE"}) {
			t.Errorf("bin is %q of %q", one.Bin, files)
		}
	}
	// The offered platforms can be built: go knows each of them.
	known, err := exec.Command("go", "tool", "dist", "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range selected {
		if !slices.Contains(strings.Fields(string(known)), strings.Replace(name, "_", "/", 1)) {
			t.Errorf("there is no platform %s", name)
		}
	}
	if len(selected) != 6 {
		t.Errorf("platforms are %q", selected)
	}
}
