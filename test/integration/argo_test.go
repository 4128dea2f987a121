package integration

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// analysis holds the fields of an AnalysisTemplate that are used here.
type analysis struct {
	Spec struct {
		Metrics []struct {
			Count, InconclusiveLimit, FailureLimit, ConsecutiveSuccessLimit int32
			SuccessCondition, FailureCondition                              string
			Provider                                                        struct {
				Web struct {
					URL, JSONPath string
					Headers       []struct{ Key, Value string }
				}
			}
		}
	}
}

// measure simulates a measurement of argo-rollouts' web metric: webmetric.go and evaluate.go of v1.9.
func (a analysis) measure(base, token string) string {
	GinkgoHelper()
	metric := a.Spec.Metrics[0]
	url := base + strings.TrimPrefix(metric.Provider.Web.URL, "https://metrics.tailgate-system.svc:8443")
	request, err := http.NewRequest(http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	for _, h := range metric.Provider.Web.Headers {
		request.Header.Set(h.Key, strings.ReplaceAll(h.Value, "{{args.token}}", token))
	}
	response, err := unverifying.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode >= 300 {
		return "Error"
	}
	var data any
	Expect(json.NewDecoder(response.Body).Decode(&data)).To(Succeed())
	parser := jsonpath.New("metrics")
	Expect(parser.Parse(metric.Provider.Web.JSONPath)).To(Succeed())
	found, err := parser.FindResults(data)
	Expect(err).NotTo(HaveOccurred())
	// The conditions of the sample are comparisons with one word.
	holds := func(condition string) bool {
		word := regexp.MustCompile(`^result == "(\w+)"$`).FindStringSubmatch(condition)
		Expect(word).NotTo(BeNil(), condition)
		return found[0][0].Interface() == word[1]
	}
	switch {
	case holds(metric.FailureCondition):
		return "Failed"
	case holds(metric.SuccessCondition):
		return "Successful"
	}
	return "Inconclusive"
}

// assess returns the phase of the metric after measurements: assessMetricStatus of argo-rollouts' analysis.go. Versions without
// support for consecutiveSuccessLimit ignore it.
func (a analysis) assess(knowsSuccessLimit bool, measurements ...string) string {
	metric := a.Spec.Metrics[0]
	var failed, inconclusive, errorsInARow, successes, count int32
	for _, m := range measurements {
		if m == "Error" {
			errorsInARow++
			successes = 0
			if errorsInARow > 4 {
				return "Error"
			}
			continue
		}
		errorsInARow = 0
		count++
		switch m {
		case "Failed":
			failed++
			successes = 0
		case "Inconclusive":
			inconclusive++
			successes = 0
		default:
			successes++
		}
		switch {
		case inconclusive > metric.InconclusiveLimit:
			return "Inconclusive"
		case failed > metric.FailureLimit:
			return "Failed"
		case knowsSuccessLimit && successes >= metric.ConsecutiveSuccessLimit:
			return "Successful"
		case count >= metric.Count && knowsSuccessLimit:
			return "Inconclusive"
		case count >= metric.Count:
			return "Successful"
		}
	}
	return "Running"
}

// flagger simulates Flagger's callWebhook for the first webhook of a Canary: webhook.go of v1.44.
func flagger(base, token string, canary *unstructured.Unstructured) error {
	GinkgoHelper()
	webhooks, _, err := unstructured.NestedSlice(canary.Object, "spec", "analysis", "webhooks")
	Expect(err).NotTo(HaveOccurred())
	url := webhooks[0].(map[string]any)["url"].(string)
	url = strings.Replace(url, "https://reader:TOKEN@metrics.tailgate-system.svc:8443", strings.Replace(base, "https://", "https://reader:"+token+"@", 1), 1)
	code, body, err := call(http.MethodPost, url, "")
	if err == nil && code > 202 {
		return errors.New(body)
	}
	return err
}

// health returns the health of an object in Argo CD with the scripts of argocd.yaml: runLua of util/lua/lua.go, with the libraries that
// are open by default.
func health(o client.Object) string {
	GinkgoHelper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	Expect(err).NotTo(HaveOccurred())
	gvk, err := k8s.GroupVersionKindFor(o)
	Expect(err).NotTo(HaveOccurred())
	var patch corev1.ConfigMap
	Expect(yaml.UnmarshalStrict(readSample("argocd.yaml"), &patch)).To(Succeed())
	script, ok := patch.Data["resource.customizations.health."+gvk.Group+"_"+gvk.Kind]
	Expect(ok).To(BeTrue())

	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		Expect(l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name))).To(Succeed())
	}
	l.SetGlobal("obj", luaValue(l, content))
	Expect(l.DoString(script)).To(Succeed())
	table, ok := l.Get(-1).(*lua.LTable)
	Expect(ok).To(BeTrue())
	Expect(table.RawGetString("message").Type()).To(Equal(lua.LTString))
	return table.RawGetString("status").String()
}

