package cli

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// addVerification adds the LatencyVerification of gate upgrade and node-a, which failed.
func (s *apiServer) addVerification() *v1alpha1.LatencyVerification {
	v := &v1alpha1.LatencyVerification{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LatencyVerification"},
		ObjectMeta: metav1.ObjectMeta{Name: "upgrade.node-a", UID: "v"},
		Spec:       v1alpha1.LatencyVerificationSpec{GateName: "upgrade", NodeName: "node-a"},
		Status: v1alpha1.LatencyVerificationStatus{
			State:   v1alpha1.VerificationFailed,
			History: []v1alpha1.VerificationResult{{Benchmark: "upgrade-node-a-2"}, {Benchmark: "upgrade-node-a-1"}},
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
			asked := ""
			s.operator = func(v *v1alpha1.LatencyVerification) {
				asked = v.Annotations[v1alpha1.AnnotationAccept]
				v.Status.State = v1alpha1.VerificationVerified
				v.Status.Accepted = &v1alpha1.AcceptedResult{Benchmark: asked, By: v1alpha1.AcceptedByHand}
			}
			args := append(append([]string{"accept"}, args...), "upgrade-node-a-1", "--kubeconfig", s.serve(t))
			code, stdout, stderr := run(args...)
			if code != 0 || stdout != "upgrade-node-a-1 accepted: node node-a is Verified\n" || asked != "upgrade-node-a-1" {
				t.Fatalf("exit code %d, %q, it said %q; asked for %q", code, stdout, stderr, asked)
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
		if _, asked := v.Annotations[v1alpha1.AnnotationVerify]; asked {
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
		"no answer":                  {args: []string{"verify", "upgrade", "node-a", "--timeout=300ms"}, want: []string{"has not answered within 300ms", "tailgate.dev/verify-"}, wrote: true},
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
		"a user without the right": {
			args: []string{"verify", "upgrade", "node-a"}, change: func(s *apiServer) { s.forbidden = []string{"PATCH "} },
			want: []string{"annotating LatencyVerification upgrade.node-a", "forbidden"}, wrote: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			s.addVerification()
			if c.change != nil {
				c.change(s)
			}
			refused(t, append(c.args, "--kubeconfig", s.serve(t)), 1, c.want)
			if (len(s.written) > 0) != c.wrote {
				t.Errorf("it wrote %q", s.written)
			}
		})
	}
}
