package localcluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/localcluster/thread"
)

// pollInterval is short because most conditions are met well within a second.
const pollInterval = 100 * time.Millisecond

// poll calls done until it returns true or an error, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollInterval):
		}
	}
}

// aliveInterval is the interval at which await looks whether processes still run, for which it reads all of /proc.
const aliveInterval = 500 * time.Millisecond

// ended is the error that a process of the cluster has ended.
type ended struct {
	name string
	// words are the last words in its log.
	words string
	// again means that this command had started it and nothing killed it, so that it would end again.
	again bool
}

func (e *ended) Error() string {
	if remedy := remedy(e.words); remedy != "" {
		return fmt.Sprintf("%s ended: %s; %s", e.name, e.words, remedy)
	}
	return fmt.Sprintf("%s ended: %s", e.name, e.words)
}

// hopeless is an error that more time will not change.
type hopeless struct{ error }

func (h hopeless) Unwrap() error { return h.error }

// await calls done until it returns nil. It fails as soon as one of the processes has ended or done returns a hopeless error, or when
// ctx ends, then with the last error of done.
func (c *cluster) await(ctx context.Context, what string, processes []process, done func() error) error {
	var last error
	var looked time.Time
	err := poll(ctx, func() (bool, error) {
		err := done()
		var final hopeless
		if err == nil || errors.As(err, &final) {
			return err == nil, err
		}
		if ctx.Err() == nil { // otherwise, the error is only that time is up
			last = err
		}
		if time.Since(looked) < aliveInterval {
			return false, nil
		}
		err = c.firstEnded(processes)
		looked = time.Now()
		return false, err
	})
	switch {
	case err == nil:
		return nil
	case last == nil || context.Cause(ctx) == nil: // it is over before the time is up
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return fmt.Errorf("waiting for %s: %w; the last error: %w", what, err, last)
}

// firstEnded returns an error of the type ended if one of the processes does not run.
func (c *cluster) firstEnded(processes []process) error {
	for _, pr := range processes {
		running, err := c.running(pr)
		if err != nil {
			return err
		}
		if !running {
			log, err := os.ReadFile(c.log(pr.Name))
			if err != nil {
				return &ended{name: pr.Name, words: "there is no log"}
			}
			again, signal := endOf(c.log(pr.Name))
			return &ended{pr.Name, signal + lastWords(string(log)), again}
		}
	}
	return nil
}

// fatal matches the lines in which Go programs and those of Kubernetes say why they end.
var fatal = regexp.MustCompile(`^(panic:|fatal error:|[EF]\d{4} .*(command failed|[Ff]ailed to start|"Failed|[Ff]ailed to run))|"level":"(fatal|panic)"|level=fatal`)

// lastWords returns the line of a log that says best why its process ended: the last fatal one of the last lines, or the last one.
func lastWords(log string) string {
	lines := strings.Split(strings.TrimSpace(tail(log, 200)), "\n")
	words := lines[len(lines)-1]
	for _, line := range lines {
		if fatal.MatchString(line) {
			words = line
		}
	}
	return strings.TrimSpace(words[:min(len(words), 1000)])
}

// remedies are known causes for the end of a process, and what to do.
var remedies = []struct{ cause, remedy string }{
	{`inotify[^\n]*too many open files|too many open files[^\n]*(inotify|fsnotify|watcher)|(inotify|fsnotify|cAdvisor|watcher)[^\n]*too many open files`,
		"other programs of root use up the limit of inotify instances: sysctl -w fs.inotify.max_user_instances=8192"},
	{`(inotify|watch)[^\n]*no space left on device`,
		"other programs use up the limit of inotify watches: sysctl -w fs.inotify.max_user_watches=1048576"},
	{`too many open files`, "the limit of open files is too low: ulimit -n 65536"},
	{`no space left on device|[Dd]isk quota exceeded`, "free some space on the disk of /var/lib"},
	{`failed to create new OS thread|resource temporarily unavailable`,
		"a limit of processes and threads is reached: docker run --pids-limit=-1, or systemctl set-property UNIT TasksMax=infinity"},
	{`bind: address already in use|address already in use`, "another program listens at this address in the cluster's own network namespace: make cluster-down ends it"},
	{`cannot allocate memory|out of memory|signal: killed`, "the memory does not suffice; the cluster needs 2 GiB"},
	{`/dev/kmsg`, "the container has no /dev/kmsg: start it with --device=/dev/kmsg, or as root: ln -s /dev/console /dev/kmsg"},
	{`read-only file system`, "something that the cluster must write is read-only: a container must be privileged"},
}

// remedy returns what to do against a known cause in a log or an error, or nothing.
func remedy(text string) string {
	for _, r := range remedies {
		if regexp.MustCompile(r.cause).MatchString(text) {
			return r.remedy
		}
	}
	return ""
}

// checkRoute requires that packets of the host to the API server leave through the cluster's link.
func (s site) checkRoute() error {
	routes, err := netlink.RouteGet(net.ParseIP(s.controlPlaneIP()))
	if err == nil && len(routes) == 0 {
		err = unix.ENETUNREACH
	}
	if err != nil {
		return fmt.Errorf("this host has no route to %s, the API server of the local cluster, although %s is up (%w): look at `ip rule` and `ip route get %[1]s`",
			s.controlPlaneIP(), s.hostLink(), err)
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil || link.Attrs().Name == s.hostLink() {
		return err
	}
	return fmt.Errorf("this host sends packets for %s, the API server of the local cluster, through %s and not through %s: "+
		"another network or a VPN uses the addresses 198.19.0.0/16. Stop it, or remove its route (`ip route get %[1]s`)", s.controlPlaneIP(), link.Attrs().Name, s.hostLink())
}

// unreachableAfter is how long the API server must accept connections in its own network namespace, and not answer the host, until await
// gives up. It accepts connections before it serves, on a busy machine for half a minute.
var unreachableAfter = time.Minute

// reachable wraps an attempt to reach the API server. The error becomes hopeless at once if an answer came that is not trusted, and once
// the API server has been well for unreachableAfter, and this host cannot reach it.
func (c *cluster) reachable(attempt func() error) func() error {
	var since time.Time
	return func() error {
		err := attempt()
		if untrusted := c.untrusted(err); untrusted != nil {
			return hopeless{untrusted}
		}
		var network *url.Error
		if !errors.As(err, &network) || !answersInside(c.site) {
			since = time.Time{}
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) < unreachableAfter {
			return err
		}
		return hopeless{fmt.Errorf("the API server answers in its own network namespace, but this host cannot reach %s (%w): "+
			"a firewall or a VPN of this host drops the packets through %s", c.controlPlaneIP(), err, c.hostLink())}
	}
}

// untrusted explains the error of an attempt for which an answer came, with a certificate that is not valid. For other errors it
// returns nil.
func (s site) untrusted(err error) error {
	var verification *tls.CertificateVerificationError
	if !errors.As(err, &verification) {
		return nil
	}
	var invalid x509.CertificateInvalidError
	switch {
	case !errors.As(err, &invalid) || invalid.Reason != x509.Expired:
		return fmt.Errorf("what answers at %s is not the API server of this cluster (%w): another network or a program that inspects "+
			"traffic has this address; stop it, or make cluster-down and start a new cluster", s.controlPlaneIP(), err)
	case time.Now().After(invalid.Cert.NotAfter):
		return fmt.Errorf("the certificates of this cluster have expired (%w): make cluster-down removes it", err)
	}
	return fmt.Errorf("the clock of this machine was set back after the cluster was made, so that its certificates and tokens are not "+
		"valid yet (%w): set the clock right, or make cluster-down removes the cluster", err)
}

// answersInside reports whether the API server accepts connections in its own network namespace.
func answersInside(s site) bool {
	return thread.Run(func() error {
		if err := enterNetns(s.controlPlaneNetns()); err != nil {
			return err
		}
		connection, err := net.DialTimeout("tcp", fmt.Sprintf("%s:%d", s.controlPlaneIP(), apiServerPort), time.Second)
		if err != nil {
			return err
		}
		return connection.Close()
	}) == nil
}
