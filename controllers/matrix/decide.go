package matrix

import (
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/queue"
)

// steps are the steps that decide chose. Pairs are identified by their numbers in the plan, from 1.
type steps struct {
	rejection *preflight.Rejection // why it is not accepted now, or nodes with which; nil after
	nodes     *preflight.Nodes
	release   []int32
	end       []int32 // running pairs that end without a result: a Node is gone
	postpone  []int32 // running pairs that give way: a node was unusable for long
	create    []int32
	claim     []int32
	update    []int32       // pairs whose benchmark lacks its criteria, priority or suspend
	again     time.Duration // when to look again; zero: only when something happens
}

const (
	waitAgain     = 10 * time.Second // for a rejected matrix; watches should wake it earlier
	postponeAfter = 10 * time.Minute // an unusable node ends a running pair: longer than a reboot
	goneAfter     = 30 * time.Minute // a missing Node ends its pairs: longer than a replacement
	awayAfter     = 24 * time.Hour   // a Node not ready ends its pairs: longer than a repair
)

func decide(w *world) steps {
	switch {
	case accepted(w.matrix):
	case w.matrix.Spec.Suspend:
		return steps{}
	default:
		nodes, rejection := preflight.AcceptMatrix(w.accepted, w.matrix.Spec)
		if rejection != nil {
			return steps{rejection: rejection, again: waitAgain}
		}
		return steps{nodes: &nodes}
	}
	var s steps
	var stays []int32
	for _, running := range w.matrix.Status.Running {
		child := w.child(running.Number)
		gone, _ := w.goneOf(running.Number)
		switch {
		case gone != "" && (child == nil || !child.Finished() && child.Status.Active == nil):
			s.end = append(s.end, running.Number)
		case child == nil || running.UID != "" && string(child.UID) != running.UID:
			s.create = append(s.create, running.Number) // not created, deleted, or a late cache
			stays = append(stays, running.Number)
		case child.Finished():
			s.release = append(s.release, running.Number)
		default:
			stays = append(stays, running.Number)
		}
	}
	s.update = w.outdated
	for _, missing := range w.matrix.Status.MissingNodes {
		if !missing.Gone {
			for _, limit := range []time.Duration{goneAfter, awayAfter} {
				s.again = queue.Soonest(s.again, max(0, missing.StartTime.Add(limit).Sub(w.now)))
			}
		}
	}
	if w.matrix.Spec.Suspend {
		s.create = nil // Pairs that have a place keep it.
		return s
	}
	waiting := w.waiting()
	for _, number := range stays {
		since, unusable := w.unusableSince(number)
		if !unusable || !slices.ContainsFunc(waiting, w.preferred) {
			continue
		}
		if wait := since.Add(postponeAfter).Sub(w.now); wait > 0 {
			s.again = queue.Soonest(s.again, wait)
			continue
		}
		s.postpone = append(s.postpone, number)
	}
	stays = slices.DeleteFunc(stays, func(number int32) bool { return slices.Contains(s.postpone, number) })
	s.claim = w.next(waiting, stays)
	return s
}

func (w *world) waiting() []int32 {
	running := map[int32]bool{}
	for _, r := range w.matrix.Status.Running {
		running[r.Number] = true
	}
	var numbers []int32
	for i, child := range w.children {
		number := int32(i + 1)
		if gone, _ := w.goneOf(number); gone == "" && !running[number] && (child == nil || !child.Finished() || !child.DeletionTimestamp.IsZero()) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

func (w *world) preferred(number int32) bool {
	p := w.pair(number)
	return !w.busy[p.ClientNode] && !w.busy[p.ServerNode] && !w.unusable[p.ClientNode] && !w.unusable[p.ServerNode]
}

// next returns the pairs for free places, in the plan's order. None overtakes one that waits for
// its nodes: that would take more slots. Pairs whose nodes are busy or unusable come last.
func (w *world) next(waiting, stays []int32) []int32 {
	if preferred := slices.DeleteFunc(slices.Clone(waiting), func(n int32) bool { return !w.preferred(n) }); len(preferred) > 0 {
		waiting = preferred
	}
	held, addresses := map[string]bool{}, map[int]bool{}
	take := func(number int32) {
		p := w.pair(number)
		held[p.ClientNode], held[p.ServerNode] = true, true
		addresses[int(number-1)%w.blocks] = true
	}
	for _, number := range stays {
		take(number)
	}
	var next []int32
	for _, number := range waiting {
		if len(stays)+len(next) >= w.parallel() {
			break
		}
		p := w.pair(number)
		if held[p.ClientNode] || held[p.ServerNode] || addresses[int(number-1)%w.blocks] {
			held[p.ClientNode], held[p.ServerNode] = true, true
			continue
		}
		take(number)
		next = append(next, number)
	}
	return next
}

// unusableSince returns since when a running pair with an unusable node has been rejected.
func (w *world) unusableSince(number int32) (time.Time, bool) {
	child, p := w.child(number), w.pair(number)
	if child == nil || child.Status.Active != nil || !w.unusable[p.ClientNode] && !w.unusable[p.ServerNode] {
		return time.Time{}, false
	}
	c := meta.FindStatusCondition(child.Status.Conditions, v1alpha1.ConditionAccepted)
	if c == nil || c.Status != metav1.ConditionFalse {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}

// upToDate reports whether a pair's benchmark has criteria, priority and, if running, suspend.
func (w *world) upToDate(number int32) bool {
	child := w.child(number)
	have, want := &child.Spec, w.criteria(number)
	same := reflect.DeepEqual(have.Criteria, want) || equality.Semantic.DeepEqual(have.Criteria, want)
	return same && have.Priority == w.matrix.Spec.Template.Spec.Priority && (have.Suspend == w.matrix.Spec.Suspend || child.Finished())
}

// criteria returns the template's, sharing memory, with a compared matrix's same pair as baseline.
func (w *world) criteria(number int32) *v1alpha1.Criteria {
	own := w.matrix.Spec.Template.Spec.Criteria
	if own == nil {
		return nil
	}
	criteria := *own
	if w.baseline != "" {
		name, ok := w.baselines[w.pair(number)]
		if !ok {
			name = w.baseline + "-p0" // No benchmark of a pair has this name.
		}
		criteria.Baseline = &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: name}}}
	}
	return &criteria
}
