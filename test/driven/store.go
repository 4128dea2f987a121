package driven

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/admit"
)

// stored is one version of an object. It is never changed.
type stored struct {
	client.Object
	// raw are its fields as the API server would send them.
	raw map[string]any
}

func (s *stored) copy() client.Object { return s.DeepCopyObject().(client.Object) }

// change is the creation (before is nil), the deletion (after is nil), or an update of an object.
type change struct {
	kind          schema.GroupVersionKind
	before, after *stored
}

// Request is a write, before it is carried out.
type Request struct {
	// Verb is "create", "update", "patch", "delete", or "status".
	Verb string
	// Object is what would be stored, with the old status or the old rest, or what is to be deleted.
	Object client.Object
	// Old is what is stored; nil for a creation.
	Old client.Object
}

// Admission refuses a request, or changes its object.
type Admission func(Request) error

// Store has the objects of a cluster. See the comment of the package for what it has in common with an API server.
type Store struct {
	scheme *runtime.Scheme
	clock  clock.PassiveClock

	mu        sync.Mutex
	version   int64
	objects   map[schema.GroupVersionKind]map[types.NamespacedName]*stored
	installed map[schema.GroupVersionKind]bool
	admission []*Admission
	watchers  []func(change)
	// orphans are owners that do not exist, of objects that may have no other one.
	orphans map[types.UID]bool
}

// NewStore returns an empty store.
func NewStore(scheme *runtime.Scheme, clock clock.PassiveClock) *Store {
	return &Store{
		scheme: scheme, clock: clock, objects: map[schema.GroupVersionKind]map[types.NamespacedName]*stored{},
		installed: map[schema.GroupVersionKind]bool{}, orphans: map[types.UID]bool{},
	}
}

// Install makes the store know kinds that the scheme does not have.
func (s *Store) Install(kinds ...schema.GroupVersionKind) {
	for _, kind := range kinds {
		s.installed[kind] = true
	}
}

// Admit asks an admission about all requests until end is called.
func (s *Store) Admit(a Admission) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admission = append(s.admission, &a)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.admission = slices.DeleteFunc(s.admission, func(other *Admission) bool { return other == &a })
	}
}

// watch calls see with each change, in their order.
func (s *Store) watch(see func(change)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers, see)
}

// clusterScoped are the kinds without a namespace.
var clusterScoped = map[string]bool{
	"Node": true, "Namespace": true, "LatencyGate": true, "LatencyVerification": true, "PriorityClass": true, "RuntimeClass": true,
	"DeviceClass": true, "ResourceSlice": true, "ClusterRole": true,
}

// withStatus are the kinds whose status is a resource of its own.
var withStatus = map[string]bool{
	"Node": true, "Pod": true, "PodDisruptionBudget": true, "LatencyGate": true, "LatencyVerification": true, "LatencyBenchmark": true,
	"LatencyMatrix": true,
}

// selectable are the fields, besides name and namespace, by which an API server selects objects of a kind.
var selectable = map[string][]string{
	"LatencyBenchmark":    {"status.completionTime"},
	"LatencyVerification": {"spec.gateName", "spec.nodeName", "status.state"},
	"Pod":                 {"spec.nodeName", "status.phase"},
	"Event":               {"involvedObject.uid", "involvedObject.name", "involvedObject.kind", "reason", "type"},
	"ResourceSlice":       {"spec.nodeName", "spec.driver"},
	"Node":                {"spec.unschedulable"},
}

func ours(kind schema.GroupVersionKind) bool { return kind.Group == v1alpha1.GroupVersion.Group }

func resourceOf(kind schema.GroupVersionKind) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.GroupResource()
}

func (s *Store) kindOf(o runtime.Object) (schema.GroupVersionKind, error) {
	kind, err := apiutil.GVKForObject(o, s.scheme)
	if err != nil {
		return kind, err
	}
	if !s.scheme.Recognizes(kind) && !s.installed[kind] {
		item := kind
		item.Kind = strings.TrimSuffix(kind.Kind, "List")
		if !s.installed[item] {
			return kind, &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
		}
	}
	return kind, nil
}

