package benchmark

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// madePods remembers the UIDs of pods that this manager created, or that a status says a manager created. Labels and owner
// references prove nothing: everybody who may create pods can write them.
type madePods struct{ podSet }

// podSet are UIDs of pods. Ready to use when zero.
type podSet struct {
	mu   sync.Mutex
	uids map[types.UID]bool
}

func (m *podSet) add(uids ...types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.uids == nil {
		m.uids = map[types.UID]bool{}
	}
	for _, uid := range uids {
		if uid != "" {
			m.uids[uid] = true
		}
	}
}

// forget is for pods that are gone.
func (m *podSet) forget(uids ...types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range uids {
		delete(m.uids, uid)
	}
}

func (m *podSet) has(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.uids[uid]
}

// adopt records the pods of the active attempt that this manager created when it could not write the status after that.
func (m *madePods) adopt(active *v1alpha1.ActiveAttempt, server, client *corev1.Pod) {
	m.add(types.UID(active.ServerPodUID), types.UID(active.ClientPodUID))
	if active.Outcome != nil {
		return
	}
	if active.ServerPodUID == "" && server != nil && m.has(server.UID) {
		active.ServerPodUID = string(server.UID)
	}
	if active.ClientPodUID == "" && client != nil && m.has(client.UID) {
		active.ClientPodUID = string(client.UID)
	}
}
