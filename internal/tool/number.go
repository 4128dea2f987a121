package tool

// CutNumber reads an unsigned number of at most digits digits and exactly decimals after a point,
// in units of the last, and returns the rest, without making strings: files have millions.
func CutNumber(line []byte, digits, decimals int) (n int64, rest []byte, ok bool) {
	point := 0
	for ; point < len(line) && line[point]-'0' <= 9; point++ {
		if point == digits {
			return 0, nil, false
		}
		n = n*10 + int64(line[point]-'0')
	}
	if point == 0 || decimals == 0 {
		return n, line[point:], point > 0
	}
	end := point + 1 + decimals
	if end > len(line) || line[point] != '.' {
		return 0, nil, false
	}
	for _, c := range line[point+1 : end] {
		if c-'0' > 9 {
			return 0, nil, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, line[end:], true
}
