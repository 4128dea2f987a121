package result

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// FuzzOpen opens ConfigMaps with arbitrary content. The status names their digests, so that everything is decoded.
func FuzzOpen(f *testing.F) {
	small := clientDocument(f)
	small.Cells[0].Histogram = recorded(f, 1, 2, 3)
	framed, err := compress(small)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(framed.Compressed, gzipped(`{"version":1,"run":"first-p0-r1","attempt":2,"role":"server"}`), podsJSON)
	f.Add(gzipped(`{"version":1,"cells":[{},{}]}`), []byte("nonsense"), "{}")
	f.Fuzz(func(t *testing.T, client, server []byte, pods string) {
		cm := &corev1.ConfigMap{BinaryData: map[string][]byte{KeyClient: client, KeyServer: server}, Data: map[string]string{KeyPods: pods}}
		named := v1alpha1.StoredResult{Run: "first-p0-r1", SHA256: digestOf(client), ServerSHA256: digestOf(server), PodsSHA256: digestOf([]byte(pods))}
		var got Stored
		var err error
		if used := allocated(func() { got, err = Open(cm, named) }); used > 256 {
			t.Errorf("%d bytes take %d MiB", len(client)+len(server)+len(pods), used)
		}
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrMissing) {
				t.Errorf("an error without a kind: %v", err)
			}
			return
		}
		if got.Client.Role != v1alpha1.RoleClient || got.Server.Role != v1alpha1.RoleServer || got.Client.Run != named.Run {
			t.Errorf("opened %s of %s and %s", got.Client.Role, got.Client.Run, got.Server.Role)
		}
	})
}

// FuzzParseTermination reads arbitrary messages. A message that was read can be written and read again.
func FuzzParseTermination(f *testing.F) {
	f.Add(`{"reason":"ToolFailed","message":"it failed"}`)
	f.Add("OOMKilled")
	f.Fuzz(func(t *testing.T, message string) {
		read, err := ParseTermination(message)
		if err != nil {
			return
		}
		if len(message) > maxTermination {
			t.Errorf("a message of %d bytes was read", len(message))
		}
		if read.Reason == "" {
			if _, err := read.Encode(); err != nil {
				t.Errorf("%+v cannot be written: %v", read, err)
			}
		}
	})
}

// FuzzOpenPods opens a result with valid documents and arbitrary content of pods.json. An opened result can be stored and
// opened again, and is the same.
func FuzzOpenPods(f *testing.F) {
	framed := func(role string) Framed {
		made, err := compress(Document{Version: Version, Run: "first-p0-r1", Attempt: 1, Role: role})
		if err != nil {
			f.Fatal(err)
		}
		return made
	}
	client, server := framed(v1alpha1.RoleClient), framed(v1alpha1.RoleServer)
	open := func(pods string) (Stored, error) {
		return Open(&corev1.ConfigMap{
			BinaryData: map[string][]byte{KeyClient: client.Compressed, KeyServer: server.Compressed}, Data: map[string]string{KeyPods: pods},
		}, v1alpha1.StoredResult{Run: "first-p0-r1", SHA256: client.Digest, ServerSHA256: server.Digest, PodsSHA256: digestOf([]byte(pods))})
	}
	f.Add(podsJSON)
	f.Add(`{"client":null,"server":{"requests":{"<":"\u2028"},"changed":[],"network":{}}}`)
	f.Add(repeated(`{"client":{"changed":[`, `""`, `]}}`, maxPods))
	f.Add(`{"client":{"podUID":"` + strings.Repeat("x", maxPods) + `"}}`)
	f.Fuzz(func(t *testing.T, pods string) {
		var got Stored
		var err error
		if used := allocated(func() { got, err = open(pods) }); used > 8 {
			t.Errorf("%d bytes take %d MiB", len(pods), used)
		}
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("an error without a kind: %v", err)
			}
			return
		}
		if len(pods) > maxPods {
			t.Errorf("%d bytes were opened", len(pods))
		}
		kept, err := NewStored(client, server, got.ClientSeen, got.ServerSeen)
		if err != nil {
			t.Fatal(err)
		}
		if len(kept.pods) > maxPods { // Escapes are longer than the characters that they represent.
			return
		}
		again, err := open(string(kept.pods))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got.ClientSeen, again.ClientSeen, cmpopts.EquateEmpty()) + cmp.Diff(got.ServerSeen, again.ServerSeen, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("-first +again:\n%s", diff)
		}
	})
}
