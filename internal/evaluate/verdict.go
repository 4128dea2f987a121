package evaluate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// A benchmark is judged when it finishes, and when an input changes; without all of its own results, it
// does not pass any more. A Pass or Fail outlives the baseline's deletion, as by a history limit.

// Judge updates verdict and session of a finished benchmark if an input changed.
func (s *Store) Judge(ctx context.Context, b *v1alpha1.LatencyBenchmark) error {
	switch {
	case !b.Finished():
		b.Status.Verdict, b.Status.Session = nil, nil
		return nil
	case b.Spec.Criteria == nil:
		b.Status.Verdict = nil
		if b.Status.Session != nil || len(b.Spec.Session) == 0 {
			return nil
		}
	}
	baseline, err := s.baseline(ctx, b)
	if err != nil {
		return err
	}
	digest, err := s.inputs(ctx, b, baseline)
	if err != nil || stands(b.Status.Verdict, digest, baseline) {
		return err
	}
	judged, session, _, err := s.judge(ctx, b, baseline, 1)
	if err != nil {
		return err
	}
	b.Status.Session = session
	if b.Spec.Criteria != nil {
		b.Status.Verdict = judged
		judged.Inputs, judged.Baseline = digest, baseline.settled()
	}
	return nil
}

// Summarize computes the results of a status again, and drops deleted or replaced runs.
func (s *Store) Summarize(ctx context.Context, b *v1alpha1.LatencyBenchmark) error {
	held, release := s.hold(b)
	defer release()
	all, kept, err := s.gather(ctx, held[b.UID], b, true)
	if err != nil {
		return err
	}
	b.Status.Stored = kept
	computed := summary.Summarize(all)
	b.Status.Results, b.Status.Warnings = computed.Results, computed.Warnings
	b.Status.Endpoints, b.Status.Summary = computed.Endpoints, computed.Headline
	return nil
}

func stands(v *v1alpha1.Verdict, digest string, baseline *compared) bool {
	if v == nil || v.Inputs == digest {
		return v != nil
	}
	before, _, _ := strings.Cut(v.Inputs, ".")
	own, _, _ := strings.Cut(digest, ".")
	return baseline != nil && baseline.missing != "" && v.Outcome != v1alpha1.VerdictInconclusive && before == own
}

// compared is the baseline of a benchmark; nil if its criteria name no other benchmark.
type compared struct {
	benchmark *v1alpha1.LatencyBenchmark // the baseline; without a UID if it does not exist
	// gate has accepted it, if one has; uid is its UID, if gate or criteria say it.
	gate, uid string
	missing   string // why there is no baseline; empty if it, or the ConfigMap, exists
	// export is the export that is the baseline, or nil, and held its ConfigMap's version.
	export *v1alpha1.ExportedBaseline
	held   version
	// verification and spread are the gate's knowledge of sessions; nil without it.
	verification *v1alpha1.LatencyVerificationStatus
	spread       *v1alpha1.LatencyGateStatus
}

func (c *compared) settled() *v1alpha1.VerdictBaseline {
	if c == nil || c.gate == "" || c.benchmark.Name == "" {
		return nil
	}
	return &v1alpha1.VerdictBaseline{Gate: c.gate, Namespace: c.benchmark.Namespace, Benchmark: c.benchmark.Name, UID: c.uid}
}

