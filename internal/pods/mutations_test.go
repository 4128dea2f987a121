package pods

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/test/policy"
)

// mutation is a change that an admission webhook or plugin of many clusters makes to a pod, as a JSON patch.
type mutation struct {
	// name is the name of its row in docs/internals/webhooks.md.
	name  string
	patch string
	// image is the value of --bench-image; empty: the usual one.
	image string
	// want lists the changes; nil where PodUnchanged is proved.
	want []string
}

// The patches of the network resources injector are the output of its MutateHandler (commit 61d01b9) for testdata/returned.yaml
// and a network with resource amd.com/sf_pf, with the options in their names.
const (
	injectorMount  = `{"op":"add","path":"/spec/containers/0/volumeMounts/-","value":{"name":"podnetinfo","readOnly":true,"mountPath":"/etc/podnetinfo"}}`
	injectorVolume = `{"op":"add","path":"/spec/volumes/-","value":{"name":"podnetinfo","downwardAPI":{"items":[` +
		`{"path":"labels","fieldRef":{"fieldPath":"metadata.labels"}},{"path":"annotations","fieldRef":{"fieldPath":"metadata.annotations"}}]}}}`
	injectorSelector = `{"op":"add","path":"/spec/nodeSelector","value":{"node-role.kubernetes.io/worker-cnf":""}}`
)

var injectorMutations = []mutation{
	{name: "SR-IOV network resources injector, as the SR-IOV operator runs it", patch: injectorMount + "," + injectorVolume + "," + injectorSelector},
	{name: "the same with injectHugepageDownApi, and a network with nodeSelector", patch: `
		{"op":"add","path":"/spec/containers/0/env/-","value":{"name":"CONTAINER_NAME","value":"agent"}},` + injectorMount + `,
		{"op":"add","path":"/spec/volumes/-","value":{"name":"podnetinfo","downwardAPI":{"items":[
			{"path":"labels","fieldRef":{"fieldPath":"metadata.labels"}},{"path":"annotations","fieldRef":{"fieldPath":"metadata.annotations"}},
			{"path":"hugepages_2M_request_agent","resourceFieldRef":{"containerName":"agent","resource":"requests.hugepages-2Mi","divisor":"1Mi"}},
			{"path":"hugepages_2M_limit_agent","resourceFieldRef":{"containerName":"agent","resource":"limits.hugepages-2Mi","divisor":"1Mi"}}]}}},
		{"op":"add","path":"/spec/nodeSelector","value":{"feature.node.kubernetes.io/network-sriov.capable":"true","node-role.kubernetes.io/worker-cnf":""}}`},
	{name: "the same with other network-resource-name-keys", patch: injectorSelector},
	{name: "the same with honor-resources", patch: `
		{"op":"add","path":"/spec/containers/0/resources/requests/amd.com~1sf_pf","value":"2"},
		{"op":"add","path":"/spec/containers/0/resources/limits/amd.com~1sf_pf","value":"2"},` + injectorMount + "," + injectorVolume + "," + injectorSelector,
		want: []string{"limits amd.com/sf_pf: 2 instead of 1", "requests amd.com/sf_pf: 2 instead of 1"}},
	{name: "the same with user-defined-injections of a default network", patch: injectorMount + "," + injectorVolume + `,
		{"op":"add","path":"/metadata/annotations","value":{"cpu-quota.crio.io":"disable","irq-load-balancing.crio.io":"disable",
			"k8s.v1.cni.cncf.io/networks":"[{\"name\":\"x2522\",\"namespace\":\"perf\",\"interface\":\"net1\",\"ips\":[\"fd00:40::ffff/64\"]}]",
			"v1.multus-cni.io/default-network":"kube-system/ovn"}},` + injectorSelector,
		want: []string{"annotation v1.multus-cni.io/default-network: added kube-system/ovn"}},
}

const (
	token = `{"op":"add","path":"/spec/volumes/-","value":{"name":"token","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}}`
	// digest is the digest of an image.
	digest = "sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171"
)

