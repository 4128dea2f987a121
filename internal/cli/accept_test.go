package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// addVerification adds the LatencyVerification of gate upgrade and node-a, which failed.
func (s *apiServer) addVerification() *v1alpha1.LatencyVerification {
	v := &v1alpha1.LatencyVerification{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyVerification"},
		ObjectMeta: metav1.ObjectMeta{Name: "upgrade.node-a", UID: "v"},
		Spec:       v1alpha1.LatencyVerificationSpec{GateName: "upgrade", NodeName: "node-a"},
		Status: v1alpha1.LatencyVerificationStatus{
			State: v1alpha1.VerificationFailed,
			History: []v1alpha1.VerificationResult{{Benchmark: "upgrade-node-a-2"}, {
				Benchmark: "upgrade-node-a-1", ResultPin: v1alpha1.ResultPin{UID: "u1"}, Outcome: v1alpha1.VerdictFail, Reason: "Fail", Peer: "node-b",
				CompletionTime: metav1.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC),
			}},
			Identity: map[string]string{"Kernel": "6.1.0\x1b[31m", "BootID": "b"},
		},
	}
	s.verifications = map[string]*v1alpha1.LatencyVerification{v.Name: v}
	return v
}

func TestAccept(t *testing.T) {
	for name, args := range map[string][]string{
		"by gate and node": {"upgrade", "node-a"}, "by its name": {"upgrade.node-a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			s.addVerification()
			asked := v1alpha1.AcceptRequest{}
			s.operator = func(v *v1alpha1.LatencyVerification) {
				asked = *v.Spec.Accept
				v.Status.State = v1alpha1.VerificationVerified
				v.Status.Accepted = &v1alpha1.AcceptedResult{Benchmark: asked.Benchmark, By: v1alpha1.AcceptedByHand}
			}
			args := append(append([]string{"accept"}, args...), "upgrade-node-a-1", "--kubeconfig", s.serve(t))
			code, stdout, stderr := run(args...)
			want := "upgrade-node-a-1: Fail (Fail) with peer node-b, 2026-05-04T12:00:00Z, UID u1\nnode node-a: BootID=b, Kernel=6.1.0\uFFFD[31m\n" +
				"upgrade-node-a-1 accepted: node node-a is Verified\n"
			if code != 0 || stdout != want || asked.Benchmark != "upgrade-node-a-1" || asked.UID != "u1" || asked.RequestedBy != user || asked.RequestTime == "" {
				t.Fatalf("exit code %d, %q, it said %q; asked for %+v", code, stdout, stderr, asked)
			}
			writes := len(s.written)
			if code, stdout, _ := run(args...); code != 0 || !strings.Contains(stdout, "already") || len(s.written) != writes {
				t.Errorf("again: exit code %d, %q, %q", code, stdout, s.written)
			}
		})
	}
}

func TestVerify(t *testing.T) {
	s := newCluster(t)
	s.addVerification()
	s.operator = func(v *v1alpha1.LatencyVerification) {
		if v.Spec.Verify != nil && v.Spec.Verify.RequestedBy == user {
			v.Status.State, v.Status.Conditions = v1alpha1.VerificationUnverified, []metav1.Condition{{Type: v1alpha1.ConditionVerified, Message: "a user requested it"}}
		}
	}
	code, stdout, stderr := run("verify", "upgrade", "node-a", "--kubeconfig", s.serve(t))
	if code != 0 || stdout != "node node-a is Unverified and will be measured: a user requested it\n" {
		t.Errorf("exit code %d, %q, it said %q", code, stdout, stderr)
	}
}

func TestAcceptRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		change func(*apiServer)
		want   []string
		wrote  bool
	}{
		"a result that there is not": {args: []string{"accept", "upgrade", "node-a", "upgrade-node-a-9"}, want: []string{"no result upgrade-node-a-9", "upgrade-node-a-2, upgrade-node-a-1"}},
		"a node that there is not":   {args: []string{"accept", "upgrade", "node-x", "b"}, want: []string{"no LatencyVerification upgrade.node-x", "kubectl get latencyverifications.tailgate.dev"}},
		"no name":                    {args: []string{"verify", ""}, want: []string{"is not a name of a LatencyVerification"}},
		"no time":                    {args: []string{"verify", "upgrade", "node-a", "--timeout=0s"}, want: []string{"--timeout"}},
		"no answer":                  {args: []string{"verify", "upgrade", "node-a", "--timeout=300ms"}, want: []string{"has not answered within 300ms", `kubectl patch latencyverifications.tailgate.dev upgrade.node-a --type=merge -p '{"spec":{"verify":null}}'`}, wrote: true},
		"a request that the operator refuses": {
			args: []string{"accept", "upgrade", "node-a", "upgrade-node-a-1"},
			change: func(s *apiServer) {
				s.operator = func(v *v1alpha1.LatencyVerification) {
					v.Status.AcceptRefused = &v1alpha1.AcceptRefusal{Benchmark: "upgrade-node-a-1", Message: "the node has changed"}
				}
			},
			want: []string{"refused it: the node has changed"}, wrote: true,
		},
		"a node that changed since the operator accepted its result": {
			args: []string{"accept", "upgrade", "node-a", "upgrade-node-a-1"},
			change: func(s *apiServer) {
				s.operator = func(v *v1alpha1.LatencyVerification) {
					v.Status.AcceptRefused = &v1alpha1.AcceptRefusal{Benchmark: "upgrade-node-a-2", Message: "an older refusal"}
					v.Status.State, v.Status.Conditions = v1alpha1.VerificationUnverified, []metav1.Condition{{Type: v1alpha1.ConditionVerified, Message: "its kernel changed"}}
				}
			},
			want: []string{"no longer accepted: node node-a is Unverified: its kernel changed"}, wrote: true,
		},
		"a user whose name cannot be read": {
			args: []string{"verify", "upgrade", "node-a"}, change: func(s *apiServer) { s.forbidden = []string{"selfsubjectreviews"} },
			want: []string{"reading the name of the user, for spec.verify.requestedBy", "forbidden"}, wrote: true,
		},
		"a user without the right": {
			args: []string{"verify", "upgrade", "node-a"}, change: func(s *apiServer) { s.forbidden = []string{"PATCH "} },
			want: []string{"patching LatencyVerification upgrade.node-a", "forbidden"}, wrote: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			s.addVerification()
			if c.change != nil {
				c.change(s)
			}
			args := slices.Concat(c.args, []string{"--kubeconfig", s.serve(t)})
			if args[0] == "accept" && c.wrote { // It has shown the result.
				code, _, stderr := run(args...)
				if code != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, c.want[0]) {
					t.Errorf("exit code %d, it said %q", code, stderr)
				}
			} else {
				refused(t, args, 1, c.want)
			}
			if (len(s.written) > 0) != c.wrote {
				t.Errorf("it wrote %q", s.written)
			}
		})
	}
}

// addRack adds the nodes of gate upgrade in rack r7, in each state, and one in another rack.
func (s *apiServer) addRack() {
	s.gates = map[string]*v1alpha1.LatencyGate{"upgrade": makeGate(metav1.ConditionFalse, v1alpha1.ReasonNodesFailed, "1 of 4 nodes failed")}
	s.verifications = map[string]*v1alpha1.LatencyVerification{}
	for i, state := range []v1alpha1.VerificationState{v1alpha1.VerificationFailed, v1alpha1.VerificationInconclusive, v1alpha1.VerificationVerified, v1alpha1.VerificationFailed} {
		v, rack := s.verification(string(rune('a'+i)), state), "r7"
		if i == 3 {
			rack = "r8"
		}
		s.nodes = append(s.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: v.Spec.NodeName, Labels: map[string]string{"rack": rack}}})
		s.verifications[v.Name] = v
	}
}

// verification returns that of a node of gate upgrade whose last result has its name and number 2.
func (s *apiServer) verification(node string, state v1alpha1.VerificationState) *v1alpha1.LatencyVerification {
	return &v1alpha1.LatencyVerification{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyVerification"},
		ObjectMeta: metav1.ObjectMeta{Name: "upgrade." + node, UID: types.UID(node), Annotations: map[string]string{}},
		Spec:       v1alpha1.LatencyVerificationSpec{GateName: "upgrade", NodeName: node},
		Status: v1alpha1.LatencyVerificationStatus{State: state, History: []v1alpha1.VerificationResult{
			{Benchmark: "upgrade-" + node + "-2", Outcome: v1alpha1.VerdictFail, P50: "12.30µs", P99: "15.00µs", Ratio: "1.04", Peer: "z", CompletionTime: metav1.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)},
			{Benchmark: "upgrade-" + node + "-1"},
		}},
	}
}

