package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tailgate-dev/tailgate/test/mounted"
)

const serviceName = "metrics.tailgate-system.svc"

// issued is a certificate for serviceName, with its key and the certificate of its own CA; all in PEM.
type issued struct{ certificate, key, ca []byte }

func issue(t *testing.T) issued {
	t.Helper()
	chain, key, err := cert.GenerateSelfSignedCertKeyWithFixtures(serviceName, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	_, ca := pem.Decode(chain)
	return issued{certificate: bytes.TrimSuffix(chain, ca), key: key, ca: ca}
}

// mount writes files as a kubelet does.
func mount(t *testing.T, folder string, files map[string][]byte) {
	t.Helper()
	if err := mounted.Write(folder, files); err != nil {
		t.Fatal(err)
	}
}

// newManager returns a manager without an API server.
func newManager(t *testing.T) ctrl.Manager {
	t.Helper()
	mgr, err := ctrl.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: off}, HealthProbeBindAddress: off,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

// serve serves as the manager does, with a watched certificate unless it is nil, and returns the address.
func serve(ctx context.Context, t *testing.T, certificate *certwatcher.CertWatcher) string {
	t.Helper()
	mgr := newManager(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := setUpServers(mgr, options{metricsAddress: address, healthAddress: off}, certificate); err != nil {
		t.Fatal(err)
	}
	if certificate != nil {
		if err := mgr.Add(certificate); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return address
}

// presented requests metrics as a Go program that trusts the system's CAs, and returns the certificate that was presented.
func presented(t *testing.T, address string) ([]byte, error) {
	t.Helper()
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		},
	}}
	response, err := c.Get("https://" + serviceName + ":8443/metrics")
	if err != nil {
		return nil, err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token the answer is %s", response.Status)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: response.TLS.PeerCertificates[0].Raw}), nil
}

func TestServingCertificate(t *testing.T) {
	first, second := issue(t), issue(t)
	// docs/integrations/argo-rollouts-flagger.md describes this for argo-rollouts and Flagger. SSL_CERT_DIR is read once in a process, so no other test here
	// may need a CA.
	trusted := t.TempDir()
	mount(t, trusted, map[string][]byte{"first.crt": first.ca, "second.crt": second.ca})
	t.Setenv("SSL_CERT_DIR", trusted)

	secret := func(i issued) map[string][]byte {
		return map[string][]byte{corev1.TLSCertKey: i.certificate, corev1.TLSPrivateKeyKey: i.key, "ca.crt": i.ca}
	}
	folder := t.TempDir()
	mount(t, folder, secret(first))
	certificate, err := servingCertificate(folder)
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t.Context(), t, certificate)
	got, err := presented(t, address)
	if err != nil || !bytes.Equal(got, first.certificate) {
		t.Fatalf("the first certificate is not presented: %v\n%s", err, got)
	}

	mount(t, folder, secret(second))
	for deadline := time.Now().Add(time.Minute); !bytes.Equal(got, second.certificate); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("after a minute the new certificate is not presented")
		}
		if got, err = presented(t, address); err != nil {
			t.Fatal("while it is rotated: ", err)
		}
	}

	if _, err := presented(t, serve(t.Context(), t, nil)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("the manager's own certificate can be verified: %v", err)
	}
}

func TestServingCertificateIsRefused(t *testing.T) {
	good, other := issue(t), issue(t)
	for name, c := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"nothing":              {nil, "tls.crt: no such file"},
		"no key":               {map[string][]byte{"tls.crt": good.certificate}, "tls.key: no such file"},
		"the key of another":   {map[string][]byte{"tls.crt": good.certificate, "tls.key": other.key}, "does not match"},
		"the wrong way around": {map[string][]byte{"tls.crt": good.key, "tls.key": good.certificate}, "tls: "},
		"no PEM":               {map[string][]byte{"tls.crt": []byte("x"), "tls.key": good.key}, "tls: "},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			mount(t, folder, c.files)
			var stderr bytes.Buffer
			err := run(t.Context(), []string{"--bench-image=bench:v0", "--serving-cert-dir=" + folder}, &stderr)
			if err == nil || !strings.Contains(err.Error(), "--serving-cert-dir") || !strings.Contains(err.Error(), folder) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that names the flag, %s and %q", err, folder, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") || stderr.Len() > 0 {
				t.Errorf("more than one line: %v %s", err, &stderr)
			}
		})
	}
}
