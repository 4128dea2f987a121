package result

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
)

func ends(t *testing.T) (client, server Framed) {
	t.Helper()
	c := clientDocument(t)
	s := Document{Version: Version, Run: c.Run, Attempt: c.Attempt, Role: v1alpha1.RoleServer, Evidence: Evidence{Node: "node-b"}}
	client, err := compress(c)
	if err != nil {
		t.Fatal(err)
	}
	server, err = compress(s)
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

// The API server's data about the pods of both ends.
var (
	clientSeen = Seen{
		PodUID: "uid-c", ImageID: "sha256:ab", Requests: map[string]string{"cpu": "2", "amd.com/sf_vf": "2"},
		Changed: []string{"requests amd.com/sf_vf: 2 instead of 1"},
		Network: &foreign.Status{
			Name: "perf/sf-vf", Interface: "net1", IPs: []string{"192.0.2.1"}, MAC: "00:0f:53:4a:81:c0", MTU: 1500,
			DeviceInfo: &foreign.DeviceInfo{Type: "pci", PCI: &foreign.PCIDevice{Address: "0000:01:10.2"}},
		},
	}
	serverSeen = Seen{PodUID: "uid-s"}
)

// podsDigest is the digest of podsJSON.
const (
	podsJSON = `{"client":{"podUID":"uid-c","imageID":"sha256:ab","requests":{"amd.com/sf_vf":"2","cpu":"2"},` +
		`"changed":["requests amd.com/sf_vf: 2 instead of 1"],"network":{"name":"perf/sf-vf","interface":"net1","ips":["192.0.2.1"],` +
		`"mac":"00:0f:53:4a:81:c0","mtu":1500,"device-info":{"type":"pci","pci":{"pci-address":"0000:01:10.2"}}}},"server":{"podUID":"uid-s"}}`
	podsDigest = "6d6d080b49002539ff323a832adba577deed4563aef7f76b1d58931ed19f7724"
)

var owner = metav1.OwnerReference{APIVersion: "tailgate.dev/v1alpha1", Kind: "LatencyBenchmark", Name: "first", UID: "u"}

func storedMap(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	client, server := ends(t)
	s, err := NewStored(client, server, clientSeen, serverSeen)
	if err != nil {
		t.Fatal(err)
	}
	cm, err := s.ConfigMap("first-p0-r1", "default", map[string]string{v1alpha1.LabelRun: "first-p0-r1"}, owner)
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

func TestConfigMap(t *testing.T) {
	client, server := ends(t)
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: "first-p0-r1", Namespace: "default", Labels: map[string]string{v1alpha1.LabelRun: "first-p0-r1"}, OwnerReferences: []metav1.OwnerReference{owner},
			Annotations: map[string]string{"tailgate.dev/result-format": "1"},
		},
		Immutable:  new(true),
		Data:       map[string]string{"pods.json": podsJSON},
		BinaryData: map[string][]byte{"client.json.gz": client.Compressed, "server.json.gz": server.Compressed},
	}
	if diff := cmp.Diff(want, storedMap(t)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// named returns the reference of a status to the result of storedMap.
func named(t *testing.T) v1alpha1.StoredResult {
	t.Helper()
	client, server := ends(t)
	return v1alpha1.StoredResult{
		ConfigMap: "first-p0-r1", Run: client.Document.Run, SHA256: client.Digest, ServerSHA256: server.Digest, PodsSHA256: podsDigest,
	}
}

func TestOpen(t *testing.T) {
	client, server := ends(t)
	cm := storedMap(t)
	// The owner and the metadata of the ConfigMap do not matter.
	cm.OwnerReferences, cm.Labels, cm.Annotations = nil, nil, nil
	got, err := Open(cm, named(t))
	if err != nil {
		t.Fatal(err)
	}
	want := Stored{
		Client: client.Document, Server: server.Document, ClientSeen: clientSeen, ServerSeen: serverSeen,
		ClientDigest: client.Digest, ServerDigest: server.Digest, PodsDigest: podsDigest,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Stored{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(named(t), got.Named("first-p0-r1")); diff != "" {
		t.Errorf("named again, -want +got:\n%s", diff)
	}
	again, err := got.ConfigMap("first-p0-r1", "default", map[string]string{v1alpha1.LabelRun: "first-p0-r1"}, owner)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(storedMap(t), again); diff != "" {
		t.Errorf("stored again, -want +got:\n%s", diff)
	}
}

func TestOpenRefuses(t *testing.T) {
	client, server := ends(t)
	cases := map[string]struct {
		spoil func(*corev1.ConfigMap, *v1alpha1.StoredResult)
		want  error
	}{
		"no client":       {func(cm *corev1.ConfigMap, _ *v1alpha1.StoredResult) { delete(cm.BinaryData, KeyClient) }, ErrMissing},
		"no server":       {func(cm *corev1.ConfigMap, _ *v1alpha1.StoredResult) { delete(cm.BinaryData, KeyServer) }, ErrMissing},
		"no data":         {func(cm *corev1.ConfigMap, _ *v1alpha1.StoredResult) { cm.BinaryData = nil }, ErrMissing},
		"changed content": {func(cm *corev1.ConfigMap, _ *v1alpha1.StoredResult) { cm.BinaryData[KeyClient][20] ^= 1 }, ErrCorrupt},
		"content that was cut off": {func(cm *corev1.ConfigMap, _ *v1alpha1.StoredResult) {
			cm.BinaryData[KeyServer] = cm.BinaryData[KeyServer][:10]
		}, ErrCorrupt},
		"no pods": {func(cm *corev1.ConfigMap, _ *v1alpha1.StoredResult) { cm.Data = nil }, ErrMissing},
		"pods that were edited": {func(cm *corev1.ConfigMap, _ *v1alpha1.StoredResult) {
			cm.Data[KeyPods] = strings.Replace(podsJSON, "uid-s", "uid-t", 1)
		}, ErrCorrupt},
		"pods that are no JSON": {func(cm *corev1.ConfigMap, n *v1alpha1.StoredResult) {
			cm.Data[KeyPods], n.PodsSHA256 = "nonsense", digestOf([]byte("nonsense"))
		}, ErrCorrupt},
		"a client that is no document": {func(cm *corev1.ConfigMap, n *v1alpha1.StoredResult) {
			cm.BinaryData[KeyClient], n.SHA256 = []byte("nonsense"), digestOf([]byte("nonsense"))
		}, ErrCorrupt},
		"a client of a later version": {func(cm *corev1.ConfigMap, n *v1alpha1.StoredResult) {
			cm.BinaryData[KeyClient] = gzipped(`{"version":2,"run":7}`)
			n.SHA256 = digestOf(cm.BinaryData[KeyClient])
		}, ErrVersion},
		"ends that were swapped": {func(cm *corev1.ConfigMap, n *v1alpha1.StoredResult) {
			d := cm.BinaryData
			d[KeyClient], d[KeyServer] = d[KeyServer], d[KeyClient]
			n.SHA256, n.ServerSHA256 = n.ServerSHA256, n.SHA256
		}, ErrCorrupt},
		"a client larger than any that is stored": {func(cm *corev1.ConfigMap, n *v1alpha1.StoredResult) {
			cm.BinaryData[KeyClient] = notCompressed(t, client.Document, maxStored)
			n.SHA256 = digestOf(cm.BinaryData[KeyClient])
		}, ErrCorrupt},
		"pods larger than any that are stored": {func(cm *corev1.ConfigMap, n *v1alpha1.StoredResult) {
			cm.Data[KeyPods] = podsJSON + strings.Repeat(" ", maxPods)
			n.PodsSHA256 = digestOf([]byte(cm.Data[KeyPods]))
		}, ErrCorrupt},
		"another run":     {func(_ *corev1.ConfigMap, n *v1alpha1.StoredResult) { n.Run = "other" }, ErrCorrupt},
		"another client":  {func(_ *corev1.ConfigMap, n *v1alpha1.StoredResult) { n.SHA256 = server.Digest }, ErrCorrupt},
		"another server":  {func(_ *corev1.ConfigMap, n *v1alpha1.StoredResult) { n.ServerSHA256 = client.Digest }, ErrCorrupt},
		"other pods":      {func(_ *corev1.ConfigMap, n *v1alpha1.StoredResult) { n.PodsSHA256 = client.Digest }, ErrCorrupt},
		"no pods named":   {func(_ *corev1.ConfigMap, n *v1alpha1.StoredResult) { n.PodsSHA256 = "" }, ErrCorrupt},
		"no digest named": {func(_ *corev1.ConfigMap, n *v1alpha1.StoredResult) { n.ServerSHA256 = "" }, ErrCorrupt},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cm, n := storedMap(t), named(t)
			c.spoil(cm, &n)
			if _, err := Open(cm, n); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// notCompressed returns a document in a gzip stream without compression, followed by a number of blanks.
func notCompressed(t *testing.T, d Document, blanks int) []byte {
	t.Helper()
	plain, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(append(plain, bytes.Repeat([]byte(" "), blanks)...)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Verify alone decides whether a ConfigMap counts before the result is opened, so it must compare each part.
func TestVerifyComparesEachPart(t *testing.T) {
	if err := Verify(storedMap(t), named(t)); err != nil {
		t.Error(err)
	}
	for _, key := range []string{KeyClient, KeyServer, KeyPods} {
		cm := storedMap(t)
		if key == KeyPods {
			cm.Data[key] += " "
		} else {
			cm.BinaryData[key] = append(cm.BinaryData[key], 0)
		}
		if err := Verify(cm, named(t)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %v", key, err)
		}
	}
}

// A ConfigMap that replaces a result is compared with the digests before it is expanded: expanding this one takes 8 MiB and
// more.
func TestOpenExpandsNothingThatIsNotNamed(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(make([]byte, maxPlain)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{KeyClient, KeyServer} {
		t.Run(key, func(t *testing.T) {
			cm, n := storedMap(t), named(t)
			cm.BinaryData[key] = bomb.Bytes()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Open(cm, n)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("got %v", err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > maxPlain/8 {
				t.Errorf("%d bytes were allocated to refuse %d", used, bomb.Len())
			}
		})
	}
}

func TestOfVariant(t *testing.T) {
	run := func(name, variant string) Stored { return Stored{Client: Document{Run: name, Variant: variant}} }
	runs := []Stored{run("r1-vf", "vf"), run("r1-pod", "pod"), run("r2-pod", "pod"), run("r2-vf", "vf")}
	for variant, want := range map[string][]string{
		"vf": {"r1-vf", "r2-vf"}, "pod": {"r1-pod", "r2-pod"}, "v": nil, "": nil,
	} {
		t.Run(variant, func(t *testing.T) {
			var got []string
			for _, r := range OfVariant(runs, variant) {
				got = append(got, r.Client.Run)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestNewStoredRefusesEndsOfDifferentAttempts(t *testing.T) {
	client, server := ends(t)
	for name, spoil := range map[string]func(*Document){
		"another run":     func(d *Document) { d.Run = "other" },
		"another attempt": func(d *Document) { d.Attempt++ },
		"another role":    func(d *Document) { d.Role = v1alpha1.RoleClient },
	} {
		t.Run(name, func(t *testing.T) {
			s := server
			spoil(&s.Document)
			if _, err := NewStored(client, s, clientSeen, serverSeen); !errors.Is(err, ErrCorrupt) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestConfigMapRefusesWhatDoesNotFit(t *testing.T) {
	client, server := ends(t)
	client.Compressed = make([]byte, maxStored-len(server.Compressed)+1)
	rand.Read(client.Compressed)
	s, err := NewStored(client, server, clientSeen, serverSeen)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ConfigMap("n", "ns", nil, owner); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestConfigMapRefusesMorePodsThanFit(t *testing.T) {
	client, server := ends(t)
	s, err := NewStored(client, server, Seen{Changed: []string{strings.Repeat("x", maxPods)}}, serverSeen)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ConfigMap("n", "ns", nil, owner); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}