// With a selector, one command asks for all nodes that it selects, and for no other.
func TestSelected(t *testing.T) {
	for verb, want := range map[string]string{
		"accept": "upgrade-a-2: Fail () with peer z, 2026-05-04T12:00:00Z, UID \nnode a: none\nupgrade-a-2 accepted: node a is Verified\n" +
			"upgrade-b-2: Fail () with peer z, 2026-05-04T12:00:00Z, UID \nnode b: none\nupgrade-b-2 accepted: node b is Verified\n" +
			"node c is Verified: nothing to accept\n",
		"verify": "node a is Unverified and will be measured: \nnode b is Unverified and will be measured: \nnode c is Unverified and will be measured: \n",
	} {
		t.Run(verb, func(t *testing.T) {
			s := newCluster(t)
			s.addRack()
			s.operator = func(v *v1alpha1.LatencyVerification) {
				v.Status.State = v1alpha1.VerificationUnverified
				if asked := v.Spec.Accept; asked != nil {
					v.Status.State, v.Status.Accepted = v1alpha1.VerificationVerified, &v1alpha1.AcceptedResult{Benchmark: asked.Benchmark, By: v1alpha1.AcceptedByHand}
				}
			}
			code, stdout, stderr := run(verb, "upgrade", "-l", "rack=r7", "--kubeconfig", s.serve(t))
			if lines := slices.Sorted(strings.Lines(stdout)); code != 0 || strings.Join(lines, "") != strings.Join(slices.Sorted(strings.Lines(want)), "") {
				t.Errorf("exit code %d, it printed %q and said %q", code, stdout, stderr)
			}
			if s.verifications["upgrade.d"].Status.State != v1alpha1.VerificationFailed {
				t.Error("it asked for a node that the selector does not select")
			}
		})
	}
}

func TestSelectedRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"no node":               {[]string{"verify", "upgrade", "-l", "rack=r9"}, []string{"no node of LatencyGate upgrade has rack=r9"}},
		"no selector":           {[]string{"verify", "upgrade", "-l", "rack=="}, []string{"no node of LatencyGate upgrade has rack="}},
		"an invalid selector":   {[]string{"verify", "upgrade", "-l", "rack in"}, []string{"--selector:"}},
		"a gate that is gone":   {[]string{"accept", "other", "-l", "rack=r7"}, []string{"there is no LatencyGate other"}},
		"a kind with the gate":  {[]string{"verify", "lgate/upgrade", "-l", "rack=r7"}, []string{"getting LatencyGate lgate/upgrade: invalid resource name"}},
		"a node in addition":    {[]string{"accept", "upgrade", "node-a", "-l", "rack=r7"}, []string{"only a gate with --selector"}},
		"no time":               {[]string{"accept", "upgrade", "-l", "rack=r7", "--timeout=0s"}, []string{"--timeout"}},
		"no operator, and once": {[]string{"verify", "upgrade", "-l", "rack=r7", "--timeout=300ms"}, []string{"has not answered within 300ms"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			s.addRack()
			refused(t, append(c.args, "--kubeconfig", s.serve(t)), 1, c.want)
			if len(slices.DeleteFunc(s.written, func(w string) bool { return strings.Contains(w, "selfsubjectreviews") })) > 1 {
				t.Errorf("it wrote %q", s.written)
			}
		})
	}
}

func TestGetOfALatencyGate(t *testing.T) {
	s := newCluster(t)
	s.addRack()
	s.verifications["upgrade.c"].Status.History[0].Ratio = "1.20"
	s.verifications["upgrade.d"].Status = v1alpha1.LatencyVerificationStatus{}
	kubeconfig := s.serve(t)
	const want = "NODE  STATE         P50      P99      RATIO  OUTCOME  MEASURED              PEER\n" +
		"c     Verified      12.30µs  15.00µs  1.20   Fail     2026-05-04T12:00:00Z  z\n" +
		"a     Failed        12.30µs  15.00µs  1.04   Fail     2026-05-04T12:00:00Z  z\n" +
		"b     Inconclusive  12.30µs  15.00µs  1.04   Fail     2026-05-04T12:00:00Z  z\n" +
		"d     Unverified    -        -        -      -        -                     -\n"
	if code, stdout, stderr := run("get", "lgate/upgrade", "--kubeconfig", kubeconfig); code != 0 || stdout != want {
		t.Errorf("exit code %d, it said %q and printed\n%s", code, stderr, stdout)
	}
	if code, stdout, stderr := run("get", "lgate/upgrade", "-o", "json", "--kubeconfig", kubeconfig); code != 0 || !strings.Contains(stdout, `"ratio": "1.20"`) {
		t.Errorf("exit code %d, it said %q and printed %s", code, stderr, stdout)
	}
	refused(t, []string{"get", "lgate/upgrade", "-o", "sfnt", "--kubeconfig", kubeconfig}, 1, []string{"--output", "table, json"})
	refused(t, []string{"get", "lgate/other", "--kubeconfig", kubeconfig}, 1, []string{"there is no LatencyGate other"})
}
