package cni

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// commandTimeout bounds one command with all its delegates. The kubelet gives up after two minutes.
const commandTimeout = 90 * time.Second

// Plugin implements the CNI commands.
type Plugin struct {
	newKube func(kubeconfig string) (kube, error)
	links   linkFinder
}

// New returns the plugin as it runs on a node.
func New() *Plugin { return &Plugin{newKube: newKube, links: findLink} }

// Funcs returns the commands in the form of the CNI library.
func (p *Plugin) Funcs() skel.CNIFuncs {
	return skel.CNIFuncs{
		Add: command(p.add), Del: command(p.del), Check: command(p.check), GC: command(p.gc), Status: command(p.status),
	}
}

// command reads the configuration and calls do with a time limit. It keeps the text of an error that wraps a delegate's error. The
// CNI library would unwrap it and report only the delegate's text, without the pod and the network.
func command(do func(context.Context, *Conf, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
		defer cancel()
		conf, err := LoadConf(args.StdinData)
		if err == nil {
			err = do(ctx, conf, args)
		}
		if err == nil {
			return nil
		}
		code := types.ErrInternal
		var delegate *types.Error
		if errors.As(err, &delegate) {
			code = delegate.Code
		}
		return types.NewError(code, err.Error(), "")
	}
}

// k8sArgs are the runtime's arguments that name the pod.
type k8sArgs struct {
	types.CommonArgs
	K8S_POD_NAME      types.UnmarshallableString //nolint:staticcheck // the name of the argument
	K8S_POD_NAMESPACE types.UnmarshallableString //nolint:staticcheck // the name of the argument
	K8S_POD_UID       types.UnmarshallableString //nolint:staticcheck // the name of the argument
}

// parseArgs parses CNI_ARGS: the pod, and the pairs that are passed to the delegates.
func parseArgs(args string) (podRef, [][2]string, error) {
	// Runtimes pass more arguments than this plugin knows.
	k := k8sArgs{CommonArgs: types.CommonArgs{IgnoreUnknown: true}}
	if err := types.LoadArgs(args, &k); err != nil {
		return podRef{}, nil, fmt.Errorf("reading CNI_ARGS: %w", err)
	}
	var pairs [][2]string
	for pair := range strings.SplitSeq(args, ";") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			pairs = append(pairs, [2]string{key, value})
		}
	}
	return podRef{
		namespace: string(k.K8S_POD_NAMESPACE), name: string(k.K8S_POD_NAME), uid: string(k.K8S_POD_UID),
	}, pairs, nil
}

// add resolves all networks first, so that nothing is attached if a name is wrong, then attaches them in order and
// reports them. After a failure, it detaches the networks that it has attached.
func (p *Plugin) add(ctx context.Context, conf *Conf, args *skel.CmdArgs) error {
	result, err := p.attach(ctx, conf, args)
	if err != nil {
		return err
	}
	return types.PrintResult(result, conf.CNIVersion)
}

// attach implements ADD and returns the result of the default network.
func (p *Plugin) attach(ctx context.Context, conf *Conf, args *skel.CmdArgs) (*current.Result, error) {
	ref, pairs, err := parseArgs(args.Args)
	if err != nil {
		return nil, err
	}
	if ref.name == "" || ref.namespace == "" {
		return nil, errors.New("CNI_ARGS name no pod")
	}
	k, err := p.newKube(conf.Kubeconfig)
	if err != nil {
		return nil, err
	}
	pod, err := k.pod(ctx, ref)
	if err != nil {
		return nil, err
	}
	selections, err := ParseSelections(pod.GetAnnotations()[AnnotationNetworks], ref.namespace)
	if err != nil {
		return nil, err
	}
	wanted := make([]attachment, 0, len(selections)+1)
	list, err := defaultList(conf)
	if err != nil {
		return nil, err
	}
	wanted = append(wanted, attachment{Network: conf.Name, IfName: args.IfName, Conf: list})
	var free devices // of the pod; requested once, and only if a network needs one
	for i, s := range selections {
		def, err := k.nad(ctx, s, pod)
		if err != nil {
			return nil, err
		}
		if def.resource != "" && free == nil {
			if free, err = podDevices(ctx, conf.PodResourcesSocket, ref.namespace, ref.name); err != nil {
				return nil, err
			}
			if err := k.addClaimed(ctx, pod, free); err != nil {
				return nil, err
			}
		}
		a, err := newAttachment(s, i+1, def, free)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, a)
	}

	d := newDelegator(conf, args.Path, p.links)
	c := containerState{ContainerID: args.ContainerID, NetNS: args.Netns, Args: pairs}
	result, err := attachAll(ctx, d, c, wanted, func(statuses []NetworkStatus) error {
		return k.setStatus(ctx, pod, statuses)
	})
	if err != nil {
		return nil, fmt.Errorf("[%s]: %w", ref, err)
	}
	return result, nil
}