// sent returns an object as it looks after it was sent and, with check, admitted by the definition of its kind: times have seconds, and
// empty fields are absent.
func (s *Store) sent(o client.Object, kind schema.GroupVersionKind, check bool) (*stored, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	raw["apiVersion"], raw["kind"] = kind.GroupVersion().String(), kind.Kind
	if check && ours(kind) {
		u := &unstructured.Unstructured{Object: raw}
		if err := admit.Known(context.Background(), u); err != nil {
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid,
				Message: fmt.Sprintf("%s %q is invalid: %v", kind.GroupKind(), o.GetName(), err),
			}}
		}
		raw = u.Object
	}
	return s.typed(raw, kind)
}

// stamp changes the metadata of an object that is not stored yet.
func (s *stored) stamp(change func(client.Object)) error {
	change(s.Object)
	metadata, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&metav1.PartialObjectMetadata{ObjectMeta: *metadataOf(s.Object)})
	if err != nil {
		return err
	}
	s.raw["metadata"] = metadata["metadata"]
	return nil
}

func metadataOf(o client.Object) *metav1.ObjectMeta {
	if u, ok := o.(*unstructured.Unstructured); ok {
		partial := &metav1.PartialObjectMetadata{}
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"metadata": u.Object["metadata"]}, partial) // It was read before.
		return &partial.ObjectMeta
	}
	return reflect.ValueOf(o).Elem().FieldByName("ObjectMeta").Addr().Interface().(*metav1.ObjectMeta)
}

func (s *Store) typed(raw map[string]any, kind schema.GroupVersionKind) (*stored, error) {
	if !s.scheme.Recognizes(kind) {
		return &stored{&unstructured.Unstructured{Object: raw}, raw}, nil
	}
	made, err := s.scheme.New(kind)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, made); err != nil {
		return nil, err
	}
	made.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return &stored{made.(client.Object), raw}, nil
}

// give writes an object into the variable of a caller.
func give(from *stored, kind schema.GroupVersionKind, into client.Object) error {
	switch into := into.(type) {
	case *unstructured.Unstructured:
		into.Object = runtime.DeepCopyJSON(from.raw)
	case *metav1.PartialObjectMetadata:
		into.SetGroupVersionKind(kind)
		return runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"metadata": runtime.DeepCopyJSON(from.raw)["metadata"]}, into)
	default:
		copied := reflect.ValueOf(from.copy())
		if copied.Type() != reflect.TypeOf(into) {
			return fmt.Errorf("a %T is stored, not a %T", from.Object, into)
		}
		reflect.ValueOf(into).Elem().Set(copied.Elem())
	}
	return nil
}

// Get reads an object.
func (s *Store) Get(_ context.Context, key types.NamespacedName, into client.Object) error {
	kind, err := s.kindOf(into)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if clusterScoped[kind.Kind] {
		key.Namespace = ""
	}
	found := s.objects[kind][key]
	if found == nil {
		return apierrors.NewNotFound(resourceOf(kind), key.Name)
	}
	return give(found, kind, into)
}

// List lists objects, by their names. A limit has no effect.
func (s *Store) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	kind, err := s.kindOf(list)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := fieldsKnown(options.FieldSelector, kind); err != nil {
		return err
	}
	var items []runtime.Object
	for _, o := range sorted(s.objects[kind]) {
		if !matches(o, options) || options.FieldSelector != nil && !options.FieldSelector.Matches(fieldsOf{o.raw}) {
			continue
		}
		switch list.(type) {
		case *unstructured.UnstructuredList:
			items = append(items, &unstructured.Unstructured{Object: runtime.DeepCopyJSON(o.raw)})
		case *metav1.PartialObjectMetadataList:
			partial := &metav1.PartialObjectMetadata{}
			if err := give(o, kind, partial); err != nil {
				return err
			}
			items = append(items, partial)
		default:
			items = append(items, o.copy())
		}
	}
	list.SetResourceVersion(strconv.FormatInt(s.version, 10))
	return meta.SetList(list, items)
}

func sorted(objects map[types.NamespacedName]*stored) []*stored {
	return slices.SortedFunc(maps.Values(objects), func(a, b *stored) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

func matches(o client.Object, options *client.ListOptions) bool {
	return (options.Namespace == "" || o.GetNamespace() == options.Namespace) &&
		(options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(o.GetLabels())))
}

func fieldsKnown(selector fields.Selector, kind schema.GroupVersionKind) error {
	if selector == nil {
		return nil
	}
	for _, r := range selector.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" && !slices.Contains(selectable[kind.Kind], r.Field) {
			return apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", r.Field))
		}
	}
	return nil
}

