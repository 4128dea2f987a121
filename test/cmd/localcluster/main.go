// Command localcluster starts and stops the two-node Kubernetes cluster of the demo and the tests.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
)

const usage = `usage: localcluster VERB
  up           start the cluster, or what is missing of it
  down         remove the cluster and all its traces
  status       list its processes and nodes
  load TAR...  import images into both nodes
  image NAME PROGRAM...
               make an image with static programs in /app, import it, and print its name by digest
  kubeconfig   print the path of the kubeconfig
  lab-up, lab-down, lab-status, lab-load TAR...
               the same with nodes that are emulated machines (docs/internals/lab.md)
  lab-components DIR
               write the project's CNI and device plugins as a folder that LAB_COMPONENTS can name
  upgrade NODE restart a node's kubelet as after an upgrade of its operating system
  slow, fast   make the network of the VFs slow, or as fast as before
  assets       print a folder with kube-apiserver, etcd and kubectl, built if needed
  help         print this text`

// verbs lists the verbs of usage.
var verbs = strings.Join(strings.Fields(strings.Join(regexp.MustCompile(`(?m)^  [a-z-]+(, [a-z-]+)*`).FindAllString(usage, -1), ",")), " ")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New("a verb is needed: " + verbs)
	}
	verb, lab := strings.CutPrefix(args[0], "lab-")
	args = args[1:]
	switch {
	case verb == "load" && len(args) == 0:
		return errors.New("load needs the tarballs of images")
	case verb == "image" && len(args) < 2:
		return errors.New("image needs a name, such as localhost/program/engine, and programs")
	case verb == "components" && (len(args) != 1 || !lab):
		return errors.New("lab-components needs a folder")
	case verb == "upgrade" && len(args) != 1:
		return errors.New("upgrade needs the name of a node")
	case verb == "load", verb == "image", verb == "components", verb == "upgrade":
	case len(args) > 0:
		return fmt.Errorf("%s takes no arguments, got %q", verb, args)
	}
	options := localcluster.Options{Log: stderr, Lab: lab}
	if !lab && (verb == "up" || verb == "down") {
		release, err := localcluster.Use(ctx, stderr, "make cluster-"+verb)
		if err != nil {
			return err
		}
		defer release()
	}
	switch verb {
	case "up":
		fmt.Fprintln(stderr, localcluster.Killed)
		if err := localcluster.Up(ctx, options); err != nil {
			return err
		}
		fmt.Fprint(stdout, "The cluster is up. ", localcluster.Usage(options))
		return nil
	case "down":
		return errors.Join(localcluster.Down(ctx, options), images.RemoveTemporary())
	case "status":
		return localcluster.Status(ctx, options, stdout)
	case "load":
		return localcluster.Load(ctx, options, args...)
	case "image":
		return image(ctx, options, stdout, args[0], args[1:])
	case "components":
		return localcluster.WriteComponents(ctx, options, args[0])
	case "upgrade":
		return localcluster.Upgrade(ctx, options, args[0], "Upgraded "+time.Now().UTC().Format(time.TimeOnly))
	case "slow":
		return localcluster.SlowCable(options)
	case "fast":
		return localcluster.RestoreCable(options)
	case "kubeconfig":
		fmt.Fprintln(stdout, localcluster.Kubeconfig(options))
		return nil
	case "assets":
		dir, err := localcluster.Assets(ctx, stderr)
		if err != nil {
			return err
		}
		fmt.Fprintln(stdout, dir)
		return nil
	case "help", "-h", "--help":
		fmt.Fprintln(stdout, usage)
		return nil
	}
	return fmt.Errorf("no verb %q, there are %s", verb, verbs)
}

// image makes and imports an image with programs. The nodes pull from no registry, and know an image only by the names that it has there.
func image(ctx context.Context, o localcluster.Options, stdout io.Writer, name string, paths []string) error {
	programs := map[string][]byte{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		programs["/app/"+filepath.Base(path)] = data
	}
	dir, remove, err := cached.Temporary(os.TempDir())
	if err != nil {
		return err
	}
	defer remove()
	archive := filepath.Join(dir, "image.tar")
	digest, err := images.Tools(programs, name+":dev", archive)
	if err != nil {
		return err
	}
	if err := localcluster.LoadRelease(ctx, o, archive, name); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s@%s\n", name, digest)
	return err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "localcluster:", err)
		if ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, localcluster.Interrupted)
		}
		os.Exit(1)
	}
}