// newAttachment plans the network of a selection; index counts from 1. It takes a device from free.
func newAttachment(s Selection, index int, def nad, free devices) (attachment, error) {
	a := attachment{Network: s.Namespace + "/" + s.Name, IfName: s.Interface, Capabilities: map[string]any{}}
	if a.IfName == "" {
		a.IfName = fmt.Sprintf("net%d", index)
	}
	if def.resource != "" {
		a.DeviceID = free.take(def.resource)
	}
	if a.DeviceID != "" {
		a.Capabilities["deviceID"] = a.DeviceID
	}
	if len(s.IPs) > 0 {
		a.Capabilities["ips"] = s.IPs
	}
	if s.MAC != "" {
		a.Capabilities["mac"] = s.MAC
	}
	var err error
	a.Conf, err = ConfList([]byte(def.config), s.Name, "", a.DeviceID)
	return a, err
}

// attachAll attaches the networks in order and reports them. After a failure, it detaches all of them.
func attachAll(ctx context.Context, d delegator, c containerState, wanted []attachment,
	report func([]NetworkStatus) error,
) (_ *current.Result, err error) {
	defer func() {
		if err != nil {
			// ctx may have ended.
			ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
			defer cancel()
			if undoErr := detachAll(ctx, d, c); undoErr != nil {
				err = fmt.Errorf("%w (and undoing it: %w)", err, undoErr)
			}
		}
	}()
	var first *current.Result
	var statuses []NetworkStatus
	for i, a := range wanted {
		c.Attachments = append(c.Attachments, a)
		if err := d.store.save(c); err != nil {
			return nil, err
		}
		result, err := d.add(ctx, c, a)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Network, err)
		}
		if i == 0 {
			first = result
		}
		statuses = append(statuses, networkStatuses(&a, result, i == 0)...)
	}
	if err := report(statuses); err != nil {
		return nil, err
	}
	return first, nil
}

// detachAll detaches the networks of a container in reverse order. After a failure, it continues with the others,
// and keeps the state of the networks that it could not detach.
func detachAll(ctx context.Context, d delegator, c containerState) error {
	var errs []error
	var left []attachment
	for _, a := range slices.Backward(c.Attachments) {
		if err := d.del(ctx, c, a); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", a.Network, err))
			left = append([]attachment{a}, left...)
		}
	}
	c.Attachments = left
	if len(left) == 0 {
		errs = append(errs, d.store.remove(c.ContainerID))
	} else {
		errs = append(errs, d.store.save(c))
	}
	return errors.Join(errs...)
}

// del needs neither the API server nor the kubelet, only the state that add stored.
func (p *Plugin) del(ctx context.Context, conf *Conf, args *skel.CmdArgs) error {
	d := newDelegator(conf, args.Path, p.links)
	c, found, err := d.store.load(args.ContainerID)
	if err != nil {
		return err
	}
	if !found {
		// ADD has attached nothing, or everything is detached. The default network's DEL does no harm, and
		// releases its address if the state was lost.
		_, pairs, err := parseArgs(args.Args)
		if err != nil {
			return err
		}
		list, err := defaultList(conf)
		if err != nil {
			return err
		}
		c = containerState{ContainerID: args.ContainerID, Args: pairs, Attachments: []attachment{
			{Network: conf.Name, IfName: args.IfName, Conf: list},
		}}
	}
	c.NetNS = args.Netns // It is empty if the namespace was removed.
	return detachAll(ctx, d, c)
}

// check calls CHECK of every delegate of the container.
func (p *Plugin) check(ctx context.Context, conf *Conf, args *skel.CmdArgs) error {
	d := newDelegator(conf, args.Path, p.links)
	c, found, err := d.store.load(args.ContainerID)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("nothing is known to be attached to container %s", args.ContainerID)
	}
	for _, a := range c.Attachments {
		if err := d.check(ctx, c, a); err != nil {
			return err
		}
	}
	return nil
}

// status asks the default network for its status. The other networks depend on the pod.
func (p *Plugin) status(ctx context.Context, conf *Conf, args *skel.CmdArgs) error {
	raw, err := defaultList(conf)
	if err != nil {
		return err
	}
	list, err := libcni.NetworkConfFromBytes(raw)
	if err != nil {
		return fmt.Errorf("reading the default network: %w", err)
	}
	if err := newDelegator(conf, args.Path, p.links).lib("").GetStatusNetworkList(ctx, list); err != nil {
		return fmt.Errorf("asking the default network for its status: %w", err)
	}
	return nil
}

// gc detaches containers that the runtime no longer knows and passes the command on to the default network.
func (p *Plugin) gc(ctx context.Context, conf *Conf, args *skel.CmdArgs) error {
	valid := map[string]bool{}
	for _, a := range conf.ValidAttachments {
		valid[a.ContainerID] = true
	}
	d := newDelegator(conf, args.Path, p.links)
	ids, err := d.store.containers()
	if err != nil {
		return err
	}
	var errs []error
	keep := slices.Clone(conf.ValidAttachments)
	for _, id := range ids {
		c, found, err := d.store.load(id)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !found: // detached meanwhile
		case !valid[id]:
			errs = append(errs, detachAll(ctx, d, c))
		default:
			for _, a := range c.Attachments {
				keep = append(keep, types.GCAttachment{ContainerID: id, IfName: a.IfName})
			}
		}
	}
	raw, err := defaultList(conf)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	list, err := libcni.NetworkConfFromBytes(raw)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("reading the default network: %w", err))...)
	}
	return errors.Join(append(errs, d.lib("").GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: keep}))...)
}
