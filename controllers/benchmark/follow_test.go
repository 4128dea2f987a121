package benchmark

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// Two logs are followed until both have results, once each, and wake their benchmark once.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := makeWorld(on(active(0), withServer(running), withClient(running))...)
		readers, writers := map[string]io.ReadCloser{}, map[string]io.Writer{}
		for _, p := range []*corev1.Pod{w.server, w.client} {
			readers[p.Name], writers[p.Name] = io.Pipe()
		}
		var opened atomic.Int32
		r := &Reconciler{memory: memory{wake: make(chan event.GenericEvent, 10)}, Logs: func(ctx context.Context, pod types.NamespacedName, follow bool) (io.ReadCloser, error) {
			if opened.Add(1) > 2 || !follow {
				t.Errorf("the log of %s is read once more, or not followed", pod)
			}
			context.AfterFunc(ctx, func() { readers[pod.Name].Close() })
			return readers[pod.Name], nil
		}}
		reconcile, end := context.WithCancel(t.Context())
		write := func(name, role string) {
			t.Helper()
			if err := result.WriteFrame(writers[name], result.Document{Version: result.Version, Role: role}); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		r.follow(reconcile, w)
		synctest.Wait()
		end()
		r.follow(reconcile, w)
		synctest.Wait()
		write(w.server.Name, v1alpha1.RoleServer)
		if r.haveResults(w.server, w.client) || len(r.wake) > 0 {
			t.Error("one log has a result, and that is taken for both")
		}
		write(w.client.Name, v1alpha1.RoleClient)
		if !r.haveResults(w.server, w.client) || len(r.wake) != 1 || client.ObjectKeyFromObject((<-r.wake).Object) != client.ObjectKeyFromObject(w.benchmark) {
			t.Error("both logs have results, and that does not wake the benchmark")
		}
		r.forget(w.server.UID, w.client.UID)
		for _, set := range []*podSet{&r.followed, &r.written} {
			set.uids.Range(func(uid, _ any) bool {
				t.Errorf("remembered forever: %v", uid)
				return true
			})
		}
	})
}

// A log that cannot be followed to a result is followed again by the next reconcile.
func TestFollowAgain(t *testing.T) {
	for name, open := range map[string]LogReader{
		"the kubelet does not answer": func(context.Context, types.NamespacedName, bool) (io.ReadCloser, error) {
			return nil, errors.New("no route to host")
		},
		"the log ends": logs(nil),
		"nothing is ever written": func(ctx context.Context, _ types.NamespacedName, _ bool) (io.ReadCloser, error) {
			reader, writer := io.Pipe()
			context.AfterFunc(ctx, func() { writer.CloseWithError(ctx.Err()) })
			return reader, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := makeWorld(on(active(0), withServer(running), withClient(running))...)
				r := &Reconciler{Logs: open}
				r.follow(t.Context(), w)
				time.Sleep(time.Hour)
				if r.haveResults(w.server, w.client) || r.followed.has(w.server.UID) || r.followed.has(w.client.UID) {
					t.Error("it is not followed again")
				}
			})
		})
	}
}
