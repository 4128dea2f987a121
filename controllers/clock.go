package controllers

import (
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SettleTimes moves the times of a status that are in the future to now, where a clock that was ahead put them; status is a pointer. What
// counts from them then counts from now, and because the caller writes the status, it ends. A field EndTime of type metav1.Time, which
// may be in the future, keeps its distance from StartTime. Two fields are left out: who waits for a RetryTime ignores one that is further
// away than the longest pause, and a schedule repeats a measurement with a LastMeasurementTime in the future.
func SettleTimes(status any, now time.Time) { settle(reflect.ValueOf(status), now) }

func settle(v reflect.Value, now time.Time) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			settle(v.Elem(), now)
		}
	case reflect.Slice:
		for i := range v.Len() {
			settle(v.Index(i), now)
		}
	case reflect.Struct:
		switch t := v.Addr().Interface().(type) {
		case *metav1.Time:
			t.Time = earlier(t.Time, now)
			return
		case *metav1.MicroTime:
			t.Time = earlier(t.Time, now)
			return
		}
		start, _ := fieldOf(v, "StartTime")
		if end, ok := fieldOf(v, "EndTime"); ok && start != nil && start.After(now) {
			end.Time = end.Add(now.Sub(start.Time))
		}
		for i := range v.NumField() {
			_, deadline := fieldOf(v, v.Type().Field(i).Name)
			name := v.Type().Field(i).Name
			if v.Type().Field(i).IsExported() && name != "RetryTime" && name != "LastMeasurementTime" && (name != "EndTime" || !deadline) {
				settle(v.Field(i), now)
			}
		}
	}
}

// fieldOf returns the field of a struct with a name if it is a metav1.Time.
func fieldOf(v reflect.Value, name string) (*metav1.Time, bool) {
	f := v.FieldByName(name)
	if !f.IsValid() || !f.CanAddr() || !f.CanInterface() {
		return nil, false
	}
	t, ok := f.Addr().Interface().(*metav1.Time)
	return t, ok
}

func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}
