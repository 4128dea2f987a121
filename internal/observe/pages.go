package observe

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// maxPage bounds a page in bytes, as sent. An object has at most 3 MiB. In memory, empty items take up to 25 times as much.
	maxPage = 4 << 20
	// fewObjects are in a first page, or an unbounded one, mostObjects in later ones.
	fewObjects, mostObjects = 32, 500
)

var errLargePage = fmt.Errorf("a page of a list has more than %d bytes", maxPage)

// boundedPage is the key of contexts whose responses are bounded.
type boundedPage struct{}

// Bounded returns a configuration whose clients refuse Each's pages above maxPage.
func Bounded(config *rest.Config) *rest.Config {
	own := rest.CopyConfig(config)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return boundedTransport{next} })
	return own
}

type boundedTransport struct{ http.RoundTripper }

func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if read, ok := r.Context().Value(boundedPage{}).(*int); ok && err == nil {
		response.Body = &boundedBody{response.Body, read}
	}
	return response, err
}

// boundedBody is a body that ends after maxPage bytes, and counts those that were read. An error instead of the end is one that client-go logs.
type boundedBody struct {
	io.ReadCloser
	read *int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if *b.read += n; *b.read > maxPage {
		return 0, io.EOF
	}
	return n, err
}

// Get reads an object; it returns nil if there is none.
func Get[T any, O interface {
	*T
	client.Object
}](ctx context.Context, from client.Reader, namespace, name string) (O, error) {
	o := O(new(T))
	err := from.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting %s %s: %w", reflect.TypeOf(o).Elem().Name(), name, err)
	}
	return o, nil
}

// Whole visits a cache's objects, which has no pages. They must not be changed.
func Whole(ctx context.Context, from client.Reader, list func() client.ObjectList, visit func(runtime.Object) error,
	options ...client.ListOption) error {
	all := list()
	if err := from.List(ctx, all, append([]client.ListOption{client.UnsafeDisableDeepCopy}, options...)...); err != nil {
		return err
	}
	return meta.EachListItem(all, visit)
}

// Each visits objects live, page by page: a large cluster's, or the largest that users can make,
// are never in memory at once. A page above maxPage is read in parts, if the reader is Bounded.
func Each(ctx context.Context, from client.Reader, list func() client.ObjectList, visit func(runtime.Object) error,
	options ...client.ListOption) error {
	read, size, next := 0, fewObjects, ""
	ctx = context.WithValue(ctx, boundedPage{}, &read)
	for {
		page := list()
		read = 0
		err := from.List(ctx, page, append([]client.ListOption{client.Limit(size), client.Continue(next)}, options...)...)
		switch {
		case read > maxPage && size > 1:
			size = max(1, size/4)
			continue
		case read > maxPage:
			return errLargePage
		case err != nil:
			return err
		}
		if err := meta.EachListItem(page, visit); err != nil {
			return err
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
		if read > 0 {
			// As many as fill half of a page: one that is refused costs the API server as much as one that is read.
			size = max(1, min(4*size, mostObjects, size*(maxPage/2)/read))
		}
	}
}
