package result

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/internal/tool"
)

var (
	ErrMissing = errors.New("no result")
	// ErrCorrupt: a result is incomplete, not the announced one, or of another format.
	ErrCorrupt = errors.New("corrupt result")
	// ErrVersion: the format has another version. It wraps ErrCorrupt.
	ErrVersion  = fmt.Errorf("%w of another version", ErrCorrupt)
	ErrTooLarge = errors.New("result too large") // it does not fit in its storage
)

// Framed is a document with the bytes that were verified.
type Framed struct {
	Document   Document
	Compressed []byte // in transit: JSON in gzip
	Digest     string // the SHA-256 of Compressed, in hex
}

func WriteFrame(w io.Writer, d Document) error {
	framed, err := compress(d)
	if err != nil {
		return err
	}
	if n := len(framed.Compressed); n > maxStored {
		return fmt.Errorf("%w: %d KiB compressed, and at most %d KiB can be stored", ErrTooLarge, (n+1023)>>10, maxStored>>10)
	}
	return writeFrame(w, frameResult, Version, framed.Compressed)
}

const frameResult = "result"

// AwaitFrame reads a log to the end of a result, or returns ErrMissing or the reader's error.
func AwaitFrame(log io.Reader) error {
	begun := false
	for r, err := range records(log, MaxLog) {
		switch {
		case err != nil:
			return err
		case r.kind == kindBegin:
			begun = strings.HasPrefix(r.content, frameResult+" ")
		case r.kind == kindEnd && begun:
			return nil
		}
	}
	return fmt.Errorf("%w in the log", ErrMissing)
}

// ReadFrame returns the first result in a log that matches the digest at its end. The error wraps
// ErrMissing without a frame, ErrCorrupt if one is incomplete or has another digest, ErrVersion for
// another version, or is the reader's. Unknown fields are ignored: an agent may report more.
func ReadFrame(r io.Reader) (Framed, error) { return readFrame(r, frameResult, Version, expand) }

// ReadFrameOf is like ReadFrame for the result of one role, in a log that has those of both.
func ReadFrameOf(r io.Reader, role string) (Framed, error) {
	return readFrame(r, frameResult, Version, func(compressed []byte, digest string) (Framed, error) {
		framed, err := expand(compressed, digest)
		if err == nil && framed.Document.Role != role {
			err = fmt.Errorf("%w of the %s", ErrMissing, role)
		}
		return framed, err
	})
}

// compress prepares a document for transit, or wraps ErrTooLarge if no reader accepts its JSON.
func compress(d Document) (Framed, error) {
	plain, err := json.Marshal(d)
	if err != nil {
		return Framed{}, fmt.Errorf("encoding a result: %w", err)
	}
	// What a driver, a file or a tool said may have such characters, which a reader refuses.
	plain, _ = withoutControls(plain)
	if err := errors.Join(checkPlain(plain), checkConditions(d)); err != nil {
		return Framed{}, fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	compressed, err := deflate(plain)
	return Framed{Document: d, Compressed: compressed, Digest: digestOf(compressed)}, err
}

func deflate(plain []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(plain)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compressing: %w", err)
	}
	return b.Bytes(), nil
}

// inflate verifies compressed JSON by its digest and decodes it; errors wrap ErrCorrupt.
func inflate(compressed []byte, wantDigest string, wantVersion int, into any) error {
	if len(compressed) > maxStored {
		return fmt.Errorf("%w: %d KiB compressed, and at most %d KiB are stored", ErrCorrupt, (len(compressed)+1023)>>10, maxStored>>10)
	}
	if digest := digestOf(compressed); digest != wantDigest {
		return fmt.Errorf("%w: its content has the digest %s, not %.64q", ErrCorrupt, digest, wantDigest)
	}
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	var plain []byte
	if err == nil {
		plain, err = io.ReadAll(io.LimitReader(z, maxPlain+1))
	}
	if err == nil {
		err = checkPlain(plain)
	}
	// The version is decoded first, because a field of another version may have another type.
	var format struct{ Version int }
	if err == nil {
		err = json.Unmarshal(plain, &format)
	}
	if err == nil && format.Version != wantVersion {
		return otherVersion(strconv.Itoa(format.Version), wantVersion)
	}
	if err == nil {
		err = json.Unmarshal(plain, into)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

func otherVersion(format string, want int) error {
	return fmt.Errorf("%w: its format is %.20q, not %d: use a manager, a bench image and a command of the same minor version", ErrVersion, format, want)
}

// expand verifies a compressed document by its digest and decodes it, or wraps ErrCorrupt.
func expand(compressed []byte, wantDigest string) (Framed, error) {
	framed := Framed{Compressed: compressed, Digest: wantDigest}
	if err := inflate(compressed, wantDigest, Version, &framed.Document); err != nil {
		return Framed{}, err
	}
	if err := errors.Join(checkConditions(framed.Document), checkCells(framed.Document)); err != nil {
		return Framed{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return framed, nil
}

// checkCells refuses what a status or sums of rounds cannot hold: any program may write it.
func checkCells(d Document) error {
	for _, c := range d.Cells {
		if c.Lost < 0 || c.Lost > 1<<50 {
			return fmt.Errorf("cell %.64q lost %d messages", c.Name, c.Lost)
		}
		if !slices.Contains([]tool.StartTime{"", tool.StartIntended, tool.StartActual}, c.Start) {
			return fmt.Errorf("cell %.64q counts from %.64q", c.Name, c.Start)
		}
	}
	return nil
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Digest returns the SHA-256, in hex, of a value as JSON, in which the keys of maps are sorted.
func Digest(value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encoding what is to be digested: %w", err)
	}
	return digestOf(data), nil
}
