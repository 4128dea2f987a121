package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Actions are pinned by commit, tokens are not left on the disk, and only the job that publishes a release may write.
func TestWorkflowsAreBounded(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%d workflows, %v", len(files), err)
	}
	pinned := regexp.MustCompile(`^[a-z-]+/[a-z-]+@[0-9a-f]{40}$`)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Permissions map[string]string
				Steps       []struct {
					Uses, Run string
					With      map[string]any
				}
			}
		}
		if err := yaml.Unmarshal(content, &workflow); err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		if len(workflow.Permissions) != 1 || workflow.Permissions["contents"] != "read" {
			t.Errorf("%s: permissions %v", name, workflow.Permissions)
		}
		for job, of := range workflow.Jobs {
			publishes := name == "release.yml" && job == "release"
			if (len(of.Permissions) > 0) != publishes {
				t.Errorf("%s: job %s has permissions %v", name, job, of.Permissions)
			}
			for _, step := range of.Steps {
				if step.Uses != "" && !pinned.MatchString(step.Uses) {
					t.Errorf("%s: %s is not pinned by commit", name, step.Uses)
				}
				if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false {
					t.Errorf("%s: job %s keeps the token in the checkout", name, job)
				}
				if publishes && regexp.MustCompile(`make (e2e|test|unit|integration)`).MatchString(step.Run) {
					t.Errorf("%s: %q runs tests with the right to publish", name, step.Run)
				}
			}
		}
	}
}