// fieldsOf are the fields of an object for a selector.
type fieldsOf struct{ raw map[string]any }

func (f fieldsOf) Has(string) bool { return true }

func (f fieldsOf) Get(path string) string {
	value, found, err := unstructured.NestedFieldNoCopy(f.raw, strings.Split(path, ".")...)
	if !found || err != nil {
		return ""
	}
	return fmt.Sprint(value)
}

// writing are the options that writes have in common.
type writing struct {
	dry     bool
	manager string
}

func dryRun(all []string) bool { return slices.Contains(all, metav1.DryRunAll) }

// admitted asks all admissions, and returns the object as they leave it.
func (s *Store) admitted(r Request, o *stored, kind schema.GroupVersionKind) (*stored, error) {
	if len(s.admission) == 0 {
		return o, nil
	}
	for _, a := range slices.Clone(s.admission) {
		if err := (*a)(r); err != nil {
			return nil, err
		}
	}
	return s.sent(r.Object, kind, false)
}

// create stores a new object.
func (s *Store) create(o client.Object, how writing) error {
	kind, err := s.kindOf(o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(fmt.Sprintf("%s%05d", o.GetGenerateName(), s.version))
	}
	key := client.ObjectKeyFromObject(o)
	exists := s.objects[kind][key] != nil
	_, inNamespace := s.objects[schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}][types.NamespacedName{Name: key.Namespace}]
	s.mu.Unlock()
	switch {
	case key.Name == "":
		return apierrors.NewBadRequest("name or generateName is required")
	case o.GetResourceVersion() != "":
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	case !clusterScoped[kind.Kind] && !inNamespace:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, key.Namespace)
	case exists:
		return apierrors.NewAlreadyExists(resourceOf(kind), key.Name)
	}
	next := o.DeepCopyObject().(client.Object)
	s.mu.Lock()
	s.version++
	next.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version)))
	s.mu.Unlock()
	next.SetCreationTimestamp(metav1.NewTime(s.clock.Now()))
	next.SetDeletionTimestamp(nil)
	next.SetGeneration(0)
	if ours(kind) {
		next.SetGeneration(1)
	}
	if withStatus[kind.Kind] && kind.Kind != "Node" {
		clearStatus(next)
	}
	if pod, ok := next.(*corev1.Pod); ok {
		s.completePod(pod)
	}
	if secret, ok := next.(*corev1.Secret); ok && secret.Data == nil {
		secret.Data = map[string][]byte{}
		for key, text := range secret.StringData {
			secret.Data[key] = []byte(text)
		}
		secret.StringData = nil
	}
	made, err := s.sent(next, kind, true)
	if err != nil {
		return err
	}
	if made, err = s.admitted(Request{Verb: "create", Object: made.Object}, made, kind); err != nil {
		return err
	}
	return s.keep(kind, nil, made, o, how, "")
}

// completePod sets what the scheduler looks at: requests are equal to limits, and the priority is that of the class.
func (s *Store) completePod(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodPending
	for i := range pod.Spec.Containers {
		r := &pod.Spec.Containers[i].Resources
		for name, quantity := range r.Limits {
			if _, ok := r.Requests[name]; !ok {
				if r.Requests == nil {
					r.Requests = corev1.ResourceList{}
				}
				r.Requests[name] = quantity
			}
		}
	}
	class := &schedulingv1.PriorityClass{}
	if name := pod.Spec.PriorityClassName; name != "" && s.Get(context.Background(), types.NamespacedName{Name: name}, class) == nil {
		pod.Spec.Priority, pod.Spec.PreemptionPolicy = &class.Value, class.PreemptionPolicy
	}
}

func clearStatus(o client.Object) {
	if status := reflect.ValueOf(o).Elem().FieldByName("Status"); status.IsValid() {
		status.SetZero()
	}
}

