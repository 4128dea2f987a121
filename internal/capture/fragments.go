package capture

import "slices"

// fragments puts datagrams together that came in several packets. It remembers only as many as may be under way at a
// time on one path; what remains without its other parts was lost, and gives room to the next.
type fragments struct {
	partial [16]datagram
	next    int
}

// datagram is one of which a part has come.
type datagram struct {
	id uint32
	// offsets are those of the parts that have come, bytes is what they hold together.
	offsets []int
	bytes   int
	// first is the first part, whose head is kept in name.
	first    packet
	hasFirst bool
	name     [8]byte
}

// join takes a part of a datagram and says whether this makes a whole: the datagram, with the time of this part. Of
// what leaves, the first part stands for the whole.
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

// find is the datagram of a number, or an empty one.
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
