package integration

import (
	"context"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// follow calls see, in one goroutine, for each object of a list and then for each of their later versions, until stop returns or the
// spec ends. The API server may end a watch at any time, which loses no version here.
func follow(ctx context.Context, list client.ObjectList, see func(watch.EventType, client.Object), options ...client.ListOption) (stop func()) {
	GinkgoHelper()
	Expect(k8s.List(ctx, list, options...)).To(Succeed())
	var present []client.Object
	Expect(meta.EachListItem(list, func(o runtime.Object) error {
		present = append(present, o.(client.Object))
		return nil
	})).To(Succeed())
	// The context belongs to the current node of the spec's tree, and ends with it.
	watcher, err := toolswatch.NewRetryWatcherWithContext(context.WithoutCancel(ctx), list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			return k8s.Watch(ctx, list.DeepCopyObject().(client.ObjectList), append(options[:len(options):len(options)], &client.ListOptions{Raw: &raw})...)
		},
	})
	Expect(err).NotTo(HaveOccurred())
	var group sync.WaitGroup
	group.Go(func() {
		defer GinkgoRecover()
		for _, o := range present {
			see(watch.Added, o)
		}
		for event := range watcher.ResultChan() {
			o, ok := event.Object.(client.Object)
			Expect(ok).To(BeTrue(), "a watch that cannot go on: %v", event.Object)
			see(event.Type, o)
		}
	})
	stop = func() { watcher.Stop(); group.Wait() }
	DeferCleanup(stop)
	return stop
}
