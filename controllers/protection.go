package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/protection"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=list

// Protection watches whether the admission policies of config/policy are installed and recognize
// this manager: without them, an installation works, so that nothing else would show it.
type Protection struct {
	Live client.Reader
	// Client asks for the manager's own rights, which every user may.
	Client client.Writer
	// Changed gets an event of no object when Problem changes.
	Changed chan event.TypedGenericEvent[client.Object]

	mu       sync.Mutex
	problem  string
	answered bool
}

const protectionPeriod, protectionPatience = 10 * time.Minute, 20 * time.Second

// NewProtection checks once, so that the first reconciles know the answer.
func NewProtection(ctx context.Context, live client.Reader, writer client.Writer) *Protection {
	p := &Protection{Live: live, Client: writer, Changed: make(chan event.TypedGenericEvent[client.Object], 1)}
	p.check(ctx)
	return p
}

func (p *Protection) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, protectionPeriod, false, func(ctx context.Context) (bool, error) {
		p.check(ctx)
		return false, nil
	}) // It ends only with the context.
	return nil
}

// NeedLeaderElection returns false: every manager exports the answer.
func (p *Protection) NeedLeaderElection() bool { return false }

// Problem returns what is missing; empty: nothing, and also if p is nil.
func (p *Protection) Problem() string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problem
}

func (p *Protection) check(ctx context.Context) {
	own, cancel := context.WithTimeout(ctx, protectionPatience)
	defer cancel()
	problem, err := p.look(own)
	logger := log.Log.WithName("protection")
	p.mu.Lock()
	if err != nil {
		problem = p.problem
		// No answer now says nothing about the policies, but one must have come once.
		if !p.answered || apierrors.IsForbidden(err) {
			problem = "the manager cannot check its admission policies: " + err.Error()
		}
		logger.V(1).Info("the check of the admission policies failed", "error", err.Error())
	}
	p.answered = p.answered || err == nil
	same := problem == p.problem
	p.problem = problem
	p.mu.Unlock()
	if same {
		return
	}
	if problem == "" {
		logger.Info("all admission policies are installed")
	} else {
		logger.Info("not all admission policies protect the cluster", "problem", problem)
	}
	select {
	case p.Changed <- event.TypedGenericEvent[client.Object]{Object: &v1alpha1.LatencyGate{}}:
	default:
	}
}

func (p *Protection) look(ctx context.Context) (string, error) {
	var policies admissionregistrationv1.ValidatingAdmissionPolicyList
	if err := p.Live.List(ctx, &policies, client.HasLabels{protection.Label}); err != nil {
		return "", err
	}
	var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	if err := p.Live.List(ctx, &bindings); err != nil {
		return "", err
	}
	if missing := protection.Missing(policies.Items, bindings.Items); missing != "" {
		return "admission policies of config/policy do not protect the cluster: " + missing + "; install Tailgate whole", nil
	}
	for _, verb := range []string{"act", "exempt"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: v1alpha1.GroupVersion.Group, Resource: "managers", Verb: verb},
		}}
		if err := p.Client.Create(ctx, review); err != nil {
			return "", err
		}
		if review.Status.Allowed != (verb == "act") {
			return fmt.Sprintf("the admission policies do not apply to this manager, because its right %s on managers.%s is %t: bind its service account to "+
				"ClusterRole tailgate-manager-identity, and to no role with all rights", verb, v1alpha1.GroupVersion.Group, review.Status.Allowed), nil
		}
	}
	return "", nil
}
