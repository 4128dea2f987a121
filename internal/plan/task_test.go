package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// client returns a complete task.
func client() Task {
	return Task{
		Run: "x2522-r1", Variant: DefaultVariant, Attempt: 2, Role: v1alpha1.RoleClient,
		Tool:          v1alpha1.ToolSfntPingpong,
		Cells:         []tool.Cell{{Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}, Duration: time.Second}},
		Interface:     "net1",
		ServerAddress: "192.168.7.2",
		Deadline:      time.Minute,
	}
}

func TestTaskSurvivesItsEncoding(t *testing.T) {
	server := client()
	server.Role, server.ServerAddress = v1alpha1.RoleServer, ""
	onload := client()
	onload.Acceleration, onload.Library = v1alpha1.AccelerationOnload, "/opt/onload/usr/lib64/libonload.so"
	onload.Env = map[string]string{"EF_POLL_USEC": "100000", "EF_TCP_FASTSTART_INIT": "0"}
	for name, want := range map[string]Task{"a client's": client(), "a server's": server, "with Onload": onload} {
		t.Run(name, func(t *testing.T) {
			data := want.Encode()
			got, err := DecodeTask(data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("task (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeTaskRefuses(t *testing.T) {
	cases := map[string]struct {
		change func(*Task)
		// want is part of the error.
		want string
	}{
		"no variant":                          {func(t *Task) { t.Variant = "" }, "variant"},
		"no run":                              {func(t *Task) { t.Run = "" }, "run"},
		"attempt 0":                           {func(t *Task) { t.Attempt = 0 }, "attempt 0"},
		"a negative attempt":                  {func(t *Task) { t.Attempt = -1 }, "attempt -1"},
		"no role":                             {func(t *Task) { t.Role = "" }, "role"},
		"a role that does not exist":          {func(t *Task) { t.Role = "judge" }, `"judge"`},
		"no cells":                            {func(t *Task) { t.Cells = nil }, "cells"},
		"no deadline":                         {func(t *Task) { t.Deadline = 0 }, "deadline"},
		"a negative deadline":                 {func(t *Task) { t.Deadline = -time.Second }, "deadline -1s"},
		"a client without its server":         {func(t *Task) { t.ServerAddress = "" }, "serverAddress"},
		"an acceleration that does not exist": {func(t *Task) { t.Acceleration = "DPDK" }, `"DPDK"`},
		"Onload without a library":            {func(t *Task) { t.Acceleration = v1alpha1.AccelerationOnload }, "library"},
		"the kernel with a library": {
			func(t *Task) { t.Acceleration, t.Library = v1alpha1.AccelerationKernel, "/lib/libonload.so" }, "library",
		},
		"a library for nothing":     {func(t *Task) { t.Library = "/lib/libonload.so" }, "library"},
		"the least deadline of all": {func(t *Task) { t.Deadline = -1 << 63 }, "deadline"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			task := client()
			c.change(&task)
			data := task.Encode()
			if got, err := DecodeTask(data); err == nil {
				t.Errorf("accepted: %+v", got)
			} else if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not name %q", err, c.want)
			}
		})
	}
	for name, data := range map[string]string{
		"nothing": "", "no JSON": "run", "a list": "[]", "a deadline as text": `{"deadline":"60s"}`, "half of it": `{"run":"a","attempt":1`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := DecodeTask(data); err == nil {
				t.Errorf("accepted: %+v", got)
			}
		})
	}
}

// A task that DecodeTask accepts is complete, and survives another encoding unchanged.
func FuzzDecodeTask(f *testing.F) {
	data := client().Encode()
	f.Add(data)
	f.Add(`{"run":"a-r1","variant":"default","attempt":1,"role":"server","cells":[{}],"deadline":1}`)
	f.Add(`{"run":"a-r1","variant":"default","attempt":1,"role":"server","cells":[{}],"deadline":1,"acceleration":"Onload","library":"l","env":{"EF_A":""}}`)
	f.Add(`{"run":"a","attempt":9999999999}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, data string) {
		task, err := DecodeTask(data)
		if err != nil {
			return
		}
		if task.Run == "" || task.Attempt < 1 || len(task.Cells) == 0 || task.Deadline <= 0 {
			t.Errorf("accepted an incomplete task: %+v", task)
		}
		again := task.Encode()
		same, err := DecodeTask(again)
		if err != nil {
			t.Fatalf("refused what it accepted: %v", err)
		}
		if diff := cmp.Diff(task, same); diff != "" {
			t.Errorf("changed by its encoding (-first +second):\n%s", diff)
		}
	})
}

// A kubelet replaces $(NAME) and $$ in the values of variables: a program would get other words than the spec has.
func TestTaskHasNoDollar(t *testing.T) {
	task := client()
	task.Env = map[string]string{"EF_LOG": "$$(HOME) $(KUBERNETES_PORT)"}
	data := task.Encode()
	if strings.Contains(data, "$") {
		t.Errorf("a kubelet changes %s", data)
	}
	if back, err := DecodeTask(data); err != nil || back.Env["EF_LOG"] != task.Env["EF_LOG"] {
		t.Errorf("%v, %v", back.Env, err)
	}
}