func (s *Store) baseline(ctx context.Context, b *v1alpha1.LatencyBenchmark) (*compared, error) {
	c := &compared{benchmark: &v1alpha1.LatencyBenchmark{}}
	if b.Spec.Criteria.Against(v1alpha1.BaselineExport) {
		c.export = b.Spec.Criteria.Baseline.Export
		return c, s.lookExport(ctx, b.Namespace, c)
	}
	key := types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.Criteria.BaselineOf(v1alpha1.BaselineBenchmark)}
	if c.gate = b.Spec.Criteria.BaselineOf(v1alpha1.BaselineGate); c.gate != "" {
		accepted, err := s.accepted(ctx, b, c)
		if err != nil {
			return nil, err
		}
		if accepted == nil {
			c.missing = fmt.Sprintf("the baseline, LatencyGate %s, has no accepted result of the client's node in this namespace; see kubectl get latencyverifications.tailgate.dev", c.gate)
			return c, nil
		}
		key, c.uid = types.NamespacedName{Namespace: accepted.Namespace, Name: accepted.Benchmark}, accepted.UID
	}
	if key.Name == "" {
		return nil, nil
	}
	if ref := b.Spec.Criteria.Baseline.Benchmark; ref != nil {
		c.uid = ref.UID
	}
	if err := s.Live.Get(ctx, key, c.benchmark); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting the baseline %s: %w", key.Name, err)
	}
	if c.benchmark.UID == "" || !c.benchmark.DeletionTimestamp.IsZero() || c.uid != "" && string(c.benchmark.UID) != c.uid {
		c.missing = fmt.Sprintf("the baseline, LatencyBenchmark %s, does not exist", key.Name)
		if c.uid != "" && c.benchmark.UID != "" && string(c.benchmark.UID) != c.uid {
			c.missing += ": another one has its name"
		}
		c.benchmark = &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	}
	return c, nil
}

// accepted returns the result that a LatencyGate has accepted for the client's node, or had at the
// first verdict; none if the gate's namespace is another: the verdict would show its numbers.
func (s *Store) accepted(ctx context.Context, b *v1alpha1.LatencyBenchmark, c *compared) (*v1alpha1.VerdictBaseline, error) {
	var settled *v1alpha1.VerdictBaseline
	if v := b.Status.Verdict; v != nil && v.Baseline != nil && v.Baseline.Gate == c.gate {
		settled = v.Baseline
	}
	if b.Status.Pair == nil {
		return settled, nil
	}
	gate, err := observe.Get[v1alpha1.LatencyGate](ctx, s.Live, "", c.gate)
	if err != nil || gate == nil || gate.Spec.Namespace != b.Namespace {
		return settled, err
	}
	verification, err := observe.Get[v1alpha1.LatencyVerification](ctx, s.Live, "", v1alpha1.VerificationName(c.gate, b.Status.Pair.ClientNode))
	if err != nil || verification == nil || verification.Status.Accepted == nil {
		return settled, err
	}
	c.verification, c.spread = &verification.Status, &gate.Status
	accepted := verification.Status.Accepted
	return cmp.Or(settled, &v1alpha1.VerdictBaseline{Gate: c.gate, Namespace: gate.Spec.Namespace, Benchmark: accepted.Benchmark, UID: accepted.UID}), nil
}

func (c *compared) reference(b *v1alpha1.LatencyBenchmark, measured *rounds.Collection) *sessions.Reference {
	if c.verification == nil {
		return nil
	}
	known := c.verification.DeepCopy()
	if end := b.Status.CompletionTime; end != nil {
		known.Reference = slices.DeleteFunc(known.Reference, func(s v1alpha1.ReferenceSession) bool { return s.Benchmark == b.Name || s.Time.After(end.Time) })
		known.Recent = slices.DeleteFunc(known.Recent, func(s v1alpha1.MeasuredSession) bool { return !s.Time.Before(end) })
	}
	reference := sessions.For(known, c.spread, bootOf(measured), b.Status.Pair.ServerNode)
	return &reference
}

// maxBootID is the limit of the status for a boot ID, in bytes: the nodes report them.
const maxBootID = 64

func bootOf(c *rounds.Collection) string {
	id := ""
	for _, v := range c.Variants {
		if v.Last != nil {
			id = cmp.Or(v.Last.ClientSeen.NodeBootID, v.Last.Client.Evidence.BootID)
		}
	}
	return text.Shorten(id, maxBootID)
}

