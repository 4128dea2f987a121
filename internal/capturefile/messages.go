package capturefile

import (
	"bytes"
	"fmt"
	"strconv"
)

// half is a direction of a connection, or a datagram.
type half struct {
	*analysis
	Layout
	answer, datagram bool
	connection       int64
	ahead            map[uint32]int // by first byte, lengths of segments that wait for earlier ones
	// position is where part begins, which is of a message; first is that message's first packet.
	position int64
	part     []byte
	first    *packet
	ignore   int // the length of the rest of a message of which bytes are missing
}

func (h *half) skip(length int) {
	h.OtherBytes += int64(len(h.part))
	h.position += int64(len(h.part) + length)
	h.part = nil
	if size := int64(h.Size); h.Match != MatchFIX {
		h.ignore = int((size - h.position%size) % size)
	}
}

func (h *half) take(data []byte, at func(int) *packet) error {
	begin, held, done := min(h.ignore, len(data)), len(h.part), 0
	h.ignore -= begin
	h.position += int64(begin)
	h.OtherBytes += int64(begin)
	packetOf := func(i int) *packet {
		if i < held {
			return h.first
		}
		return at(begin + i - held)
	}
	if data = data[begin:]; held > 0 {
		data = append(h.part, data...)
	}
	for done < len(data) {
		size, key := h.message(data[done:], h.position+int64(done))
		if size == 0 {
			break
		}
		counts := done + size - 1
		if h.answer {
			counts = done
		}
		if done += size; key == nil {
			h.OtherBytes += int64(size)
		} else if err := h.matched(h.answer, key, packetOf(counts).place); err != nil {
			return err
		}
	}
	h.position += int64(done)
	if h.part = nil; done < len(data) {
		h.first = packetOf(done)
		h.part = bytes.Clone(data[done:])
	}
	return nil
}

// message returns the first message's size (0: more bytes are needed) and key (nil: it has none).
func (h *half) message(b []byte, position int64) (size int, key []byte) {
	if size = h.Size; h.datagram && size == 0 {
		size = len(b)
	}
	switch {
	case h.Match == MatchFIX:
		return h.fix(b)
	case len(b) < size:
		return 0, nil
	case h.Match == MatchSequence:
		return size, fmt.Appendf(nil, "%d/%d", h.connection, position/int64(size))
	case h.Offset+h.Length > size:
		return size, nil
	}
	return size, b[h.Offset : h.Offset+h.Length]
}

const (
	fixBegin, fixLength, fixEnd = "8=FIX", "9=", "\x01"
	fixHead, fixTrailer         = 40, 7 // the longest begin up to the body; the length of 10=NNN
)

func (h *half) fix(b []byte) (int, []byte) {
	fields := bytes.SplitN(b[:min(len(b), fixHead)], []byte(fixEnd), 3)
	begins := bytes.HasPrefix(b, []byte(fixBegin)[:min(len(b), len(fixBegin))])
	if begins && len(fields) < 3 && len(b) < fixHead {
		return 0, nil
	}
	if begins && len(fields) == 3 && bytes.HasPrefix(fields[1], []byte(fixLength)) {
		body, err := strconv.ParseUint(string(fields[1][len(fixLength):]), 10, 20)
		size := len(fields[0]) + len(fields[1]) + 2 + int(body) + fixTrailer
		switch possible := err == nil && size <= mostMessage; {
		case possible && len(b) < size:
			return 0, nil
		case possible && string(b[size-fixTrailer:size]) == fmt.Sprintf("10=%03d%s", sum(b[:size-fixTrailer]), fixEnd):
			_, value, _ := bytes.Cut(b[:size-fixTrailer], []byte(fixEnd+h.Tag+"="))
			value, _, _ = bytes.Cut(value, []byte(fixEnd))
			return size, append([]byte(nil), value...)
		}
	}
	if next := bytes.Index(b[1:], []byte(fixBegin)); next >= 0 {
		return next + 1, nil
	}
	return max(len(b)-len(fixBegin)+1, 1), nil
}

func sum(bytes []byte) (all byte) {
	for _, b := range bytes {
		all += b
	}
	return all
}
