// Command occupant is the program in pods that the end-to-end tests inspect: it is idle, spins, fills MiB of memory, or is no longer root.
package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

var filled []byte // not local: the garbage collector frees what no code uses later

func main() {
	words := slices.Concat(os.Args[1:], []string{"0"})
	var err error
	switch words[0] {
	case "idle":
	case "spin":
		for {
		}
	case "fill":
		var mebibytes int
		if mebibytes, err = strconv.Atoi(words[1]); err == nil {
			filled = make([]byte, mebibytes<<20)
			for at := 0; at < len(filled); at += 4096 {
				filled[at] = 1
			}
		}
	case "setuid":
		err = syscall.Setuid(1001)
	default:
		err = fmt.Errorf("usage: occupant idle|spin|fill MIB|setuid")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "occupant:", err)
		os.Exit(1)
	}
	for {
		time.Sleep(time.Hour)
	}
}
