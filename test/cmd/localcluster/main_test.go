package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRunRefuses(t *testing.T) {
	const verbs = "up, down, status, load, image, kubeconfig, lab-up, lab-down, lab-status, lab-load, lab-components, upgrade, slow, fast, assets, help"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "a verb is needed: " + verbs},
		{[]string{"start"}, `no verb "start", there are ` + verbs},
		{[]string{"load"}, "load needs the tarballs"},
		{[]string{"image", "localhost/program/engine"}, "image needs a name"},
		{[]string{"up", "now"}, `up takes no arguments, got ["now"]`},
	} {
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), tt.args, &stdout, &stderr)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got error %v, want %q", tt.args, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: the error has more than one line: %v", tt.args, err)
		}
	}
}

func TestRunKubeconfig(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"kubeconfig"}, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	if got, want := stdout.String(), "/var/lib/tailgate-localcluster/admin.kubeconfig\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