// luaValue converts a JSON value to Lua.
func luaValue(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case bool:
		return lua.LBool(v)
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case []any:
		table := l.NewTable()
		for _, item := range v {
			table.Append(luaValue(l, item))
		}
		return table
	case map[string]any:
		table := l.NewTable()
		for key, item := range v {
			table.RawSetString(key, luaValue(l, item))
		}
		return table
	}
	return lua.LNil
}

var _ = Describe("Argo Rollouts, simulated,", func() {
	It("takes no analysis for a success that had no Pass", func() {
		var a analysis
		Expect(yaml.Unmarshal(readSample("argo-rollouts.yaml"), &a)).To(Succeed())
		for _, newer := range []bool{true, false} {
			inconclusive := slices.Repeat([]string{"Inconclusive"}, int(a.Spec.Metrics[0].Count))
			Expect(a.assess(newer, inconclusive...)).To(Equal("Inconclusive"))
			Expect(a.assess(newer, inconclusive[1:]...)).To(Equal("Running"))
			Expect(a.assess(newer, "Inconclusive", "Failed")).To(Equal("Failed"))
			Expect(a.assess(newer, "Error", "Error", "Error", "Error", "Error")).To(Equal("Error"))
		}
		Expect(a.assess(true, "Inconclusive", "Successful")).To(Equal("Successful"))
	})
})

