package result

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// ErrNotListening is returned where no server has said yet at which address it listens.
var ErrNotListening = errors.New("no server says where it listens")

const (
	markListening = "tailgate-listening "
	// maxBeforeListening bounds how much of a log is read for the line, which stands at its beginning, in bytes.
	maxBeforeListening = 64 << 10
)

// ListenLine is the line, without its end, by which a server's agent tells on its log the address of its end: with the
// host's network nobody else knows that of the interface which is measured. The agent writes it before it is ready, and
// nothing before it.
func ListenLine(address netip.Addr) string { return markListening + address.Unmap().String() }

// ParseListen finds the address in the log of a server's pod. The first such line counts, as what a pod says is not to be
// trusted beyond what another node can reach: a global unicast address without a zone. The error wraps ErrNotListening
// when there is no line, ErrCorrupt when it has no such address; any other error is the reader's own.
func ParseListen(log io.Reader) (netip.Addr, error) {
	lines := bufio.NewReader(io.LimitReader(log, maxBeforeListening))
	for {
		line, err := readLine(lines)
		if err != nil && !errors.Is(err, io.EOF) {
			return netip.Addr{}, fmt.Errorf("reading a log: %w", err)
		}
		// A line without its end may go on.
		if err != nil {
			return netip.Addr{}, fmt.Errorf("%w on its log", ErrNotListening)
		}
		text, ok := strings.CutPrefix(line, markListening)
		if !ok {
			continue
		}
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" || address.Is4In6() || !address.IsGlobalUnicast() {
			return netip.Addr{}, fmt.Errorf("%w: the server says that it listens at %.64q", ErrCorrupt, text)
		}
		return address, nil
	}
}
