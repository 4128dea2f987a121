// Command program is a user's program for tests of tool Custom: an echo with a protocol of its own. It reads nothing but the variables that
// docs/your-application.md describes. Its argument is how it behaves; without one, it measures.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	behaviour := strings.Join(os.Args[1:], " ")
	work := client
	if os.Getenv("TAILGATE_ROLE") == "server" {
		work = server
	}
	if err := work(behaviour); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

func number(name string) int {
	n, _ := strconv.Atoi(os.Getenv(name))
	return n
}

// frame is a message: its number, and as many bytes as are missing of the size.
func frame() []byte { return make([]byte, max(8, number("TAILGATE_SIZE"))) }

func server(behaviour string) error {
	switch behaviour {
	case "never ready":
		fmt.Println("loading the instruments")
		time.Sleep(time.Hour)
	case "daemon":
		return daemon("sleeper")
	case "sleeper":
		time.Sleep(time.Hour)
	case "crash":
		time.AfterFunc(time.Second, func() {
			fmt.Println("the matching engine is corrupt")
			os.Exit(1)
		})
	case "daemon beside":
		if err := daemon("sleeper"); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(os.Getenv("TAILGATE_ADDRESS"), os.Getenv("TAILGATE_PORT")))
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			message := frame()
			for {
				if _, err := io.ReadFull(conn, message); err != nil {
					return
				}
				if _, err := conn.Write(message); err != nil {
					return
				}
			}
		}()
	}
}

// daemon starts this program in a session of its own and leaves it behind.
func daemon(behaviour string) error {
	cmd := exec.Command(os.Args[0], behaviour)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

func client(behaviour string) error {
	values := map[string]string{
		"nothing": "", "NaN": "1000\nNaN\n", "negative": "-1\n", "zero": "1000\n0\n", "garbage": "\x00\xff{}\n", "cut": "1000\n10", "an hour": "3600000000000\n",
		"a second too many": "20000000000\n", "infinite": "+Inf\n", "a row": "1000,2000\n",
	}
	if text, ok := values[behaviour]; ok {
		fmt.Println("behaving:", behaviour)
		return write(func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		})
	}
	switch behaviour {
	case "no file":
		fmt.Println("instrument not found")
		return nil
	case "early":
		fmt.Println("connected")
		return fmt.Errorf("order 17 was rejected")
	case "endless":
		fmt.Println("waiting for the market to open")
		time.Sleep(time.Hour)
	case "patient": // It does not mind that its server is gone.
		time.Sleep(3 * time.Second / 2)
		return write(func(w io.Writer) error {
			_, err := io.WriteString(w, "1000\n")
			return err
		})
	case "another group":
		cmd := exec.Command(os.Args[0], "sleeper")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			return err
		}
		if err := syscall.Setpgid(0, cmd.Process.Pid); err != nil {
			return err
		}
		time.Sleep(time.Hour)
	case "daemon":
		return daemon("sleeper")
	case "sleeper":
		time.Sleep(time.Hour)
	case "fifo":
		return unix.Mkfifo(os.Getenv("TAILGATE_OUTPUT"), 0o600)
	case "loud":
		for range 1_000_000 {
			fmt.Println("1000000")
		}
		return nil
	case "elsewhere":
		var set unix.CPUSet
		for cpu := range 64 {
			set.Set(cpu)
		}
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return err
		}
	}
	return measure()
}

// write gives standard output or the file that is asked for.
func write(content func(io.Writer) error) error {
	path := os.Getenv("TAILGATE_OUTPUT")
	if path == "" {
		return content(os.Stdout)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	if err := content(out); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return file.Close()
}

func measure() error {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(os.Getenv("TAILGATE_ADDRESS"))}}
	conn, err := dialer.Dial("tcp", net.JoinHostPort(os.Getenv("TAILGATE_PEER"), os.Getenv("TAILGATE_PORT")))
	if err != nil {
		return err
	}
	defer conn.Close()
	warm := time.Duration(number("TAILGATE_WARMUP_MS")) * time.Millisecond
	total := warm + time.Duration(number("TAILGATE_DURATION_MS"))*time.Millisecond
	var all []int64
	message, answer := frame(), frame()
	for begun, n := time.Now(), uint64(0); time.Since(begun) < total; n++ {
		binary.BigEndian.PutUint64(message, n)
		sent := time.Now()
		if _, err := conn.Write(message); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			return err
		}
		if binary.BigEndian.Uint64(answer) != n {
			return fmt.Errorf("message %d got another answer", n)
		}
		if sent.Sub(begun) >= warm {
			all = append(all, time.Since(sent).Nanoseconds())
		}
	}
	fmt.Println("measured", len(all))
	return write(func(w io.Writer) error {
		for _, ns := range all {
			if _, err := fmt.Fprintln(w, ns); err != nil {
				return err
			}
		}
		return nil
	})
}