// inputs returns a digest of a verdict's inputs, a dot before the baseline's, unread.
func (s *Store) inputs(ctx context.Context, b *v1alpha1.LatencyBenchmark, baseline *compared) (string, error) {
	type side struct {
		Criteria   *v1alpha1.Criteria
		UID        types.UID
		Succeeded  metav1.ConditionStatus
		Stored     []v1alpha1.StoredResult
		ConfigMaps []string
	}
	digest := func(criteria *v1alpha1.Criteria, of *v1alpha1.LatencyBenchmark) (string, error) {
		own := side{Criteria: criteria, UID: of.UID, Stored: of.Status.Stored, Succeeded: of.Succeeded()}
		versions, err := s.versions(ctx, of)
		if err != nil {
			return "", err
		}
		for _, name := range slices.Sorted(maps.Keys(versions)) {
			v := versions[name]
			own.ConfigMaps = append(own.ConfigMaps, fmt.Sprint(name, " ", v.uid, " ", v.resourceVersion))
		}
		return result.Digest(own)
	}
	own, err := digest(b.Spec.Criteria, b)
	switch {
	case err != nil || baseline == nil:
		return own, err
	case baseline.export != nil:
		return own + "." + string(baseline.held.uid) + baseline.held.resourceVersion, nil
	case baseline.benchmark.Name == "":
		return own, nil
	}
	other, err := digest(nil, baseline.benchmark)
	return own + "." + other, err
}

// judge returns the verdict of both sides, the session's values, and whether more rounds may decide
// among all benchmarks together. Errors may pass, defects stay.
func (s *Store) judge(ctx context.Context, b *v1alpha1.LatencyBenchmark, baseline *compared, together int) (
	judged *v1alpha1.Verdict, session *v1alpha1.Session, more bool, err error,
) {
	both := []*v1alpha1.LatencyBenchmark{b}
	if baseline != nil && baseline.benchmark.UID != "" {
		both = append(both, baseline.benchmark)
	}
	held, release := s.hold(both...)
	defer release()
	candidate, err := s.candidateResults(ctx, held[b.UID], b)
	candidate.Together = together
	var before *judge.Results
	if err == nil && baseline != nil {
		before = &judge.Results{}
		if *before, err = s.baselineResults(ctx, held[baseline.benchmark.UID], b, baseline); err == nil {
			before.Reference = baseline.reference(b, candidate.Collection)
		}
	}
	if len(b.Spec.Session) > 0 {
		session = &v1alpha1.Session{}
	}
	switch {
	case errors.Is(err, result.ErrCorrupt):
		return unreadable(err), session, false, nil
	case err != nil:
		return nil, nil, false, err
	}
	if session != nil {
		session.BootID, session.Rounds = bootOf(candidate.Collection), judge.Session(candidate)
		if before != nil && before.Reference != nil {
			session.Reference = before.Reference.Status(b.Status.Pair.ServerNode, session.Rounds)
		}
	}
	if b.Spec.Criteria == nil {
		return nil, session, false, nil
	}
	j, err := judge.Evaluate(*b.Spec.Criteria, candidate, before)
	if err != nil {
		return unreadable(err), session, false, nil
	}
	return j.Status(), session, j.MoreRoundsMayDecide, nil
}

func unreadable(err error) *v1alpha1.Verdict {
	message, reason := oneLine(err), v1alpha1.ReasonRuleInvalid
	if errors.Is(err, result.ErrCorrupt) {
		reason = v1alpha1.ReasonResultsMissing
	}
	rule := v1alpha1.RuleVerdict{Rule: "all", Outcome: v1alpha1.VerdictInconclusive, Reason: reason, Message: message}
	return &v1alpha1.Verdict{Outcome: v1alpha1.VerdictInconclusive, Message: message, Rules: []v1alpha1.RuleVerdict{rule}}
}

