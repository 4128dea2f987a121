package driven

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// informerOf names an informer: of whole objects, or of their metadata.
type informerOf struct {
	schema.GroupVersionKind
	metadata bool
}

// caches are the informers of a manager, with the options that the manager has for its cache. An informer starts when it is first
// asked for, and sees a change when the world delivers it.
type caches struct {
	store     *Store
	options   cache.Options
	indexes   map[schema.GroupVersionKind]map[string]client.IndexerFunc
	informers map[informerOf]*informer
	pending   []change
	// before is called before each read; its error is the answer.
	before func() error
}

func newCaches(store *Store, options cache.Options) *caches {
	return &caches{store: store, options: options, indexes: map[schema.GroupVersionKind]map[string]client.IndexerFunc{}, informers: map[informerOf]*informer{}}
}

// informer has what a manager's cache has of a kind.
type informer struct {
	cache.Informer // Methods that no test calls.
	of             informerOf
	selector       labels.Selector
	transforms     []toolscache.TransformFunc
	objects        map[types.NamespacedName]*stored
	handlers       []toolscache.ResourceEventHandler
}

var errUnused = errors.New("not supported by the driven world")

// deliver lets all informers see the oldest change that they have not seen, and reports whether there was one.
func (c *caches) deliver() bool {
	if len(c.pending) == 0 {
		return false
	}
	next := c.pending[0]
	c.pending = c.pending[1:]
	for _, metadata := range []bool{false, true} {
		if i := c.informers[informerOf{next.kind, metadata}]; i != nil {
			i.see(next.before, next.after)
		}
	}
	return true
}

func (i *informer) see(before, after *stored) {
	var key types.NamespacedName
	if after != nil {
		key = client.ObjectKeyFromObject(after)
		if i.selector != nil && !i.selector.Matches(labels.Set(after.GetLabels())) {
			after = nil
		}
	} else {
		key = client.ObjectKeyFromObject(before)
	}
	known := i.objects[key]
	if after == nil {
		if known != nil {
			delete(i.objects, key)
			for _, h := range i.handlers {
				h.OnDelete(known.copy())
			}
		}
		return
	}
	now := i.slim(after)
	i.objects[key] = now
	for _, h := range i.handlers {
		if known == nil {
			h.OnAdd(now.copy(), false)
		} else {
			h.OnUpdate(known.copy(), now.copy())
		}
	}
}

// slim returns an object as the cache keeps it.
func (i *informer) slim(o *stored) *stored {
	var kept client.Object
	if i.of.metadata {
		partial := &metav1.PartialObjectMetadata{}
		if err := give(o, i.of.GroupVersionKind, partial); err != nil {
			panic(err)
		}
		kept = partial
	} else {
		kept = o.copy()
	}
	for _, transform := range i.transforms {
		out, err := transform(kept)
		if err != nil {
			panic(err)
		}
		kept = out.(client.Object)
	}
	return &stored{kept, o.raw}
}

func (c *caches) of(o runtime.Object) (*informer, error) {
	kind, err := c.store.kindOf(o)
	if err != nil {
		return nil, err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	_, partial := o.(*metav1.PartialObjectMetadata)
	_, partials := o.(*metav1.PartialObjectMetadataList)
	name := informerOf{kind, partial || partials}
	if i := c.informers[name]; i != nil {
		return i, nil
	}
	i := &informer{of: name, objects: map[types.NamespacedName]*stored{}}
	transform := c.options.DefaultTransform
	for object, by := range c.options.ByObject {
		if k, err := c.store.kindOf(object); err == nil && k == kind {
			i.selector = by.Label
			if by.Transform != nil {
				transform = by.Transform
			}
		}
	}
	if transform != nil {
		i.transforms = append(i.transforms, transform)
	}
	c.store.mu.Lock()
	objects := sorted(c.store.objects[kind])
	c.store.mu.Unlock()
	c.informers[name] = i
	for _, o := range objects {
		i.see(nil, o)
	}
	return i, nil
}

// Get implements cache.Cache.
func (c *caches) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if err := c.before(); err != nil {
		return err
	}
	i, err := c.of(o)
	if err != nil {
		return err
	}
	if clusterScoped[i.of.Kind] {
		key.Namespace = ""
	}
	found := i.objects[key]
	if found == nil {
		return apierrors.NewNotFound(resourceOf(i.of.GroupVersionKind), key.Name)
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(found.copy()).Elem())
	o.GetObjectKind().SetGroupVersionKind(i.of.GroupVersionKind)
	return nil
}

// List implements cache.Cache.
func (c *caches) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.before(); err != nil {
		return err
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	i, err := c.of(list)
	if err != nil {
		return err
	}
	var items []runtime.Object
	for _, o := range sorted(i.objects) {
		fit, err := c.indexed(i, o, options.FieldSelector)
		if err != nil {
			return err
		}
		if !fit || !matches(o, options) {
			continue
		}
		if options.UnsafeDisableDeepCopy != nil && *options.UnsafeDisableDeepCopy {
			items = append(items, o.Object)
		} else {
			items = append(items, o.copy())
		}
	}
	return meta.SetList(list, items)
}

// indexed reports whether an object has the values of a selector in the indexes. Only an index can select in a cache.
func (c *caches) indexed(i *informer, o *stored, selector fields.Selector) (bool, error) {
	if selector == nil {
		return true, nil
	}
	for _, r := range selector.Requirements() {
		index := c.indexes[i.of.GroupVersionKind][r.Field]
		if index == nil {
			return false, fmt.Errorf("Index with name field:%s does not exist", r.Field) //nolint:staticcheck // The words of the cache.
		}
		if !slices.Contains(index(o.Object), r.Value) {
			return false, nil
		}
	}
	return true, nil
}

// IndexField implements client.FieldIndexer.
func (c *caches) IndexField(_ context.Context, o client.Object, field string, values client.IndexerFunc) error {
	kind, err := c.store.kindOf(o)
	if err != nil {
		return err
	}
	if c.indexes[kind] == nil {
		c.indexes[kind] = map[string]client.IndexerFunc{}
	}
	c.indexes[kind][field] = values
	return nil
}

// GetInformer implements cache.Cache.
func (c *caches) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return c.of(o)
}

// GetInformerForKind implements cache.Cache.
func (c *caches) GetInformerForKind(context.Context, schema.GroupVersionKind, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, errUnused
}

// RemoveInformer implements cache.Cache.
func (c *caches) RemoveInformer(context.Context, client.Object) error { return errUnused }

// Start implements cache.Cache.
func (c *caches) Start(context.Context) error { return errUnused }

// WaitForCacheSync implements cache.Cache.
func (c *caches) WaitForCacheSync(context.Context) bool { return true }

// AddEventHandler implements cache.Informer: the handler first sees the objects that there are.
func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	for _, o := range sorted(i.objects) {
		h.OnAdd(o.copy(), true)
	}
	i.handlers = append(i.handlers, h)
	return i, nil
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i *informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, _ time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i *informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// HasSynced implements cache.Informer.
func (i *informer) HasSynced() bool { return true }
