package result

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"

	"github.com/tailgate-dev/tailgate/internal/text"
)

// maxTermination is the size of a termination message that the kubelet keeps, in bytes.
const maxTermination = 4096

// Termination is an agent's final report, the termination message of its container.
type Termination struct {
	// Reason is one of the API's for an attempt; empty with a result in the log.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Encode returns JSON of at most 4096 bytes. A message that is too long ends in "…".
func (t Termination) Encode() ([]byte, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encoding a termination message: %w", err)
	}
	if len(b) <= maxTermination {
		return b, nil
	}
	// JSON escapes make some characters longer, so the longest message that fits is searched for.
	message := t.Message
	fits := func(limit int) bool {
		t.Message = text.Shorten(message, limit)
		b, err = json.Marshal(t)
		return err == nil && len(b) <= maxTermination
	}
	if beyond := sort.Search(len(message), func(limit int) bool { return !fits(limit) }); !fits(beyond - 1) {
		return nil, fmt.Errorf("encoding a termination message: the reason alone takes more than %d bytes", maxTermination)
	}
	return b, nil
}

func (t Termination) WriteFile(path string) error {
	b, err := t.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return fmt.Errorf("writing the termination message: %w", err)
	}
	return nil
}

// ParseTermination reads a termination message. The runtime's own messages are errors.
func ParseTermination(message string) (Termination, error) {
	var t Termination
	if len(message) > maxTermination {
		return Termination{}, fmt.Errorf("reading a termination message: it has %d bytes, and the kubelet keeps at most %d", len(message), maxTermination)
	}
	if err := json.Unmarshal([]byte(message), &t); err != nil {
		return Termination{}, fmt.Errorf("reading a termination message: %w", err)
	}
	return t, nil
}