// keep stores a version of an object, or removes it if nothing keeps it any more, and tells the watchers.
func (s *Store) keep(kind schema.GroupVersionKind, before, after *stored, into client.Object, how writing, subresource string) error {
	s.mu.Lock()
	s.version++
	err := after.stamp(func(o client.Object) {
		o.SetResourceVersion(strconv.FormatInt(s.version, 10))
		if kind.Kind == "Node" {
			own(before, after, how.manager, subresource, s.clock.Now())
		}
	})
	if err != nil {
		s.mu.Unlock()
		return err
	}
	key := client.ObjectKeyFromObject(after)
	if how.dry {
		s.mu.Unlock()
		return give(after, kind, into)
	}
	if s.objects[kind] == nil {
		s.objects[kind] = map[types.NamespacedName]*stored{}
	}
	ends := !after.GetDeletionTimestamp().IsZero() && len(after.GetFinalizers()) == 0 && graceOver(after.Object)
	if ends {
		delete(s.objects[kind], key)
		s.orphans[after.GetUID()] = true
	} else {
		s.objects[kind][key] = after
	}
	for _, owner := range after.GetOwnerReferences() {
		s.orphans[owner.UID] = true
	}
	err = give(after, kind, into)
	if ends {
		before, after = after, nil
	}
	s.mu.Unlock()
	for _, see := range s.watchers {
		see(change{kind, before, after})
	}
	return err
}

func graceOver(o client.Object) bool {
	grace := o.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}

// rewrite changes an existing object: make returns the new version, of the current one.
func (s *Store) rewrite(o client.Object, verb string, how writing, make func(current *stored, kind schema.GroupVersionKind) (client.Object, error)) error {
	kind, err := s.kindOf(o)
	if err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(o)
	s.mu.Lock()
	current := s.objects[kind][key]
	s.mu.Unlock()
	if current == nil {
		return apierrors.NewNotFound(resourceOf(kind), key.Name)
	}
	asked, err := make(current, kind)
	if err != nil {
		return err
	}
	switch version := asked.GetResourceVersion(); {
	case version != "" && version != current.GetResourceVersion():
		return apierrors.NewConflict(resourceOf(kind), key.Name, fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	case asked.GetUID() != "" && asked.GetUID() != current.GetUID():
		return apierrors.NewConflict(resourceOf(kind), key.Name, fmt.Errorf("Precondition failed: UID in precondition: %s, UID in object meta: %s", asked.GetUID(), current.GetUID())) //nolint:staticcheck // The words of the API server.
	}
	next := current.copy()
	if verb == "status" {
		setStatus(next, asked)
	} else {
		kept := current.copy()
		next = asked.DeepCopyObject().(client.Object)
		if withStatus[kind.Kind] {
			setStatus(next, kept)
		}
		next.SetUID(current.GetUID())
		next.SetCreationTimestamp(current.GetCreationTimestamp())
		next.SetDeletionTimestamp(current.GetDeletionTimestamp())
		next.SetDeletionGracePeriodSeconds(current.GetDeletionGracePeriodSeconds())
		next.SetGeneration(current.GetGeneration())
		if kind.Kind == "Node" {
			next.SetManagedFields(current.GetManagedFields())
		}
	}
	// A benchmark writes its status so often that it is only checked in the end.
	b, ok := next.(*v1alpha1.LatencyBenchmark)
	normal, err := s.sent(next, kind, verb != "status" || !ok || b.Finished())
	if err != nil {
		return err
	}
	if normal, err = s.admitted(Request{verb, normal.Object, current.copy()}, normal, kind); err != nil {
		return err
	}
	err = normal.stamp(func(o client.Object) {
		if ours(kind) && verb != "status" && !equality.Semantic.DeepEqual(normal.raw["spec"], current.raw["spec"]) {
			o.SetGeneration(current.GetGeneration() + 1)
		}
		o.SetResourceVersion(current.GetResourceVersion())
	})
	if err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(normal.raw, current.raw) {
		return give(current, kind, o)
	}
	subresource := ""
	if verb == "status" {
		subresource = "status"
	}
	return s.keep(kind, current, normal, o, how, subresource)
}

func setStatus(into, from client.Object) {
	if u, ok := into.(*unstructured.Unstructured); ok {
		u.Object["status"] = from.(*unstructured.Unstructured).Object["status"]
		return
	}
	reflect.ValueOf(into).Elem().FieldByName("Status").Set(reflect.ValueOf(from).Elem().FieldByName("Status"))
}

func (s *Store) update(o client.Object, verb string, how writing) error {
	return s.rewrite(o, verb, how, func(current *stored, kind schema.GroupVersionKind) (client.Object, error) {
		if u, ok := o.(*unstructured.Unstructured); ok && s.scheme.Recognizes(kind) {
			made, err := s.typed(runtime.DeepCopyJSON(u.Object), kind)
			if err != nil {
				return nil, err
			}
			return made.Object, nil
		}
		return o.DeepCopyObject().(client.Object), nil
	})
}

func (s *Store) patch(o client.Object, patch client.Patch, verb string, how writing) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	return s.rewrite(o, verb, how, func(current *stored, kind schema.GroupVersionKind) (client.Object, error) {
		var wanted map[string]any
		if err := json.Unmarshal(data, &wanted); err != nil {
			return nil, err
		}
		raw := runtime.DeepCopyJSON(current.raw)
		// Without a version in the patch, the API server applies it to whatever is stored.
		if metadata, ok := raw["metadata"].(map[string]any); ok {
			delete(metadata, "resourceVersion")
		}
		switch patch.Type() {
		case types.MergePatchType:
			raw = merged(raw, wanted).(map[string]any)
		case types.StrategicMergePatchType:
			if raw, err = strategicpatch.StrategicMergeMapPatch(raw, wanted, current.Object); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("a patch of type %s is not supported", patch.Type())
		}
		// Numbers of a patch are floats; those of an object are integers.
		content, err := json.Marshal(raw)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(content); err != nil {
			return nil, err
		}
		made, err := s.typed(u.Object, kind)
		if err != nil {
			return nil, err
		}
		return made.Object, nil
	})
}

