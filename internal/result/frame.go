package result

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// What can be wrong with a result, for errors.Is.
var (
	// ErrMissing is returned where no result was found.
	ErrMissing = errors.New("no result")
	// ErrCorrupt is returned where a result is not whole, not the one that was announced, or of another format.
	ErrCorrupt = errors.New("corrupt result")
	// ErrTooLarge is returned for a result that does not fit where it should be kept.
	ErrTooLarge = errors.New("result too large")
)

// A frame is made of lines that all begin with the same word, so that others may stand before, after and even
// between them (the log of a container is two streams in one):
//
//	tailgate-result begin 1 <bytes>
//	tailgate-result data <base64 of the compressed document, at most 4 KiB a line>
//	tailgate-result end <SHA-256 of the compressed document, in hex>
const (
	markBegin = "tailgate-result begin "
	markData  = "tailgate-result data "
	markEnd   = "tailgate-result end "
	// bytesPerLine in base64, with the mark and the line's end, stay within 4 KiB.
	bytesPerLine = 3030
	maxLine      = 4096
	// MaxLog is how much of a pod's log is read, in bytes: a result takes at most 1.3 MiB of it, and agents write little
	// besides. What comes later is not read, so that a result which stands there is missing.
	MaxLog = 8 << 20
)

// Framed is a document together with the bytes that were verified.
type Framed struct {
	// Document is the content.
	Document Document
	// Compressed is the document as it travelled: JSON in gzip.
	Compressed []byte
	// Digest is the SHA-256 of Compressed, in hex.
	Digest string
}

// WriteFrame writes a document to a log and returns the digest by which its reader will know it.
func WriteFrame(w io.Writer, d Document) (digest string, err error) {
	framed, err := compress(d)
	if err != nil {
		return "", err
	}
	if n := len(framed.Compressed); n > maxCompressed {
		return "", fmt.Errorf("%w: %d KiB compressed, and at most %d KiB can be stored", ErrTooLarge, (n+1023)>>10, maxCompressed>>10)
	}
	b := bufio.NewWriter(w)
	// A new line first: what is on the log before need not have ended its own.
	fmt.Fprintf(b, "\n%s%d %d\n", markBegin, Version, len(framed.Compressed))
	for rest := framed.Compressed; len(rest) > 0; {
		n := min(len(rest), bytesPerLine)
		fmt.Fprintf(b, "%s%s\n", markData, base64.StdEncoding.EncodeToString(rest[:n]))
		rest = rest[n:]
	}
	fmt.Fprintf(b, "%s%s\n", markEnd, framed.Digest)
	if err := b.Flush(); err != nil {
		return "", fmt.Errorf("writing a result: %w", err)
	}
	return framed.Digest, nil
}

// Framing says whether a line of a log is part of a frame, and so not for people.
func Framing(line string) bool {
	return strings.HasPrefix(line, markBegin) || strings.HasPrefix(line, markData) || strings.HasPrefix(line, markEnd)
}

// ReadFrame finds the frame with a digest in a log and verifies it. The error wraps ErrMissing when there is no
// frame, ErrCorrupt when there is one and it is not whole, not of that digest, or not of this version; any
// other error is the reader's own, and says nothing of the result.
//
// Fields that this version does not know are ignored: a newer agent may say more, as long as what it says means
// the same. What changes the meaning changes the version, and is refused.
func ReadFrame(r io.Reader, wantDigest string) (Framed, error) {
	var (
		lines   = bufio.NewReader(io.LimitReader(r, MaxLog))
		current *frame
		problem error
	)
	for {
		line, err := readLine(lines)
		if err != nil && !errors.Is(err, io.EOF) {
			return Framed{}, fmt.Errorf("reading a log: %w", err)
		}
		switch rest := ""; {
		case cut(line, markBegin, &rest):
			current = begin(rest)
		case current == nil:
		case cut(line, markData, &rest):
			current.add(rest)
		case cut(line, markEnd, &rest):
			framed, wrong := current.end(rest, wantDigest)
			if wrong == nil {
				return framed, nil
			}
			current, problem = nil, wrong
		}
		if errors.Is(err, io.EOF) {
			break
		}
	}
	switch {
	case current != nil:
		return Framed{}, fmt.Errorf("%w: the log ends within it", ErrCorrupt)
	case problem != nil:
		return Framed{}, problem
	}
	return Framed{}, fmt.Errorf("%w in the log", ErrMissing)
}