func (s *Store) candidateResults(ctx context.Context, own *collection, b *v1alpha1.LatencyBenchmark) (judge.Results, error) {
	all, kept, err := s.gather(ctx, own, b, false)
	if err != nil {
		return judge.Results{}, err
	}
	results := judge.Results{Collection: all}
	switch planned := len(plan.Runs(b)); {
	case b.Succeeded() == metav1.ConditionFalse:
		results.Trouble = refuse(v1alpha1.ReasonBenchmarkFailed, "the benchmark failed before all runs were measured")
	case len(kept) < planned:
		results.Trouble = refuse(v1alpha1.ReasonResultsMissing,
			"the stored results of %d of %d runs were deleted or changed; delete the benchmark and apply it again", planned-len(kept), planned)
	}
	return results, nil
}

func (s *Store) baselineResults(
	ctx context.Context, own *collection, b *v1alpha1.LatencyBenchmark, c *compared,
) (judge.Results, error) {
	baseline, missing := c.benchmark, c.missing
	if c.export != nil && missing == "" {
		cm, err := observe.Get[corev1.ConfigMap](ctx, s.Live, b.Namespace, c.export.ConfigMapName)
		if err != nil {
			return judge.Results{}, err
		}
		if cm != nil {
			s.decoding.Lock()
			defer s.decoding.Unlock()
			return Exported(ctx, b, cm, c.export.SHA256), nil
		}
		missing = noExport(c.export.ConfigMapName)
	}
	trouble := func(reason, format string, args ...any) (judge.Results, error) {
		return judge.Results{Trouble: refuse(reason, format, args...)}, nil
	}
	switch {
	case missing != "":
		return trouble(v1alpha1.ReasonBaselineMissing, "%s", missing)
	case baseline.Succeeded() == metav1.ConditionFalse:
		return trouble(v1alpha1.ReasonBaselineNotComplete, "the baseline, LatencyBenchmark %s, failed", baseline.Name)
	case baseline.Succeeded() != metav1.ConditionTrue:
		return trouble(v1alpha1.ReasonBaselineNotComplete, "the baseline, LatencyBenchmark %s, is not finished", baseline.Name)
	}
	all, kept, err := s.gather(ctx, own, baseline, false)
	if err != nil {
		return judge.Results{}, err
	}
	if planned := len(plan.Runs(baseline)); len(kept) < planned {
		return trouble(v1alpha1.ReasonBaselineResultsMissing,
			"stored results of the baseline, LatencyBenchmark %s, were deleted or changed: those of %d of %d runs",
			baseline.Name, planned-len(kept), planned)
	}
	return judge.Results{Collection: all}, nil
}

// Undecided returns a message if all planned runs are there and more rounds may decide.
func (s *Store) Undecided(ctx context.Context, b *v1alpha1.LatencyBenchmark) (string, error) {
	if plan.MaxRounds(b.Spec) <= plan.Rounds(b) {
		return "", nil
	}
	baseline, err := s.baseline(ctx, b)
	if err != nil {
		return "", err
	}
	together, err := s.together(ctx, b)
	if err != nil {
		return "", err
	}
	judged, _, more, err := s.judge(ctx, b, baseline, together)
	if err != nil || !more {
		return "", err
	}
	return judged.Message, nil
}

// together returns the number of pairs of the LatencyMatrix that owns a benchmark, 1 without one.
func (s *Store) together(ctx context.Context, b *v1alpha1.LatencyBenchmark) (int, error) {
	owner := metav1.GetControllerOf(b)
	if owner == nil || owner.Kind != "LatencyMatrix" {
		return 1, nil
	}
	m, err := observe.Get[v1alpha1.LatencyMatrix](ctx, s.Live, b.Namespace, owner.Name)
	if err != nil || m == nil || m.UID != owner.UID {
		return 1, err
	}
	return int(m.Status.Counts.Total), nil
}

const maxSaid = 400

func oneLine(err error) string { return text.OneLine(err.Error(), maxSaid) }
