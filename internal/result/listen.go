package result

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// ErrNotListening is returned where no server has said yet at which address it listens.
var ErrNotListening = errors.New("the log contains no address at which a server listens")

// maxBeforeListening bounds how much of a log is read for the line, which stands at its beginning, in bytes.
const maxBeforeListening = 64 << 10

// ListenLine is the line, without its end, by which a server's agent tells on its log the address of its end: with the
// host's network no other program knows the address of the measured interface. The agent writes it before it is ready, and
// nothing before it.
func ListenLine(address netip.Addr) string {
	return mark + kindListening + " " + address.Unmap().String()
}

// ParseListen finds the address in the log of a server's pod. The first such line counts, as what a pod says is not to be
// trusted beyond what another node can reach: a global unicast address without a zone. The error wraps ErrNotListening
// when there is no line, ErrCorrupt when it has no such address; any other error is the reader's own.
func ParseListen(log io.Reader) (netip.Addr, error) {
	for r, err := range records(log, maxBeforeListening) {
		switch {
		case err != nil:
			return netip.Addr{}, err
		// A line without its end may go on.
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
