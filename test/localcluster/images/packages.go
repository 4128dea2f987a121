package images

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// packageName matches Debian package names (Debian policy 5.6.1).
var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)

// ParsePackages reads a list of Debian packages, one per line. Comments start with #. The error names the first line that
// is not a package name or is a duplicate.
func ParsePackages(r io.Reader) ([]string, error) {
	var packages []string
	seen := map[string]bool{}
	scanner := bufio.NewScanner(r)
	for line := 1; scanner.Scan(); line++ {
		text, _, _ := strings.Cut(scanner.Text(), "#")
		text = strings.TrimSpace(text)
		switch {
		case text == "":
			continue
		case !packageName.MatchString(text):
			return nil, fmt.Errorf("line %d: %q is not the name of a package", line, text)
		case seen[text]:
			return nil, fmt.Errorf("line %d: %s is listed twice", line, text)
		}
		seen[text] = true
		packages = append(packages, text)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("reading the list of packages: %w", err)
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("the list of packages is empty")
	}
	return packages, nil
}

func loadPackages(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the list of packages: %w", err)
	}
	defer f.Close()
	packages, err := ParsePackages(f)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return packages, nil
}
