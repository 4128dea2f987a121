package main

import (
	"testing"
)

func TestRelatedImagesRefuses(t *testing.T) {
	for want, containers := range map[string][]any{
		"the Deployment has 0 containers, not one": {},
		"the Deployment has 2 containers, not one": {map[string]any{"name": "manager"}, map[string]any{"name": "proxy"}},
		"the Deployment has no --bench-image":      {map[string]any{"name": "manager"}},
	} {
		deployment := map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}
		if err := new(bundle).relatedImages(deployment); err == nil || err.Error() != want {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}
