package benchmark

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// madePods holds the UIDs of pods that this manager created, or that a manager created according to a status. Labels and owner
// references prove nothing: any user who may create pods can write them.
type madePods struct{ podSet }

// podSet is a set of UIDs of pods. The zero value is ready to use.
type podSet struct{ uids sync.Map }

func (m *podSet) add(uids ...types.UID) {
	for _, uid := range uids {
		if uid != "" {
			m.uids.Store(uid, true)
		}
	}
}

// forget removes pods that are gone.
func (m *podSet) forget(uids ...types.UID) {
	for _, uid := range uids {
		m.uids.Delete(uid)
	}
}

func (m *podSet) has(uid types.UID) bool {
	_, found := m.uids.Load(uid)
	return found
}

// gone forgets a pod that was deleted, and reports whether a manager had created it: only then may a node have become free. Other users
// can create and delete pods with the operator's labels at any rate.
func (r *Reconciler) gone(uid types.UID) bool {
	made := r.made.has(uid)
	r.forget(uid)
	return made
}

// adopt records in the status the pods of the active attempt that this manager created, if it could not write the status after that.
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
