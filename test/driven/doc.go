// Package driven is a world in which a test drives the reconcilers and owns the time: nothing happens between two steps, and no step
// waits. The specs beside it are those of gates, benchmarks and matrices that need no API server.
//
// A Cluster has a Store, a virtual clock, a Kubelet and managers. A Manager is set up by the SetupWithManager of all controllers, as
// cmd/manager does, with the real handlers, predicates, indexes, transforms of the cache, and rate limiters. The world takes their
// queues instead of starting their workers, so that a reconcile happens when a watch or a timer would have caused it, and only then.
// A new Manager has no memory of another one.
//
// Step lets one thing happen: the reconcile that is due first, or else a deletion by the garbage collector, or else a write of the
// kubelets and agents. Pass(d) lets everything happen that is due within d, each at its time; Settle is Pass(0). The watches deliver
// each write at once, or, with LateCache, only when no reconcile is due.
//
// A Fault sees each write of a manager, with its number, and may answer with a conflict, refuse it, lose it or its answer, or end the
// manager before or after it. AtEachWrite repeats a spec with a fault at its first write, its second, and so on. An Outage stops all
// requests and watches of managers. Store.Admit adds an admission, which refuses or changes what users and managers write.
//
// In specs, which share builders, readers and the steps of kubelets with test/integration (package specs), World has the cluster, a
// namespace and two nodes, and eventually and consistently drive it: they look at their condition after each step. k8s is the client
// of users; present is the world that NewWorld made last. The limit of eventually is on the world's clock.
//
// The Store does what an API server does with: versions and conflicts, UIDs, generations, creation and deletion times, finalizers,
// grace periods of pods, preconditions, the status as a resource of its own, defaults, schema and CEL rules of Tailgate's kinds (by
// internal/admit; the status of a benchmark only when it has finished), merge patches and strategic merge patches, label selectors,
// selectable fields and the indexes of caches, dry runs, bindings, evictions, field managers of Nodes, and seconds as the resolution
// of times. test/integration compares it with an API server (driven_test.go).
//
// It does not have: rights, policies of admission and webhooks as objects, defaults and validation of the other kinds, transition
// rules of CEL (the immutability of specs), server-side apply, JSON patches, watches of users, pages of lists, bounds of sizes,
// finalizers that deletions add (foreground), namespaces that end, the node controller, and leases. Reconciles never run at the same
// time, so that a data race shows only in test/integration. The follower of logs never finds a result before its pod has ended.
package driven
