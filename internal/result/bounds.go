package result

import (
	"encoding/json"
	"fmt"
)

// What a document may be made of. The limits follow from what a legal run can hold: 400 cells, each with 128 intervals, 64
// slow samples and about 60 strings, and some 400 facts. A reader checks them before it decodes: a few kilobytes of
// compressed text can stand for structures of gigabytes.
const (
	// maxCompressed bounds a document as it travels and is stored, in bytes: a ConfigMap keeps no more.
	maxCompressed = maxStored
	// maxPlain bounds the JSON of a document, in bytes.
	maxPlain = 8 << 20
	// maxOuter bounds the members of objects and the elements of arrays that are in no array: among them the cells and the
	// entries of all maps.
	maxOuter = 4096
	// maxMembers bounds the members of objects in arrays that are in no other array: the fields of the cells, and the entries
	// of the maps that paths have.
	maxMembers = 128 << 10
	// maxInner bounds the elements of arrays within arrays, all together: intervals, slow samples, strings of commands.
	maxInner = 128 << 10
	// maxConditions bounds the JSON of what is left of a document without its measurements, in bytes: the conditions of
	// its end, of which agents tell at most 8 KiB of facts, and those of 400 cells.
	maxConditions = 512 << 10
	// maxDepth bounds how deep objects and arrays are nested.
	maxDepth = 16
)

// checkPlain returns an error if the JSON of a document is more than a reader decodes.
func checkPlain(plain []byte) error {
	if len(plain) > maxPlain {
		return fmt.Errorf("it has more than %d MiB of JSON", maxPlain>>20)
	}
	return checkStructure(plain)
}

// checkConditions returns an error if the conditions of a document are more than a reader keeps in memory.
func checkConditions(d Document) error {
	text, err := json.Marshal(d.withoutMeasurements())
	if err == nil && len(text) > maxConditions {
		err = fmt.Errorf("its conditions take %d KiB, and at most %d KiB are possible", (len(text)+1023)>>10, maxConditions>>10)
	}
	return err
}

// checkStructure counts what a JSON text is made of and returns an error if that is more than a document may have. It does
// not allocate and takes one pass. Text that is not JSON is left to the decoder, which refuses it.
func checkStructure(plain []byte) error {
	var (
		inArray               [maxDepth + 1]int // how many of the enclosing containers are arrays
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
		// The first element of a container is counted with its opening, each other one with the comma before it.
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
