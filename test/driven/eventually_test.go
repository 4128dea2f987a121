package driven

import (
	"fmt"
	"reflect"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
)

// patience is how long, on the clock of the world, a condition may take.
const patience = 3 * time.Minute

// assertion is an assertion about what happens in the world. It is looked at after each thing that happens.
type assertion struct {
	actual     any
	args       []any
	limit      time.Duration
	constantly bool
}

// eventually lets things happen in the world until an assertion holds.
func eventually(actual any) *assertion { return &assertion{actual: actual, limit: patience} }

// consistently lets time pass in the world, and checks an assertion after each thing that happens meanwhile.
func consistently(actual any, d time.Duration) *assertion {
	return &assertion{actual: actual, limit: d, constantly: true}
}

func (a *assertion) WithArguments(args ...any) *assertion { a.args = args; return a }

// WithTimeout sets how long it may take on the clock of the world.
func (a *assertion) WithTimeout(limit time.Duration) *assertion { a.limit = limit; return a }

func (a *assertion) Should(matcher gomegatypes.GomegaMatcher, description ...any) {
	GinkgoHelper()
	a.check(func(value any) (bool, error) { return matcher.Match(value) }, func(value any) string { return matcher.FailureMessage(value) }, description)
}

func (a *assertion) ShouldNot(matcher gomegatypes.GomegaMatcher, description ...any) {
	GinkgoHelper()
	a.check(func(value any) (bool, error) { ok, err := matcher.Match(value); return !ok, err },
		func(value any) string { return matcher.NegatedFailureMessage(value) }, description)
}

func (a *assertion) check(match func(any) (bool, error), message func(any) string, description []any) {
	GinkgoHelper()
	var value any
	var err error
	holds := func() bool {
		if value, err = a.value(); err != nil {
			return false
		}
		var ok bool
		ok, err = match(value)
		return ok && err == nil
	}
	began := present.Clock.Now()
	var ok bool
	if a.constantly {
		ok = !present.until(a.limit, func() bool { return !holds() })
	} else {
		ok = present.until(a.limit, holds)
	}
	if ok {
		return
	}
	text := ""
	if len(description) > 0 {
		if f, isFunc := description[0].(func() string); isFunc {
			text = f()
		} else {
			text = fmt.Sprintf(description[0].(string), description[1:]...)
		}
	}
	said := ""
	if err != nil {
		said = err.Error()
	} else {
		said = message(value)
	}
	Fail(fmt.Sprintf("%s after %s on the clock of the world\n%s\n\nWhat happened last:\n%s", text, present.Clock.Now().Sub(began), said, present.Trace()))
}

// failure is what a function fails with that makes assertions.
type failure string

// value calls the function that is asserted about. If its last result is an error, that must be nil.
func (a *assertion) value() (value any, err error) {
	f := reflect.ValueOf(a.actual)
	if f.Kind() != reflect.Func {
		return a.actual, nil
	}
	var args []reflect.Value
	if f.Type().NumIn() > 0 && f.Type().In(0) == reflect.TypeFor[gomega.Gomega]() {
		defer func() {
			if r := recover(); r != nil {
				message, ok := r.(failure)
				if !ok {
					panic(r)
				}
				err = fmt.Errorf("%s", message)
			}
		}()
		args = append(args, reflect.ValueOf(gomega.NewGomega(func(message string, _ ...int) { panic(failure(message)) })))
	}
	for _, arg := range a.args {
		args = append(args, reflect.ValueOf(arg))
	}
	results := f.Call(args)
	if len(results) == 0 {
		return nil, nil
	}
	for _, r := range results[1:] {
		if e, ok := r.Interface().(error); ok && e != nil {
			return nil, e
		}
	}
	return results[0].Interface(), nil
}
