package driven

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrDead is the answer to the requests of a manager that has died.
var ErrDead = errors.New("this manager is dead")

// ErrOutage is the answer to the requests of managers during an outage of the API server.
var ErrOutage = errors.New("the API server does not answer")

// Write is a write of a manager.
type Write struct {
	// N counts the writes of a world from 1, those of all its managers.
	N int
	// Verb is "create", "update", "patch", "delete" or "status", and Controller the name of the controller that writes.
	Verb, Controller string
	Object           client.Object
}

// Is reports whether a write has one of these verbs, and an object of the type O.
func Is[O client.Object](w Write, verbs ...string) (O, bool) {
	o, ok := w.Object.(O)
	return o, ok && slices.Contains(verbs, w.Verb)
}

// Effect is what a Fault does to a write.
type Effect int

// The effects. Those that answer with an error differ in whether the write was done.
const (
	Nothing Effect = iota
	// Conflict answers that another client was faster, Refusal that the write is forbidden.
	Conflict
	Refusal
	// Lost is a time-out of a write that is not done, and Unheard one of a write that is.
	Lost
	Unheard
	// DieBefore ends the manager instead of the write, and DieAfter when the write is done.
	DieBefore
	DieAfter
)

func (e Effect) String() string {
	return []string{"Nothing", "Conflict", "Refusal", "Lost", "Unheard", "DieBefore", "DieAfter"}[e]
}

// Effects are all effects of faults.
var Effects = []Effect{Conflict, Refusal, Lost, Unheard, DieBefore, DieAfter}

// Fault chooses what happens to a write.
type Fault func(Write) Effect

// storeClient is a client of a store, of a field manager.
type storeClient struct {
	reader
	store   *Store
	manager string
	// around is called with each write, which do carries out.
	around func(verb string, o client.Object, do func() error) error
}

// reader reads from a store, past all caches.
type reader struct {
	store *Store
	// before is called before each read; its error is the answer.
	before func(verb string, kind runtime.Object) error
}

func (r reader) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if err := r.before("get", o); err != nil {
		return err
	}
	return r.store.Get(ctx, key, o)
}

func (r reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := r.before("list", list); err != nil {
		return err
	}
	return r.store.List(ctx, list, opts...)
}

// Client returns a client of the store for a field manager, without a cache.
func (s *Store) Client(manager string) client.Client {
	return &storeClient{
		reader: reader{s, func(string, runtime.Object) error { return nil }}, store: s, manager: manager,
		around: func(_ string, _ client.Object, do func() error) error { return do() },
	}
}

func (c *storeClient) how(dry []string, owner string) writing {
	w := writing{dry: dryRun(dry), manager: c.manager}
	if owner != "" {
		w.manager = owner
	}
	return w
}

func (c *storeClient) Create(_ context.Context, o client.Object, opts ...client.CreateOption) error {
	options := (&client.CreateOptions{}).ApplyOptions(opts)
	return c.around("create", o, func() error { return c.store.create(o, c.how(options.DryRun, options.FieldManager)) })
}

func (c *storeClient) Update(_ context.Context, o client.Object, opts ...client.UpdateOption) error {
	options := (&client.UpdateOptions{}).ApplyOptions(opts)
	return c.around("update", o, func() error { return c.store.update(o, "update", c.how(options.DryRun, options.FieldManager)) })
}

func (c *storeClient) Patch(_ context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	options := (&client.PatchOptions{}).ApplyOptions(opts)
	return c.around("patch", o, func() error { return c.store.patch(o, p, "patch", c.how(options.DryRun, options.FieldManager)) })
}

func (c *storeClient) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	return c.around("delete", o, func() error { return c.store.remove(o, options) })
}

func (c *storeClient) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	options := (&client.DeleteAllOfOptions{}).ApplyOptions(opts)
	kind, err := c.store.kindOf(o)
	if err != nil {
		return err
	}
	kind.Kind += "List"
	made, err := c.store.scheme.New(kind)
	if err != nil {
		return err
	}
	list := made.(client.ObjectList)
	if err := c.store.List(ctx, list, &options.ListOptions); err != nil {
		return err
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		return client.IgnoreNotFound(c.Delete(ctx, item.(client.Object), &options.DeleteOptions))
	})
}

func (c *storeClient) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return errors.New("server-side apply is not supported")
}

func (c *storeClient) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c *storeClient) SubResource(name string) client.SubResourceClient { return &subresource{c, name} }

func (c *storeClient) Scheme() *runtime.Scheme { return c.store.scheme }

func (c *storeClient) RESTMapper() meta.RESTMapper { return c.store.mapper() }

func (c *storeClient) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return c.store.kindOf(o)
}

func (c *storeClient) IsObjectNamespaced(o runtime.Object) (bool, error) {
	kind, err := c.store.kindOf(o)
	return !clusterScoped[kind.Kind], err
}

// mapper returns the mapper of the kinds of the scheme.
func (s *Store) mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(s.scheme.PrioritizedVersionsAllGroups())
	for kind := range s.scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if clusterScoped[kind.Kind] {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	return mapper
}

type subresource struct {
	c    *storeClient
	name string
}

func (s *subresource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return fmt.Errorf("reading %s is not supported", s.name)
}

func (s *subresource) Create(_ context.Context, o, sub client.Object, _ ...client.SubResourceCreateOption) error {
	return s.c.around("create", o, func() error {
		switch sub := sub.(type) {
		case *corev1.Binding:
			return s.c.store.bind(o, sub.Target.Name)
		case *policyv1.Eviction:
			options := &client.DeleteOptions{}
			if sub.DeleteOptions != nil {
				options.GracePeriodSeconds = sub.DeleteOptions.GracePeriodSeconds
			}
			return s.c.store.evict(o, options)
		}
		return fmt.Errorf("creating %s is not supported", s.name)
	})
}

func (s *subresource) Update(_ context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	options := &client.SubResourceUpdateOptions{}
	options.ApplyOptions(opts)
	if s.name != "status" {
		return fmt.Errorf("updating %s is not supported", s.name)
	}
	return s.c.around("status", o, func() error { return s.c.store.update(o, "status", s.c.how(options.DryRun, options.FieldManager)) })
}

func (s *subresource) Patch(_ context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	options := &client.SubResourcePatchOptions{}
	options.ApplyOptions(opts)
	if s.name != "status" {
		return fmt.Errorf("patching %s is not supported", s.name)
	}
	return s.c.around("status", o, func() error { return s.c.store.patch(o, p, "status", s.c.how(options.DryRun, options.FieldManager)) })
}

func (s *subresource) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return errors.New("server-side apply is not supported")
}

// failed returns the answer to a write with an effect, and whether it is done nevertheless.
func failed(e Effect, o client.Object) (answer error, done bool) {
	resource := schema.GroupResource{Resource: fmt.Sprintf("%T", o)}
	switch e {
	case Nothing:
		return nil, true
	case Conflict:
		return apierrors.NewConflict(resource, o.GetName(), errors.New("injected: the object has been modified")), false
	case Refusal:
		return apierrors.NewForbidden(resource, o.GetName(), errors.New("injected: not allowed")), false
	case Lost:
		return apierrors.NewServerTimeout(resource, "write", 1), false
	case Unheard:
		return apierrors.NewServerTimeout(resource, "write", 1), true
	case DieBefore:
		return ErrDead, false
	}
	return ErrDead, true
}