// merged applies a JSON merge patch.
func merged(into, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	result, ok := into.(map[string]any)
	if !ok {
		result = map[string]any{}
	}
	for key, value := range changes {
		if value == nil {
			delete(result, key)
		} else {
			result[key] = merged(result[key], value)
		}
	}
	return result
}

// remove deletes an object, or begins to.
func (s *Store) remove(o client.Object, options *client.DeleteOptions) error {
	kind, err := s.kindOf(o)
	if err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(o)
	s.mu.Lock()
	current := s.objects[kind][key]
	s.mu.Unlock()
	if current == nil {
		return apierrors.NewNotFound(resourceOf(kind), key.Name)
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != current.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != current.GetResourceVersion() {
			return apierrors.NewConflict(resourceOf(kind), key.Name, fmt.Errorf("the UID or the version in the precondition is not that of the object"))
		}
	}
	if _, err := s.admitted(Request{"delete", current.copy(), current.copy()}, current, kind); err != nil {
		return err
	}
	if dryRun(options.DryRun) {
		return nil
	}
	next := current.copy()
	grace := int64(0)
	if pod, ok := next.(*corev1.Pod); ok && pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		grace = 30
		if pod.Spec.TerminationGracePeriodSeconds != nil {
			grace = *pod.Spec.TerminationGracePeriodSeconds
		}
		if options.GracePeriodSeconds != nil {
			grace = *options.GracePeriodSeconds
		}
	}
	if current.GetDeletionTimestamp().IsZero() {
		now := metav1.NewTime(s.clock.Now().Add(time.Duration(grace) * time.Second))
		next.SetDeletionTimestamp(&now)
		if ours(kind) {
			next.SetGeneration(next.GetGeneration() + 1)
		}
	} else if before := current.GetDeletionGracePeriodSeconds(); before == nil || grace >= *before {
		return nil // It is being deleted.
	} else {
		sooner := metav1.NewTime(current.GetDeletionTimestamp().Add(time.Duration(grace-*before) * time.Second))
		next.SetDeletionTimestamp(&sooner)
	}
	next.SetDeletionGracePeriodSeconds(&grace)
	after, err := s.sent(next, kind, false)
	if err != nil {
		return err
	}
	return s.keep(kind, current, after, next, writing{}, "")
}

// bind assigns a pod to a node, as the scheduler does.
func (s *Store) bind(pod client.Object, node string) error {
	current := &corev1.Pod{}
	if err := s.Get(context.Background(), client.ObjectKeyFromObject(pod), current); err != nil {
		return err
	}
	if current.Spec.NodeName != "" {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, pod.GetName(), fmt.Errorf("pod %s is already assigned to node %q", pod.GetName(), current.Spec.NodeName))
	}
	current.Spec.NodeName = node
	return s.update(current, "update", writing{manager: "scheduler"})
}

