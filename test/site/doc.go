// Package site tests in a browser the site that `make site` builds from docs/. `make site` runs the test.
package site
