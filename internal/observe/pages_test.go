package observe

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podServer returns a client of an API server with pods of the given sizes, in bytes. A list has at most most objects.
func podServer(t *testing.T, sizes []int, most int, of func(*rest.Config) *rest.Config) client.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil || limit > most {
			t.Errorf("a list without a limit, or with more than %d objects: %s", most, r.URL)
		}
		first, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		last := min(first+limit, len(sizes))
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		for i := first; i < last; i++ {
			list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Annotations: map[string]string{"x": strings.Repeat("x", sizes[i])}}})
		}
		if last < len(sizes) {
			list.Continue = fmt.Sprint(last)
		}
		text, err := json.Marshal(list)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	}))
	t.Cleanup(server.Close)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	api, err := client.New(of(&rest.Config{Host: server.URL}), client.Options{Scheme: clientgoscheme.Scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// Each visits every object once, in pages that are bounded by bytes, whatever the objects' sizes.
func TestEachIsBoundedByBytes(t *testing.T) {
	const mib = 1 << 20
	few := []int{3 * mib, 3 * mib, 3 * mib, 3 * mib, 3 * mib, 3 * mib, 3 * mib}
	small := make([]int, 2*mostObjects+3)
	mixed := append(append([]int{}, small...), few...)
	for name, sizes := range map[string][]int{"none": nil, "small": small, "large": few, "large after small": mixed} {
		api := podServer(t, sizes, mostObjects, Bounded)
		next := 0
		err := Each(t.Context(), api, func() client.ObjectList { return &corev1.PodList{} }, func(o runtime.Object) error {
			if got := o.(*corev1.Pod); got.Name != fmt.Sprint(next) || len(got.Annotations["x"]) != sizes[next] {
				return fmt.Errorf("pod %s instead of %d", got.Name, next)
			}
			next++
			return nil
		})
		if err != nil || next != len(sizes) {
			t.Errorf("%s: %d of %d visited, %v", name, next, len(sizes), err)
		}
	}
	// Large objects are read in pages of which few are refused, each of which the API server makes for nothing.
	large, requests := make([]int, 300), 0
	for i := range large {
		large[i] = mib / 3
	}
	counted := podServer(t, large, mostObjects, func(c *rest.Config) *rest.Config {
		c = Bounded(c)
		c.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) { requests++; return next.RoundTrip(r) })
		})
		return c
	})
	err := Each(t.Context(), counted, func() client.ObjectList { return &corev1.PodList{} }, func(runtime.Object) error { return nil })
	if most := len(large)/6 + 12; err != nil || requests > most {
		t.Errorf("%d requests for %d objects of a third of a MiB, want at most %d; %v", requests, len(large), most, err)
	}
	// One object that alone is too large is an error, and so is what a visit returns.
	api := podServer(t, []int{1, maxPage}, mostObjects, Bounded)
	pods := func() client.ObjectList { return &corev1.PodList{} }
	if err := Each(t.Context(), api, pods, func(runtime.Object) error { return nil }); err == nil || !strings.Contains(err.Error(), errLargePage.Error()) {
		t.Errorf("too large: %v", err)
	}
	if err := Each(t.Context(), api, pods, func(runtime.Object) error { return http.ErrAbortHandler }); err == nil {
		t.Error("the error of a visit is lost")
	}
	// If nothing bounds the bytes of a page, it has few objects.
	visited := 0
	plain := podServer(t, small, fewObjects, func(c *rest.Config) *rest.Config { return c })
	if err := Each(t.Context(), plain, pods, func(runtime.Object) error { visited++; return nil }); err != nil || visited != len(small) {
		t.Errorf("%d visited, %v", visited, err)
	}
	// Other requests are not bounded: watches go on for hours.
	if err := api.List(t.Context(), &corev1.PodList{}, client.Limit(2)); err != nil {
		t.Errorf("a list that Each does not read: %v", err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
