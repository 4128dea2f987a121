package cni

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	podResource   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	eventResource = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	nadResource   = schema.GroupVersionResource{
		Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions",
	}
)

const (
	// requestTimeout bounds one request to the API server.
	requestTimeout = 10 * time.Second
	// podRetry and podRetryTotal are the interval and the total time of requests for the pod. The API server may
	// be restarting while a pod starts.
	podRetry      = 200 * time.Millisecond
	podRetryTotal = 3 * time.Second
)

// podRef names the pod of a command.
type podRef struct {
	namespace, name string
	// uid may be empty: not every runtime passes it.
	uid string
}

func (p podRef) String() string { return p.namespace + "/" + p.name + "/" + p.uid }

// kube makes the plugin's requests to the API server.
type kube struct{ client dynamic.Interface }

func newKube(kubeconfig string) (kube, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return kube{}, fmt.Errorf("reading the kubeconfig of the CNI plugin: %w", err)
	}
	config.Timeout = requestTimeout
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return kube{}, fmt.Errorf("making a client for the CNI plugin: %w", err)
	}
	return kube{client}, nil
}

// pod gets the pod, with retries. A pod of the same name but another uid is an error.
func (k kube) pod(ctx context.Context, ref podRef) (*unstructured.Unstructured, error) {
	var pod *unstructured.Unstructured
	var lastErr error
	err := wait.PollUntilContextTimeout(ctx, podRetry, podRetryTotal, true, func(ctx context.Context) (bool, error) {
		pod, lastErr = k.client.Resource(podResource).Namespace(ref.namespace).Get(ctx, ref.name, metav1.GetOptions{})
		return lastErr == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("getting pod %s/%s: %w", ref.namespace, ref.name, lastErr)
	}
	if ref.uid != "" && string(pod.GetUID()) != ref.uid {
		return nil, fmt.Errorf("expected pod %s/%s UID %q but got %q from Kube API",
			ref.namespace, ref.name, ref.uid, pod.GetUID())
	}
	return pod, nil
}

// nad holds the parts of a NetworkAttachmentDefinition that the plugin uses.
type nad struct {
	config, resource string
}

// nad gets a NetworkAttachmentDefinition. If that fails, nad also records an event of the pod. The error and the
// event use Multus' words.
func (k kube) nad(ctx context.Context, s Selection, pod *unstructured.Unstructured) (nad, error) {
	obj, err := k.client.Resource(nadResource).Namespace(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		err = fmt.Errorf("cannot find a network-attachment-definition (%s) in namespace (%s): %w", s.Name, s.Namespace, err)
		if eventErr := k.warn(ctx, pod, "NoNetworkFound", err.Error()); eventErr != nil {
			return nad{}, fmt.Errorf("%w (and %w)", err, eventErr)
		}
		return nad{}, err
	}
	config, _, err := unstructured.NestedString(obj.Object, "spec", "config")
	if err != nil {
		return nad{}, fmt.Errorf("reading network-attachment-definition %s/%s: %w", s.Namespace, s.Name, err)
	}
	if config == "" {
		return nad{}, fmt.Errorf("network-attachment-definition %s/%s has no spec.config", s.Namespace, s.Name)
	}
	return nad{config: config, resource: obj.GetAnnotations()[AnnotationResource]}, nil
}

// warn records a Warning event about the pod.
func (k kube) warn(ctx context.Context, pod *unstructured.Unstructured, reason, message string) error {
	now := metav1.Now().UTC().Format(time.RFC3339)
	event := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Event",
		"metadata":   map[string]any{"generateName": pod.GetName() + ".", "namespace": pod.GetNamespace()},
		"involvedObject": map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"namespace": pod.GetNamespace(), "name": pod.GetName(), "uid": string(pod.GetUID()),
		},
		"reason":         reason,
		"message":        message,
		"type":           "Warning",
		"source":         map[string]any{"component": "multus"},
		"firstTimestamp": now,
		"lastTimestamp":  now,
		"count":          int64(1),
	}}
	_, err := k.client.Resource(eventResource).Namespace(pod.GetNamespace()).Create(ctx, event, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("recording event %s: %w", reason, err)
	}
	return nil
}

// setStatus writes the network-status annotation through the pod's status subresource. Because of the uid in the
// patch, the API server rejects it for another pod of the same name.
func (k kube) setStatus(ctx context.Context, pod *unstructured.Unstructured, statuses []NetworkStatus) error {
	text, err := statusAnnotation(statuses)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         pod.GetUID(),
		"annotations": map[string]string{AnnotationStatus: text},
	}})
	if err != nil {
		return fmt.Errorf("writing the patch of the network status: %w", err)
	}
	_, err = k.client.Resource(podResource).Namespace(pod.GetNamespace()).
		Patch(ctx, pod.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("writing the network status of pod %s/%s: %w", pod.GetNamespace(), pod.GetName(), err)
	}
	return nil
}
