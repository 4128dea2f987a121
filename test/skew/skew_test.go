// Package skew tests the data that managers and agents of different versions exchange.
package skew

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

var record = flag.String("record", "", "write what manager and agent exchange to testdata/NAME.json")

// exchanged holds the data that the manager and an agent of one version write, with every field set.
type exchanged struct {
	// Task is the task that the manager passes to the agent in its environment.
	Task string `json:"task"`
	// Log is the agent's log with its result.
	Log string `json:"log"`
}

// ofThisVersion returns the data that the present version writes.
func ofThisVersion(t *testing.T) exchanged {
	t.Helper()
	var task plan.Task
	fill(reflect.ValueOf(&task).Elem())
	task.Role, task.Acceleration = v1alpha1.RoleClient, v1alpha1.AccelerationOnload
	var document result.Document
	fill(reflect.ValueOf(&document).Elem())
	document.Version, document.Role = result.Version, v1alpha1.RoleClient
	document.Cells[0].Start = tool.StartIntended // A result with another start is refused.

	encoded := task.Encode()
	var log strings.Builder
	if err := result.WriteFrame(&log, document); err != nil {
		t.Fatal(err)
	}
	return exchanged{Task: encoded, Log: log.String()}
}

// fill sets every field to a value other than its zero value.
func fill(v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64, reflect.Float32:
		v.SetFloat(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	default:
		v.SetInt(1)
	}
}

// TestEarlierVersions: the present manager reads the results of agents of recorded versions, and such agents read the tasks
// of the present manager; the same holds for the present agent and recorded managers.
func TestEarlierVersions(t *testing.T) {
	if *record != "" {
		data, err := json.MarshalIndent(ofThisVersion(t), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join("testdata", *record+".json"), append(data, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal("no version is recorded: ", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var e exchanged
			if err := json.Unmarshal(data, &e); err != nil {
				t.Fatal(err)
			}
			checkTask(t, e.Task)
			checkResult(t, e)
		})
	}
}

const advice = "this change is incompatible with the recorded version. Give a new field of the task the option omitempty, keep the fields of " +
	"a result, or raise result.Version. Of unreleased.json, record the version again: go test ./test/skew -record unreleased"

// checkTask: an agent refuses a task with a field that it does not know. The present manager therefore sends the fields of the
// recorded version, and others only with benchmarks that use them.
func checkTask(t *testing.T, recorded string) {
	t.Helper()
	task, err := plan.DecodeTask(recorded)
	if err != nil {
		t.Fatal(err)
	}
	present := task.Encode()
	if diff := cmp.Diff(object(t, []byte(recorded)), object(t, []byte(present))); diff != "" {
		t.Errorf("task (-recorded +present): %s\n%s", advice, diff)
	}
}

// checkResult: a manager ignores fields that it does not know. The present agent therefore sends all fields of the recorded version.
func checkResult(t *testing.T, recorded exchanged) {
	t.Helper()
	framed, err := result.ReadFrame(strings.NewReader(recorded.Log))
	if err != nil {
		t.Fatal(err)
	}
	present, err := json.Marshal(framed.Document)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := gzip.NewReader(bytes.NewReader(framed.Compressed))
	if err != nil {
		t.Fatal(err)
	}
	var before any
	if err := json.NewDecoder(plain).Decode(&before); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, common(before, object(t, present))); diff != "" {
		t.Errorf("result (-recorded +present): %s\n%s", advice, diff)
	}
}

func object(t *testing.T, data []byte) (o any) {
	t.Helper()
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// common returns the fields of the present version that an earlier version also has.
func common(before, present any) any {
	b, isObject := before.(map[string]any)
	p, ok := present.(map[string]any)
	if isObject && ok {
		kept := map[string]any{}
		for name := range b {
			if value, ok := p[name]; ok {
				kept[name] = common(b[name], value)
			}
		}
		return kept
	}
	list, isList := before.([]any)
	l, ok := present.([]any)
	if isList && ok && len(list) == len(l) {
		kept := make([]any, len(l))
		for i := range l {
			kept[i] = common(list[i], l[i])
		}
		return kept
	}
	return present
}

// TestTheRecordingHasEveryField: the recorded data of the present version are complete, so that the loss of any field is
// noticed.
func TestTheRecordingHasEveryField(t *testing.T) {
	e := ofThisVersion(t)
	task, err := plan.DecodeTask(e.Task)
	if err != nil {
		t.Fatal(err)
	}
	v := reflect.ValueOf(task)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("the task has no %s", v.Type().Field(i).Name)
		}
	}
	checkTask(t, e.Task)
	checkResult(t, e)
}
