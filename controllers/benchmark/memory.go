package benchmark

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// memory is all that the controller keeps outside the status, besides what evaluate.Store has read.
// Nothing of it decides about a result. A manager that starts has none of it, which costs only what
// the fields say.
type memory struct {
	// made are the pods that a manager created. Labels and owner references prove nothing: any user
	// who may create pods can write them. The statuses have the UIDs, and fill it again after a
	// restart; only a pod that no status could record yet is then one that has taken a name.
	made podSet
	// taken are the ConfigMaps of results that were verified and are not stored yet, by the names of
	// the benchmarks. They are too large for the status, which has their digests; after a restart the
	// logs are read again.
	taken sync.Map
	// followed are the pods whose logs are followed, written those whose logs have results. Both are
	// about open connections; after a restart the logs are followed again, from their beginnings.
	followed, written podSet
	// wake receives benchmarks whose pods both have results. Without it, the phases of the pods show
	// the end a few seconds later.
	wake chan event.GenericEvent
	// claiming is held while nodes are claimed: otherwise two workers at once would both find them
	// free. Between two managers, startServer compares the claims in the statuses once more.
	claiming sync.Mutex
}

func (m *memory) forget(uids ...types.UID) {
	for _, set := range []*podSet{&m.made, &m.followed, &m.written} {
		for _, uid := range uids {
			set.uids.Delete(uid)
		}
	}
}

type podSet struct{ uids sync.Map }

func (s *podSet) add(uid types.UID) {
	if uid != "" {
		s.uids.Store(uid, true)
	}
}

func (s *podSet) has(uid types.UID) bool {
	_, found := s.uids.Load(uid)
	return found
}

// gone forgets a deleted pod, and reports whether a manager created it, so that it held a node.
func (m *memory) gone(uid types.UID) bool {
	made := m.made.has(uid)
	m.forget(uid)
	return made
}

// adopt records the active attempt's pods that this manager created and no status write recorded.
func (m *memory) adopt(w *world) {
	for _, e := range w.ends() {
		m.made.add(types.UID(*e.uid))
		if *e.uid == "" && e.pod != nil && m.made.has(e.pod.UID) && w.benchmark.Status.Active.Outcome == nil {
			*e.uid = string(e.pod.UID)
		}
	}
}
