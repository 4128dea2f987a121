package gate

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// Memory is all that the controllers keep outside the statuses. Nothing of it decides whether a
// node is verified; to lose it costs only what the fields say.
type Memory struct {
	contests   contests  // written marks, and when others undid them; lost, seen a minute later
	held       sync.Map  // hold pods that no status records; a restart creates them again
	refusals   sync.Map  // the last of the verifications' statuses, by name; lost, they come again
	suppliers  suppliers // the Modules and DaemonSets of the cluster, for a few seconds
	shortages  sync.Map  // the places without room: the gate does not see others' pods
	unbudgeted sync.Map  // UIDs of gates that neither have nor ask for a PodDisruptionBudget
}

func (m *Memory) setRefusal(name string, err error) {
	if text := refusal(err); text != "" {
		m.refusals.Store(name, text)
	} else {
		m.refusals.Delete(name)
	}
}

func (m *Memory) firstRefusal(verifications []*v1alpha1.LatencyVerification) string {
	for _, v := range verifications {
		if text, ok := m.refusals.Load(v.Name); ok {
			return text.(string)
		}
	}
	return ""
}

type shortageOf struct {
	gate string
	turns.Place
}

// addShortage notes a place without room, looked at less and less often while it is full.
func (m *Memory) addShortage(gate string, of turns.Place, why string, now time.Time) {
	key, since := shortageOf{gate, of}, now
	if before, ok := m.shortages.Load(key); ok {
		since = before.(turns.Shortage).Since
	}
	m.shortages.Store(key, turns.Shortage{Why: why, Since: since, Until: now.Add(min(max(now.Sub(since), looksFirst), shortageFor))})
}

func (m *Memory) removeShortage(gate string, of turns.Place) {
	m.shortages.Delete(shortageOf{gate, of})
}

// knownShortages returns those of a gate's nodes that need no new look, and forgets old ones.
func (m *Memory) knownShortages(gate string, now time.Time) map[turns.Place]turns.Shortage {
	all := map[turns.Place]turns.Shortage{}
	for key, value := range m.shortages.Range {
		of, at := key.(shortageOf), value.(turns.Shortage)
		switch left := at.Until.Sub(now); {
		case left < -shortageFor, left > shortageFor:
			m.shortages.CompareAndDelete(key, value)
		case left > 0 && of.gate == gate:
			all[of.Place] = at
		}
	}
	return all
}

type suppliers struct {
	mu   sync.Mutex
	read time.Time
	took time.Duration
	all  []preflight.Supplier
}

type contests struct {
	sync.Mutex
	written map[contested]*contest
}

// contested is a mark of a Node, contest what was last written there, and when others undid it.
type (
	contested struct {
		node types.UID
		mark v1alpha1.NodeMark
	}
	contest struct {
		value  string
		undone []time.Time
	}
)

// wrote notes a written value, and reports whether others have changed it back too often.
func (c *contests) wrote(node types.UID, mark v1alpha1.NodeMark, value string, now time.Time) bool {
	c.Lock()
	defer c.Unlock()
	if c.written == nil {
		c.written = map[contested]*contest{}
	}
	key := contested{node, mark}
	before := c.written[key]
	if before == nil || before.value != value {
		c.written[key] = &contest{value: value}
		return false
	}
	before.undone = append(slices.DeleteFunc(before.undone, func(t time.Time) bool { return now.Sub(t) >= contestWindow || t.After(now) }), now)
	return len(before.undone) >= contestLimit
}

func (c *contests) forget(node types.UID) {
	c.Lock()
	defer c.Unlock()
	for _, mark := range turns.Marks {
		delete(c.written, contested{node, mark})
	}
}