var _ = Describe("Argo CD, simulated,", func() {
	It("finds an object healthy when it has passed, and only then", func() {
		benchmark := func(gated bool, generation int64, conditions ...metav1.Condition) *v1alpha1.LatencyBenchmark {
			b := MakeBenchmark("perf", "b").Obj()
			if gated {
				b = MakeBenchmark("perf", "b").Rule(Under("8us")).Obj()
			}
			b.Generation = 1
			for _, c := range conditions {
				b.SetCondition(c)
			}
			b.Generation = generation
			return b
		}
		is := v1alpha1.Condition
		complete := is(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, "measured")
		running := is(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonRunning, "running")
		broken := is(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed, "failed")
		passed := func(status metav1.ConditionStatus, reason string) metav1.Condition {
			return is(v1alpha1.ConditionPassed, status, reason, "told")
		}
		gate := func(change func(*v1alpha1.LatencyGate), status metav1.ConditionStatus, reason string, nodes v1alpha1.NodeCounts) *v1alpha1.LatencyGate {
			g := MakeGate("fast").Obj()
			g.Generation, g.Status.Nodes = 1, nodes
			g.SetCondition(passed(status, reason))
			if change != nil {
				change(g)
			}
			return g
		}
		verification := func(state v1alpha1.VerificationState) *v1alpha1.LatencyVerification {
			return &v1alpha1.LatencyVerification{Status: v1alpha1.LatencyVerificationStatus{State: state, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionVerified, Message: "told"}}}}
		}
		notReady := verification(v1alpha1.VerificationVerified)
		notReady.Status.Conditions[0].Status = metav1.ConditionUnknown
		waiting := v1alpha1.NodeCounts{Total: 2, Unverified: 2}
		for _, c := range []struct {
			object client.Object
			want   string
		}{
			{benchmark(true, 1), "Progressing"},
			{benchmark(true, 1, is(v1alpha1.ConditionAccepted, metav1.ConditionFalse, "NoSuchNode", "no node")), "Progressing"},
			{benchmark(true, 1, running, passed("Unknown", v1alpha1.ReasonNotJudged)), "Progressing"},
			{benchmark(true, 1, complete, passed("True", v1alpha1.ReasonPass)), "Healthy"},
			{benchmark(true, 1, complete, passed("False", v1alpha1.ReasonFail)), "Degraded"},
			{benchmark(true, 1, complete, passed("Unknown", v1alpha1.ReasonInconclusive)), "Suspended"},
			{benchmark(true, 1, complete, passed("Unknown", v1alpha1.ReasonBaselineMissing)), "Suspended"},
			{benchmark(true, 1, complete), "Progressing"},
			{benchmark(true, 1, broken), "Degraded"},
			{benchmark(true, 2, complete, passed("True", v1alpha1.ReasonPass)), "Progressing"},
			{benchmark(false, 1, complete), "Healthy"},
			{benchmark(false, 1, running), "Progressing"},
			{gate(nil, "True", v1alpha1.ReasonAllVerified, allVerified), "Healthy"},
			{gate(nil, "False", v1alpha1.ReasonNodesFailed, oneFailed), "Degraded"},
			{gate(nil, "Unknown", v1alpha1.ReasonNotAllVerified, oneMeasuring), "Progressing"},
			{gate(nil, "False", v1alpha1.ReasonTooManyUnverified, waiting), "Progressing"},
			{gate(nil, "Unknown", v1alpha1.ReasonNotAllVerified, oneInconclusive), "Suspended"},
			{gate(nil, "Unknown", v1alpha1.ReasonNotAllVerified, waiting), "Progressing"},
			{gate(func(g *v1alpha1.LatencyGate) { g.Spec.Suspend = true }, "Unknown", v1alpha1.ReasonNotAllVerified, waiting), "Suspended"},
			{gate(nil, "Unknown", v1alpha1.ReasonNoNodes, v1alpha1.NodeCounts{}), "Progressing"},
			{gate(func(g *v1alpha1.LatencyGate) { g.Generation++ }, "True", v1alpha1.ReasonAllVerified, allVerified), "Progressing"},
			{gate(func(g *v1alpha1.LatencyGate) { g.Status = v1alpha1.LatencyGateStatus{} }, "True", v1alpha1.ReasonAllVerified, allVerified), "Progressing"},
			{verification(""), "Progressing"},
			{verification(v1alpha1.VerificationUnverified), "Progressing"},
			{verification(v1alpha1.VerificationMeasuring), "Progressing"},
			{verification(v1alpha1.VerificationVerified), "Healthy"},
			{notReady, "Progressing"},
			{verification(v1alpha1.VerificationFailed), "Degraded"},
			{verification(v1alpha1.VerificationInconclusive), "Suspended"},
		} {
			Expect(health(c.object)).To(Equal(c.want), "%+v", c.object)
			if b, ok := c.object.(*v1alpha1.LatencyBenchmark); ok {
				m := &v1alpha1.LatencyMatrix{ObjectMeta: b.ObjectMeta, Spec: v1alpha1.LatencyMatrixSpec{Template: v1alpha1.LatencyBenchmarkTemplate{Spec: b.Spec.MeasurementSpec}}}
				m.Status.Conditions = b.Status.Conditions
				Expect(health(m)).To(Equal(c.want), "%+v", m)
			}
		}
	})
})
