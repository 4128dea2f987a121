package controllers

import (
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SettleTimes moves future times of a status, a pointer, to now: a clock was ahead. An EndTime of
// type metav1.Time keeps its distance from StartTime. Left out are RetryTime, which has its own
// bound, and LastMeasurementTime, with which a schedule repeats a measurement.
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
			if t.After(now) {
				t.Time = now
			}
			return
		case *metav1.MicroTime:
			if t.After(now) {
				t.Time = now
			}
			return
		}
		start, end := timeOf(v, "StartTime"), timeOf(v, "EndTime")
		if start != nil && end != nil && start.After(now) {
			end.Time = end.Add(now.Sub(start.Time))
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && f.Name != "RetryTime" && f.Name != "LastMeasurementTime" && (f.Name != "EndTime" || end == nil) {
				settle(v.Field(i), now)
			}
		}
	}
}

// timeOf returns the field of a struct with a name; nil if it is not a metav1.Time.
func timeOf(v reflect.Value, name string) *metav1.Time {
	if f := v.FieldByName(name); f.IsValid() && f.CanInterface() {
		t, _ := f.Addr().Interface().(*metav1.Time)
		return t
	}
	return nil
}