var mutations = []mutation{
	{name: "labels and annotations of Kyverno, Gatekeeper and cost tools", patch: `
		{"op":"add","path":"/metadata/labels/team","value":"perf"},
		{"op":"add","path":"/metadata/annotations/policies.kyverno.io~1last-applied-patches","value":"add-labels.add-labels.kyverno.io: added /metadata/labels/team"}`},
	{name: "other annotations for the cluster autoscaler and Karpenter", patch: `
		{"op":"add","path":"/metadata/annotations/cluster-autoscaler.kubernetes.io~1safe-to-evict","value":"true"},
		{"op":"add","path":"/metadata/annotations/karpenter.sh~1do-not-disrupt","value":"30m"}`},
	{name: "DefaultTolerationSeconds and PodTolerationRestriction", patch: `
		{"op":"add","path":"/spec/tolerations/-","value":{"key":"dedicated","operator":"Exists","effect":"NoSchedule"}}`},
	{name: "PodNodeSelector, and topology spread of a policy", patch: injectorSelector + `,
		{"op":"add","path":"/spec/topologySpreadConstraints","value":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"ScheduleAnyway"}]}`},
	{name: "Priority, and a default PriorityClass", patch: `
		{"op":"replace","path":"/spec/priorityClassName","value":"default"},{"op":"replace","path":"/spec/priority","value":10},
		{"op":"replace","path":"/spec/preemptionPolicy","value":"Never"}`},
	{name: "LimitRanger, with defaults for ephemeral-storage", patch: `
		{"op":"add","path":"/metadata/annotations/kubernetes.io~1limit-ranger","value":"LimitRanger plugin set: ephemeral-storage limit for container agent"},
		{"op":"add","path":"/spec/containers/0/resources/requests/ephemeral-storage","value":"1Gi"},
		{"op":"add","path":"/spec/containers/0/resources/limits/ephemeral-storage","value":"2Gi"}`},
	{name: "a size limit for emptyDir volumes (Kyverno)", patch: `{"op":"add","path":"/spec/volumes/0/emptyDir/sizeLimit","value":"100Mi"}`},
	{name: "ServiceAccount, AlwaysPullImages, and pull secrets of a policy", patch: `
		{"op":"add","path":"/spec/serviceAccountName","value":"default"},{"op":"replace","path":"/spec/containers/0/imagePullPolicy","value":"Always"},
		{"op":"add","path":"/spec/imagePullSecrets","value":[{"name":"registry"}]}`},
	{name: "security contexts of Gatekeeper and Kyverno that repeat the restricted standard", patch: `
		{"op":"add","path":"/spec/containers/0/securityContext/runAsNonRoot","value":true},
		{"op":"add","path":"/spec/containers/0/securityContext/privileged","value":false},
		{"op":"add","path":"/spec/containers/0/securityContext/seccompProfile","value":{"type":"RuntimeDefault"}},
		{"op":"add","path":"/spec/securityContext/appArmorProfile","value":{"type":"RuntimeDefault"}},
		{"op":"add","path":"/spec/securityContext/fsGroupChangePolicy","value":"OnRootMismatch"}`},
	{name: "users, groups and SELinux levels of OpenShift's security context constraints", patch: `
		{"op":"add","path":"/metadata/annotations/openshift.io~1scc","value":"restricted-v2"},
		{"op":"add","path":"/spec/containers/0/securityContext/runAsUser","value":1000680000},
		{"op":"add","path":"/spec/securityContext/fsGroup","value":1000680000},
		{"op":"add","path":"/spec/containers/0/securityContext/runAsNonRoot","value":true},
		{"op":"replace","path":"/spec/containers/0/securityContext/capabilities/drop","value":["ALL","KILL","MKNOD","SETGID","SETUID"]},
		{"op":"add","path":"/spec/securityContext/seLinuxOptions","value":{"level":"s0:c26,c5"}}`},
	{name: "a tag resolved to a digest (Kyverno verifyImages, Connaisseur)", patch: `
		{"op":"replace","path":"/spec/containers/0/image","value":"registry.example.com/tailgate/bench:v0@` + digest + `"}`},
	{name: "a registry mirror, with --bench-image by digest", image: "registry.example.com/tailgate/bench@" + digest, patch: `
		{"op":"replace","path":"/spec/containers/0/image","value":"mirror.example.com/tailgate/bench@` + digest + `"}`},
	{name: "a registry mirror, with --bench-image by tag", patch: `
		{"op":"replace","path":"/spec/containers/0/image","value":"mirror.example.com/tailgate/bench:v0"}`,
		want: []string{"image: mirror.example.com/tailgate/bench:v0 instead of registry.example.com/tailgate/bench:v0"}},
	{name: "proxy variables, and those of Datadog and OpenTelemetry", patch: `
		{"op":"add","path":"/spec/containers/0/env/-","value":{"name":"HTTPS_PROXY","value":"http://proxy.example.com:3128"}},
		{"op":"add","path":"/spec/containers/0/env/-","value":{"name":"no_proxy","value":".svc"}},
		{"op":"add","path":"/spec/containers/0/env/-","value":{"name":"DD_AGENT_HOST","valueFrom":{"fieldRef":{"fieldPath":"status.hostIP"}}}},
		{"op":"add","path":"/spec/containers/0/env/-","value":{"name":"OTEL_SERVICE_NAME","value":"tailgate"}}`},
	{name: "DNS options, host aliases, another scheduler", patch: `
		{"op":"add","path":"/spec/dnsConfig","value":{"options":[{"name":"ndots","value":"1"}]}},
		{"op":"add","path":"/spec/hostAliases","value":[{"ip":"192.0.2.1","hostnames":["a"]}]},
		{"op":"replace","path":"/spec/schedulerName","value":"secondary"}`},
	{name: "Istio's sidecar", patch: `
		{"op":"add","path":"/spec/initContainers","value":[{"name":"istio-init","image":"docker.io/istio/proxyv2:1.27.0"}]},
		{"op":"add","path":"/spec/containers/-","value":{"name":"istio-proxy","image":"docker.io/istio/proxyv2:1.27.0"}}`,
		want: []string{"container istio-proxy: added docker.io/istio/proxyv2:1.27.0", "init container istio-init: added docker.io/istio/proxyv2:1.27.0"}},
	{name: "Istio's ambient mode", patch: `{"op":"add","path":"/metadata/annotations/ambient.istio.io~1redirection","value":"enabled"}`,
		want: []string{"annotation ambient.istio.io/redirection: added enabled"}},
	{name: "Kmesh", patch: `{"op":"add","path":"/metadata/annotations/kmesh.net~1redirection","value":"enabled"}`,
		want: []string{"annotation kmesh.net/redirection: added enabled"}},
	{name: "Linkerd's proxy", patch: `
		{"op":"add","path":"/spec/initContainers","value":[{"name":"linkerd-init","image":"cr.l5d.io/linkerd/proxy-init:v2.4.3"},
			{"name":"linkerd-proxy","image":"cr.l5d.io/linkerd/proxy:edge-26.8.1","restartPolicy":"Always"}]}`,
		want: []string{
			"init container linkerd-init: added cr.l5d.io/linkerd/proxy-init:v2.4.3",
			"init container linkerd-proxy: added cr.l5d.io/linkerd/proxy:edge-26.8.1",
		}},
	{name: "Vault's agent", patch: `
		{"op":"add","path":"/spec/containers/-","value":{"name":"vault-agent","image":"hashicorp/vault:1.20"}},
		{"op":"add","path":"/spec/containers/0/volumeMounts/-","value":{"name":"vault-secrets","mountPath":"/vault/secrets"}},
		{"op":"add","path":"/spec/volumes/-","value":{"name":"vault-secrets","emptyDir":{"medium":"Memory"}}}`,
		want: []string{"container vault-agent: added hashicorp/vault:1.20", "mount /vault/secrets: added vault-secrets"}},
	{name: "Datadog's library injection", patch: `
		{"op":"add","path":"/spec/containers/0/env/-","value":{"name":"LD_PRELOAD","value":"/opt/datadog-packages/launcher.preload.so"}},
		{"op":"add","path":"/spec/volumes/-","value":{"name":"datadog","hostPath":{"path":"/var/run/datadog"}}}`,
		want: []string{"env LD_PRELOAD: added", "volume datadog: added host path /var/run/datadog"}},
	{name: "tokens for a cloud's API (IRSA, workload identity)", patch: `
		{"op":"add","path":"/spec/containers/0/env/-","value":{"name":"AWS_ROLE_ARN","value":"arn:aws:iam::1:role/a"}},` + token,
		want: []string{"env AWS_ROLE_ARN: added", "volume token: added API token"}},
	{name: "other CPUs or memory (VerticalPodAutoscaler, ClusterResourceOverride)", patch: `
		{"op":"replace","path":"/spec/containers/0/resources/requests/cpu","value":"500m"},
		{"op":"replace","path":"/spec/containers/0/resources/requests/memory","value":"256Mi"}`,
		want: []string{"requests cpu: 500m instead of 2", "requests memory: 256Mi instead of 512Mi"}},
	{name: "bandwidth limits, and other settings of CRI-O", patch: `
		{"op":"add","path":"/metadata/annotations/kubernetes.io~1egress-bandwidth","value":"1G"},
		{"op":"add","path":"/metadata/annotations/cpu-quota.crio.io~1agent","value":"enable"},
		{"op":"remove","path":"/metadata/annotations/cpu-quota.crio.io"}`,
		want: []string{"annotation cpu-quota.crio.io/agent: added enable", "annotation cpu-quota.crio.io: removed disable", "annotation kubernetes.io/egress-bandwidth: added 1G"}},
	{name: "settings of containerd, NRI, CDI, RDT, Kata, and of agents of nodes (Koordinator, Crane, Katalyst)", patch: `
		{"op":"add","path":"/metadata/annotations/rdt.resources.beta.kubernetes.io~1pod","value":"bronze"},
		{"op":"add","path":"/metadata/annotations/io.kubernetes.cri-o.userns-mode","value":"auto"},
		{"op":"add","path":"/metadata/labels/koordinator.sh~1qosClass","value":"BE"}`,
		want: []string{"annotation io.kubernetes.cri-o.userns-mode: added auto", "annotation rdt.resources.beta.kubernetes.io/pod: added bronze", "label koordinator.sh/qosClass: added BE"}},
	{name: "certificates, probes and hooks of a policy", patch: `
		{"op":"add","path":"/spec/containers/0/volumeMounts/-","value":{"name":"ca","mountPath":"/etc/ssl/certs"}},
		{"op":"add","path":"/spec/volumes/-","value":{"name":"ca","configMap":{"name":"ca"}}},
		{"op":"add","path":"/spec/containers/0/lifecycle","value":{"preStop":{"sleep":{"seconds":5}}}}`,
		want: []string{"lifecycle: added", "mount /etc/ssl/certs: added ca"}},
	{name: "sysctls, user namespaces, other seccomp profiles", patch: `
		{"op":"add","path":"/spec/securityContext/sysctls","value":[{"name":"net.ipv4.tcp_fin_timeout","value":"1"}]},
		{"op":"add","path":"/spec/hostUsers","value":false},
		{"op":"add","path":"/spec/containers/0/securityContext/seccompProfile","value":{"type":"Unconfined"}}`,
		want: []string{
			"a user namespace: added", `pod securityContext sysctls: added [{"name":"net.ipv4.tcp_fin_timeout","value":"1"}]`,
			`securityContext seccompProfile: {"type":"Unconfined"} instead of {"type":"RuntimeDefault"}`,
		}},
}

