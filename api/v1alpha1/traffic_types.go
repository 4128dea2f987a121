package v1alpha1

import (
	"fmt"
	"strings"
	"time"
)

// Traffic is what a cell sends. Two cells with equal Traffic (==) measure the same thing.
type Traffic struct {
	// protocol is TCP, UDP or Multicast.
	Protocol Protocol `json:"protocol"`
	// messageSize is the payload of each message, in bytes.
	MessageSize int32 `json:"messageSize"`
	// ratePerSecond is the number of messages that are sent each second (open loop); absent for ping-pong and streams.
	RatePerSecond int32 `json:"ratePerSecond,omitempty"`
	// stream is true for a cell that measures bandwidth: messages go one way, as fast as possible.
	Stream bool `json:"stream,omitempty"`
}

// CellName returns the name of the cell with this traffic, such as tcp-64, udp-64-at-23000 or tcp-stream-65536.
func (t Traffic) CellName() string {
	name := strings.ToLower(string(t.Protocol))
	if t.Stream {
		name += "-stream"
	}
	name = fmt.Sprintf("%s-%d", name, t.MessageSize)
	if t.OpenLoop() {
		name += fmt.Sprintf("-at-%d", t.RatePerSecond)
	}
	return name
}

func (t Traffic) OpenLoop() bool { return t.RatePerSecond > 0 }

// SentIn returns how many messages are sent in a time at the rate; 0 without a rate.
func (t Traffic) SentIn(d time.Duration) float64 { return float64(t.RatePerSecond) * d.Seconds() }

func (t Traffic) OfSize(size int32) Traffic {
	t.MessageSize = size
	return t
}
