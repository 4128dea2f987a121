package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode"
)

// The limits of a document, checked before it is decoded: kilobytes of compressed text can expand
// to gigabytes. They follow from a legal run: 400 cells, each with 128 intervals, 64 slow samples
// and about 60 strings, and some 400 facts.
const (
	// maxPlain is the maximum size of the JSON of a document, in bytes.
	maxPlain = 8 << 20
	// maxOuter bounds members and elements outside arrays, such as cells.
	maxOuter = 4096
	// maxMembers bounds objects' members in outer arrays: the fields of cells.
	maxMembers = 128 << 10
	// maxInner bounds elements of inner arrays: intervals, slow samples, commands.
	maxInner = 128 << 10
	// maxConditions bounds the JSON without its measurements, in bytes.
	maxConditions = 512 << 10
	maxDepth      = 16
)

// checkPlain returns an error if a document's JSON exceeds what a reader decodes.
func checkPlain(plain []byte) error {
	if len(plain) > maxPlain {
		return fmt.Errorf("it has more than %d MiB of JSON", maxPlain>>20)
	}
	if _, found := withoutControls(plain); found {
		return errors.New("it has characters that control a terminal")
	}
	return checkStructure(plain)
}

// withoutControls replaces characters of a JSON text that control a terminal, raw or escaped,
// except tabs and line ends. It copies the text only if it found some.
func withoutControls(plain []byte) (clean []byte, found bool) {
	kept := 0
	for i := 0; i < len(plain); {
		length, control := 1, plain[i] == 0x7f
		switch {
		case plain[i] == '\\' && i+1 < len(plain):
			length, control = 2, bytes.IndexByte([]byte("bfr"), plain[i+1]) >= 0
			if plain[i+1] == 'u' && i+6 <= len(plain) {
				code, err := strconv.ParseUint(string(plain[i+2:i+6]), 16, 16)
				length, control = 6, err == nil && unicode.IsControl(rune(code)) && code != '\n' && code != '\t'
			}
		case plain[i] == 0xc2 && i+1 < len(plain):
			length, control = 2, plain[i+1] < 0xa0
		}
		if control {
			clean, kept = append(append(clean, plain[kept:i]...), string(unicode.ReplacementChar)...), i+length
		}
		i += length
	}
	if kept == 0 {
		return plain, false
	}
	return append(clean, plain[kept:]...), true
}

// checkConditions returns an error if a document's conditions exceed what a reader keeps.
func checkConditions(d Document) error {
	text, err := json.Marshal(d.withoutMeasurements())
	if err == nil && len(text) > maxConditions {
		err = fmt.Errorf("its conditions take %d KiB, and at most %d KiB are possible", (len(text)+1023)>>10, maxConditions>>10)
	}
	return err
}

// checkStructure refuses a JSON text with too many elements. It neither allocates nor validates.
func checkStructure(plain []byte) error {
	var (
		inArray               [maxDepth + 1]int // the number of enclosing containers that are arrays
		array                 [maxDepth + 1]bool
		depth                 int
		outer, members, inner int
	)
	for i := 0; i < len(plain); i++ {
		switch plain[i] {
		case '"':
			for i++; i < len(plain) && plain[i] != '"'; i++ {
				if plain[i] == '\\' {
					i++
				}
			}
			continue
		case '{', '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("it is nested deeper than %d", maxDepth)
			}
			array[depth] = plain[i] == '['
			inArray[depth] = inArray[depth-1]
			if array[depth] {
				inArray[depth]++
			}
		case '}', ']':
			depth = max(0, depth-1)
			continue
		case ',':
		default:
			continue
		}
		// A first element counts at its bracket, others at the comma before.
		switch {
		case inArray[depth] == 0 || inArray[depth] == 1 && array[depth]:
			outer++
		case array[depth]:
			inner++
		case inArray[depth] == 1:
			members++
		}
		if outer > maxOuter || members > maxMembers || inner > maxInner {
			return fmt.Errorf("it has more than %d values outside of arrays, %d members of objects in arrays, or %d elements of arrays in arrays",
				maxOuter, maxMembers, maxInner)
		}
	}
	return nil
}
