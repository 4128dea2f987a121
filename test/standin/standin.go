// Package standin lets a test answer commands in the place of programs that its machine does not have, such as ssh and docker. The program
// of test/cmd/standin, under the names of these programs, passes each call to the test through a socket.
package standin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// Environment variables of the program.
const (
	// Socket is the path of the test's socket.
	Socket = "STANDIN_SOCKET"
	// Node is the node that the program runs on; empty: the workstation.
	Node = "STANDIN_NODE"
)

// Call is a call of a program.
type Call struct {
	// Program is its name, Args are its arguments, and Dir is its working directory.
	Program string
	Args    []string
	Dir     string
	// Node is the value of variable Node.
	Node string
}

// Answer is what the test makes of a call.
type Answer struct {
	// Exec is a command that replaces the program, with the path of its executable first; empty: the program prints Output and ends.
	Exec   []string
	Output string
	Code   int
}

// Serve answers calls until the listener is closed.
func Serve(listener net.Listener, answer func(Call) Answer) error {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("waiting for a call: %w", err)
		}
		go func() {
			defer conn.Close()
			var call Call
			if json.NewDecoder(conn).Decode(&call) == nil {
				_ = json.NewEncoder(conn).Encode(answer(call)) // The program reports a lost answer.
			}
		}()
	}
}

// Main is the program. It returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	answer, err := ask(args)
	if err == nil && len(answer.Exec) > 0 {
		err = syscall.Exec(answer.Exec[0], answer.Exec, os.Environ())
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", args[0], err)
		return 125
	}
	fmt.Fprint(stdout, answer.Output)
	return answer.Code
}

func ask(args []string) (answer Answer, err error) {
	dir, err := os.Getwd()
	if err != nil {
		return answer, err
	}
	conn, err := net.Dial("unix", os.Getenv(Socket))
	if err != nil {
		return answer, fmt.Errorf("calling the test: %w", err)
	}
	defer conn.Close()
	call := Call{Program: filepath.Base(args[0]), Args: args[1:], Dir: dir, Node: os.Getenv(Node)}
	if err := json.NewEncoder(conn).Encode(call); err != nil {
		return answer, fmt.Errorf("calling the test: %w", err)
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return answer, fmt.Errorf("reading the test's answer: %w", err)
	}
	return answer, nil
}