// TestMutations applies the changes of admission webhooks and plugins to the pod as kube-apiserver returned it, and compares
// each verdict with its row in docs/internals/webhooks.md.
func TestMutations(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "internals", "webhooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, " | "); len(cells) == 4 && strings.HasPrefix(line, "| ") {
			documented[strings.ReplaceAll(strings.TrimPrefix(cells[0], "| "), "`", "")] = cells[2]
		}
	}
	policies := policy.Load(t, filepath.Join("..", "..", "config", "policy", "manager.yaml"))
	for _, m := range append(injectorMutations, mutations...) {
		t.Run(m.name, func(t *testing.T) {
			built, pod := returned(t)
			if m.image != "" {
				built.Spec.Containers[0].Image, pod.Spec.Containers[0].Image = m.image, m.image
			}
			changed := patched(t, pod, m.patch)
			if diff := cmp.Diff(m.want, Changed(built, changed)); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			changed.UID, changed.ResourceVersion, changed.Status = "", "", corev1.PodStatus{}
			changed.OwnerReferences[0].UID = "8d3f6a2e-0c1b-4c55-9f0e-0123456789ab" // as the API server makes it
			for _, e := range changed.Spec.Containers[0].Env {
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
					e.ValueFrom.SecretKeyRef.Name = "tailgate-8d3f6a2e-0c1b-4c55-9f0e-0123456789ab"
				}
			}
			request := policy.Request{User: policy.Manager, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Object: changed}
			if refusals := policies.Refusals(t, request); m.want == nil && refusals != nil {
				t.Errorf("the policy over the manager refuses the pod: %.500q", refusals)
			}
			verdict := "Proved"
			if m.want != nil {
				verdict = "Failed"
			}
			if documented[m.name] != verdict {
				t.Errorf("docs/internals/webhooks.md has %q, want %q", documented[m.name], verdict)
			}
			delete(documented, m.name)
		})
	}
	for name := range documented {
		if name != "webhook or plugin" {
			t.Errorf("docs/internals/webhooks.md has %q, which no test has", name)
		}
	}
}

func patched(t *testing.T, pod *corev1.Pod, operations string) *corev1.Pod {
	t.Helper()
	document, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch([]byte("[" + operations + "]"))
	if err != nil {
		t.Fatal(err)
	}
	if document, err = patch.Apply(document); err != nil {
		t.Fatal(err)
	}
	mutated := &corev1.Pod{}
	if err := json.Unmarshal(document, mutated); err != nil {
		t.Fatal(err)
	}
	return mutated
}
