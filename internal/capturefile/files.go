package capturefile

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

const (
	// mostPacket bounds a packet as libpcap does, mostOther what a file has besides packets.
	mostPacket, mostOther, headers = 256 << 10, 16 << 20, 256
	// step is by how much packets may be out of order; more is a step of the clock.
	step = time.Millisecond

	magicNg, magicGzip = 0x0a0d0d0a, 0x1f8b
)

// File is a capture in the format pcap or pcapng, maybe compressed by gzip.
type File struct {
	Name string
	io.Reader
}

type place struct {
	file       string
	number, at int64
}

func (p place) String() string { return fmt.Sprintf("%s: packet %d", p.file, p.number) }

type packet struct {
	place
	data   []byte
	link   layers.LinkType
	info   gopacket.CaptureInfo
	answer bool
}

func (p *packet) GetCaptureInfo() gopacket.CaptureInfo { return p.info }

// source is a file as it is read: next is the packet to be taken, newest the newest up to it.
type source struct {
	reader interface {
		gopacket.ZeroCopyPacketDataSource
		LinkType() layers.LinkType
	}
	left   *io.LimitedReader
	next   *packet
	newest place
}

func open(f File, r *Result) (*source, error) {
	begin := bufio.NewReaderSize(f.Reader, mostPacket)
	magic, err := begin.Peek(4)
	if err == nil && binary.BigEndian.Uint16(magic) == magicGzip {
		var z *gzip.Reader
		if z, err = gzip.NewReader(begin); err == nil {
			begin = bufio.NewReaderSize(z, mostPacket)
			magic, err = begin.Peek(4)
		}
	}
	s := &source{next: &packet{place: place{file: f.Name}}, left: &io.LimitedReader{R: begin, N: mostOther}}
	if err == nil && binary.BigEndian.Uint32(magic) == magicNg {
		s.reader, err = pcapgo.NewNgReader(s.left, pcapgo.NgReaderOptions{ErrorOnMismatchingLinkType: true})
	} else if err == nil {
		var old *pcapgo.Reader
		if old, err = pcapgo.NewReader(s.left); err == nil {
			old.SetSnaplen(min(old.Snaplen(), mostPacket))
		}
		s.reader = old
	}
	if err != nil {
		return nil, fmt.Errorf("%s: it is no capture in the format pcap or pcapng: %w", f.Name, err)
	}
	if err = s.advance(r); errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s: it has no packet", f.Name)
	}
	return s, err
}

// advance reads the next packet, in the place of the data before. The error is io.EOF at the end.
func (s *source) advance(r *Result) (err error) {
	p := &packet{place: place{file: s.next.file, number: s.next.number + 1}, link: s.reader.LinkType()}
	p.data, p.info, err = s.reader.ZeroCopyReadPacketData()
	p.at = p.info.Timestamp.UnixNano()
	binary := false
	if ng, ok := s.reader.(*pcapgo.NgReader); ok && err == nil {
		of, _ := ng.Interface(p.info.InterfaceIndex)
		binary = of.TimestampResolution.Binary()
	}
	switch {
	case binary:
		return fmt.Errorf("%s: its time has a binary resolution, which is not read: editcap -F nsecpcap converts it", p.place)
	case err != nil && s.left.N == 0:
		return fmt.Errorf("%s: a block is too long, or there are more than %d MiB besides packets", p.place, mostOther>>20)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF) && p.info.CaptureLength > 0:
		return fmt.Errorf("%s: the file ends within it", p.place)
	case errors.Is(err, io.EOF):
		return err
	case err != nil:
		return fmt.Errorf("%s: %w", p.place, err)
	case len(p.data) > mostPacket:
		return fmt.Errorf("%s: it has %d bytes, and %d are possible", p.place, len(p.data), mostPacket)
	case p.info.Timestamp.Year() < 1970 || p.info.Timestamp.Year() > 2200:
		return fmt.Errorf("%s: it has no time", p.place)
	case s.newest.at-p.at > int64(step):
		return fmt.Errorf("%s: it is %s older than packet %d: the clock stepped back, or the file is not in the order of time (reordercap sorts it)",
			p.place, time.Duration(s.newest.at-p.at), s.newest.number)
	case s.newest.at > p.at:
		r.OutOfOrder++
	default:
		s.newest = p.place
	}
	s.next = p
	s.left.N = min(s.left.N+int64(len(p.data))+headers, mostOther)
	return nil
}

func each(files []File, r *Result, take func(*packet) error) error {
	var sources []*source
	for _, f := range files {
		s, err := open(f, r)
		if err != nil {
			return err
		}
		sources = append(sources, s)
	}
	for len(sources) > 0 {
		s := slices.MinFunc(sources, func(a, b *source) int { return cmp.Compare(a.next.at, b.next.at) })
		if r.Packets++; r.Packets == 1 {
			r.First = s.next.info.Timestamp
		}
		r.Last = s.next.info.Timestamp
		if err := take(s.next); err != nil {
			return err
		}
		if err := s.advance(r); errors.Is(err, io.EOF) {
			sources = slices.DeleteFunc(sources, func(ended *source) bool { return ended == s })
		} else if err != nil {
			return err
		}
	}
	return nil
}
