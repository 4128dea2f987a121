package controllers

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// The log has one line for each action, when it is done: what is created and deleted, the marks that are written to a Node, each change of
// a node's state, and each event. What is only observed, waited for or tried again is not in it.

// With returns a context whose log lines have these keys and values, too.
func With(ctx context.Context, keysAndValues ...any) context.Context {
	return log.IntoContext(ctx, log.FromContext(ctx).WithValues(keysAndValues...))
}

func Logged(c client.Client) client.Client { return logged{c} }

type logged struct{ client.Client }

func (l logged) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	err := l.Client.Create(ctx, o, opts...)
	if err == nil {
		log.FromContext(ctx).Info("created", keysOf(o)...)
	}
	return err
}

func (l logged) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	err := l.Client.Delete(ctx, o, opts...)
	if err == nil {
		log.FromContext(ctx).Info("deleted", keysOf(o)...)
	}
	return err
}

// keysOf returns the kind and the name of an object, and the run and the attempt that it is for.
func keysOf(o client.Object) []any {
	keys := []any{"kind", kindOf(o), "object", strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/")}
	for _, label := range [][2]string{{"run", v1alpha1.LabelRun}, {"attempt", v1alpha1.LabelAttempt}, {"role", v1alpha1.LabelRole}} {
		if value := o.GetLabels()[label[1]]; value != "" {
			keys = append(keys, label[0], value)
		}
	}
	return keys
}

// Tell sends events about an object, and logs them.
func (a API) Tell(ctx context.Context, about runtime.Object, notices ...Notice) {
	for _, n := range notices {
		log.FromContext(ctx).Info("event", "type", n.Type, "reason", n.Reason, "action", n.Action, "message", n.Message)
	}
	a.Send(about, notices...)
}
