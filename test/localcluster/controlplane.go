package localcluster

import "strconv"

// Names of the control plane's processes, for KillProcess and StartProcess.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// garbage halves the frequency of Go's garbage collection: with short benchmarks, the API server takes more CPU time than the rest of
// the cluster.
const garbage = "GOGC=200"

// etcdURL uses the loopback of the control plane's network namespace.
const etcdURL = "http://127.0.0.1:2379"

func etcd(p paths, binaries string) process {
	const peerURL = "http://127.0.0.1:2380"
	return process{Name: Etcd, Env: []string{garbage}, Args: []string{
		binaries + "/etcd",
		"--data-dir=" + p.join("etcd"),
		"--listen-client-urls=" + etcdURL,
		"--advertise-client-urls=" + etcdURL,
		"--listen-peer-urls=" + peerURL,
		// The data need not outlive the machine.
		"--unsafe-no-fsync",
		"--logger=zap",
		"--log-level=warn",
	}}
}

func apiServer(p paths, binaries string) process {
	return process{Name: APIServer, Env: []string{garbage}, Args: []string{
		binaries + "/kube-apiserver",
		"--etcd-servers=" + etcdURL,
		"--bind-address=0.0.0.0",
		// The port of the service, so that the service's address answers without a kube-proxy.
		"--secure-port=" + strconv.Itoa(apiServerPort),
		"--advertise-address=" + p.controlPlaneIP(),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--cert-dir=" + p.join("pki"),
		"--client-ca-file=" + p.pki("ca.crt"),
		"--tls-cert-file=" + p.pki("apiserver.crt"),
		"--tls-private-key-file=" + p.pki("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.pki("sa.pub"),
		"--service-account-signing-key-file=" + p.pki("sa.key"),
		"--kubelet-certificate-authority=" + p.pki("ca.crt"),
		"--kubelet-client-certificate=" + p.pki("admin.crt"),
		"--kubelet-client-key=" + p.pki("admin.key"),
		// The nodes' names do not resolve.
		"--kubelet-preferred-address-types=InternalIP",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
	}}
}

func controllerManager(p paths, binaries string) process {
	return process{Name: ControllerManager, Env: []string{garbage}, Args: []string{
		binaries + "/kube-controller-manager",
		"--kubeconfig=" + p.kubeconfig("admin"),
		"--service-account-private-key-file=" + p.pki("sa.key"),
		"--root-ca-file=" + p.pki("ca.crt"),
		"--use-service-account-credentials",
		// The controller manager creates this folder, which must not be outside the state folder.
		"--flex-volume-plugin-dir=" + p.join("volume-plugins"),
		"--leader-elect=false",
	}}
}

func scheduler(p paths, binaries string) process {
	return process{Name: Scheduler, Args: []string{
		binaries + "/kube-scheduler",
		"--kubeconfig=" + p.kubeconfig("admin"),
		"--leader-elect=false",
	}}
}