// frame is a frame that is being read.
type frame struct {
	size    int
	content []byte
	wrong   error
}

func begin(header string) *frame {
	f := &frame{}
	version, size, _ := strings.Cut(header, " ")
	if version != strconv.Itoa(Version) {
		f.wrong = fmt.Errorf("%w: its format is %.20q, not %d: agent and manager must be of one release", ErrCorrupt, version, Version)
		return f
	}
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 || n > maxCompressed {
		f.wrong = fmt.Errorf("%w: a size of %.20q bytes", ErrCorrupt, size)
		return f
	}
	f.size = n
	return f
}

// add appends a line. What does not decode, or is too much, makes the whole frame wrong.
func (f *frame) add(line string) {
	if f.wrong != nil {
		return
	}
	var err error
	if f.content, err = base64.StdEncoding.AppendDecode(f.content, []byte(line)); err != nil {
		f.wrong = fmt.Errorf("%w: %w", ErrCorrupt, err)
	} else if len(f.content) > f.size {
		f.wrong = fmt.Errorf("%w: more than %d bytes", ErrCorrupt, f.size)
	}
}

func (f *frame) end(digest, wantDigest string) (Framed, error) {
	if f.wrong != nil {
		return Framed{}, f.wrong
	}
	if len(f.content) != f.size {
		return Framed{}, fmt.Errorf("%w: %d bytes of %d", ErrCorrupt, len(f.content), f.size)
	}
	if digest != wantDigest {
		return Framed{}, fmt.Errorf("%w: its digest is %.64q, not %.64q", ErrCorrupt, digest, wantDigest)
	}
	return expand(f.content, wantDigest)
}

// compress makes a document ready to travel. The error wraps ErrTooLarge when its JSON is more than a reader takes.
func compress(d Document) (Framed, error) {
	plain, err := json.Marshal(d)
	if err != nil {
		return Framed{}, fmt.Errorf("encoding a result: %w", err)
	}
	if err := errors.Join(checkPlain(plain), checkConditions(d)); err != nil {
		return Framed{}, fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return Framed{}, fmt.Errorf("compressing a result: %w", err)
	}
	if _, err := z.Write(plain); err != nil {
		return Framed{}, fmt.Errorf("compressing a result: %w", err)
	}
	if err := z.Close(); err != nil {
		return Framed{}, fmt.Errorf("compressing a result: %w", err)
	}
	return Framed{Document: d, Compressed: b.Bytes(), Digest: digestOf(b.Bytes())}, nil
}

// expand verifies a compressed document against its digest and reads it. Its errors wrap ErrCorrupt.
func expand(compressed []byte, wantDigest string) (Framed, error) {
	if len(compressed) > maxCompressed {
		return Framed{}, fmt.Errorf("%w: %d KiB compressed, and at most %d KiB are stored", ErrCorrupt, (len(compressed)+1023)>>10, maxCompressed>>10)
	}
	framed := Framed{Compressed: compressed, Digest: digestOf(compressed)}
	if framed.Digest != wantDigest {
		return Framed{}, fmt.Errorf("%w: its content has the digest %s, not %.64q", ErrCorrupt, framed.Digest, wantDigest)
	}
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return Framed{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxPlain+1))
	if err == nil {
		err = checkPlain(plain)
	}
	if err == nil {
		err = json.Unmarshal(plain, &framed.Document)
	}
	if err == nil {
		err = checkConditions(framed.Document)
	}
	if err != nil {
		return Framed{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if framed.Document.Version != Version {
		return Framed{}, fmt.Errorf("%w: its format is %d, not %d: agent and manager must be of one release", ErrCorrupt, framed.Document.Version, Version)
	}
	return framed, nil
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// readLine reads a line without its end. Of one that is too long to be ours it returns the beginning only.
func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if room := maxLine - len(line); room > 0 {
			line = append(line, part[:min(len(part), room)]...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return strings.TrimRight(string(line), "\r\n"), err
		}
	}
}

// cut says whether a line begins with a mark, and leaves what follows it in rest.
func cut(line, mark string, rest *string) bool {
	after, ok := strings.CutPrefix(line, mark)
	*rest = after
	return ok
}
