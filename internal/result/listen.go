package result

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// ErrNotListening is returned if no server has reported its address yet.
var ErrNotListening = errors.New("the log contains no address at which a server listens")

// maxBeforeListening is the number of bytes of a log that are read for the line, which is at the beginning.
const maxBeforeListening = 64 << 10

// ListenLine returns the line, without its line ending, in which a server's agent reports the address of its end in its log:
// with the host's network, no other program knows the address of the measured interface. The agent writes it before it is
// ready, and writes nothing before it.
func ListenLine(address netip.Addr) string {
	return mark + kindListening + " " + address.Unmap().String()
}

// ParseListen finds the address in the log of a server's pod. The first such line counts. The log is not trusted, so the
// address must be one that another node can reach: a global unicast address without a zone. The error wraps ErrNotListening if
// there is no line, and ErrCorrupt if it contains no such address; any other error is the reader's own.
func ParseListen(log io.Reader) (netip.Addr, error) {
	for r, err := range records(log, maxBeforeListening) {
		switch {
		case err != nil:
			return netip.Addr{}, err
		// A line without its line ending may be incomplete.
		case r.kind != kindListening || !r.whole:
			continue
		}
		address, err := netip.ParseAddr(r.content)
		if err != nil || address.Zone() != "" || address.Is4In6() || !address.IsGlobalUnicast() {
			return netip.Addr{}, fmt.Errorf("%w: the server reports that it listens at %.64q", ErrCorrupt, r.content)
		}
		return address, nil
	}
	return netip.Addr{}, fmt.Errorf("%w on its log", ErrNotListening)
}