// evict deletes a pod unless a PodDisruptionBudget that selects it allows no disruption.
func (s *Store) evict(pod client.Object, options *client.DeleteOptions) error {
	current := &corev1.Pod{}
	if err := s.Get(context.Background(), client.ObjectKeyFromObject(pod), current); err != nil {
		return err
	}
	budgets, beside := &policyv1.PodDisruptionBudgetList{}, &corev1.PodList{}
	for _, list := range []client.ObjectList{budgets, beside} {
		if err := s.List(context.Background(), list, client.InNamespace(current.Namespace)); err != nil {
			return err
		}
	}
	for i := range budgets.Items {
		b := &budgets.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(current.Labels)) {
			continue
		}
		healthy := int32(0)
		for j := range beside.Items {
			if p := &beside.Items[j]; selector.Matches(labels.Set(p.Labels)) && podReady(p) {
				healthy++
			}
		}
		always := b.Spec.UnhealthyPodEvictionPolicy != nil && *b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow
		if podReady(current) && healthy <= b.Spec.MinAvailable.IntVal || !podReady(current) && !always {
			return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
		}
	}
	return s.remove(current, options)
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// collectGarbage deletes an object whose owners are all gone, as the garbage collector does, and reports whether there was one.
func (s *Store) collectGarbage() bool {
	s.mu.Lock()
	if len(s.orphans) == 0 {
		s.mu.Unlock()
		return false
	}
	alive := map[types.UID]bool{}
	for _, objects := range s.objects {
		for _, o := range objects {
			alive[o.GetUID()] = true
		}
	}
	var garbage client.Object
	for _, objects := range s.objects {
		for _, o := range sorted(objects) {
			owners := o.GetOwnerReferences()
			if len(owners) > 0 && o.GetDeletionTimestamp().IsZero() && !slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return alive[r.UID] }) {
				garbage = cmp.Or(garbage, o.Object)
			}
		}
	}
	if garbage == nil {
		clear(s.orphans)
	}
	s.mu.Unlock()
	if garbage == nil {
		return false
	}
	_ = s.remove(garbage, &client.DeleteOptions{}) // It may be gone.
	return true
}

// own records the field manager of what a write changed.
func own(before, o *stored, manager, subresource string, now time.Time) {
	old := map[string]any{}
	if before != nil {
		old = before.raw
	}
	written := changedFields(old, o.raw)
	delete(written, "f:managedFields")
	if metadata, ok := written["f:metadata"].(map[string]any); ok {
		delete(metadata, "f:managedFields")
		delete(metadata, "f:resourceVersion")
		if len(metadata) == 0 {
			delete(written, "f:metadata")
		}
	}
	if len(written) == 0 {
		return
	}
	entries := slices.Clone(o.GetManagedFields())
	i := slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == manager && e.Subresource == subresource })
	if i < 0 {
		entries = append(entries, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1", Subresource: subresource,
		})
		i = len(entries) - 1
	} else {
		var known map[string]any
		if json.Unmarshal(entries[i].FieldsV1.GetRawBytes(), &known) == nil {
			written = merged(known, written).(map[string]any)
		}
	}
	content, err := json.Marshal(written)
	if err != nil {
		return
	}
	entries[i].Time = &metav1.Time{Time: now}
	entries[i].FieldsV1 = &metav1.FieldsV1{}
	entries[i].FieldsV1.SetRawBytes(content)
	o.SetManagedFields(entries)
}

// changedFields returns the fields that differ, in the notation of managed fields; a list is one field.
func changedFields(before, after map[string]any) map[string]any {
	all := map[string]any{}
	for key, value := range after {
		old, existed := before[key]
		if existed && equality.Semantic.DeepEqual(old, value) {
			continue
		}
		oldMap, _ := old.(map[string]any)
		if valueMap, ok := value.(map[string]any); ok && len(valueMap) > 0 {
			all["f:"+key] = changedFields(oldMap, valueMap)
		} else if list, ok := value.([]any); ok && key == "conditions" {
			types := map[string]any{}
			for _, c := range list {
				if condition, ok := c.(map[string]any); ok {
					types[fmt.Sprintf(`k:{"type":%q}`, condition["type"])] = map[string]any{}
				}
			}
			all["f:"+key] = types
		} else {
			all["f:"+key] = map[string]any{}
		}
	}
	for key := range before {
		if _, exists := after[key]; !exists {
			all["f:"+key] = map[string]any{}
		}
	}
	return all
}
