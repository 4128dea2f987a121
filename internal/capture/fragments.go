package capture

import "slices"

// fragments reassembles datagrams that arrived in several packets. It remembers only as many as may be in flight at a time
// on one path; a datagram that stays incomplete was lost, and makes room for the next.
type fragments struct {
	partial [16]datagram
	next    int
}

type datagram struct {
	id uint32
	// offsets are the offsets of the fragments that have arrived, and bytes is their total length.
	offsets []int
	bytes   int
	// first is the first fragment, whose head is kept in name.
	first    packet
	hasFirst bool
	name     [8]byte
}

// join takes a fragment and reports whether it completes a datagram, which it returns with the time of this fragment. For a
// datagram that leaves, the first fragment stands for the whole.
func (f *fragments) join(p packet) (packet, bool) {
	if p.out {
		return p, p.fragment.offset == 0
	}
	d := f.find(p.fragment.id)
	if slices.Contains(d.offsets, p.fragment.offset) {
		return packet{}, false // it came twice
	}
	d.offsets = append(d.offsets, p.fragment.offset)
	d.bytes += p.fragment.length
	if p.fragment.offset == 0 {
		d.first, d.hasFirst = p, true
		d.first.head = d.name[:copy(d.name[:], p.head)]
	}
	if !d.hasFirst || d.bytes < udpHeader+d.first.payload {
		return packet{}, false
	}
	whole := d.first
	whole.at = p.at
	d.offsets = d.offsets[:0]
	return whole, true
}

func (f *fragments) find(id uint32) *datagram {
	for i := range f.partial {
		if d := &f.partial[i]; d.id == id && len(d.offsets) > 0 {
			return d
		}
	}
	d := &f.partial[f.next]
	f.next = (f.next + 1) % len(f.partial)
	*d = datagram{id: id, offsets: d.offsets[:0]}
	return d
}
