package localcluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// certificateLife is longer than any cluster stays up. Certificates are valid from an hour ago, for clocks that step back.
const certificateLife = 365 * 24 * time.Hour

// identity is one certificate to be issued.
type identity struct {
	// Name is the name of the files, including the kubeconfig, if there is one.
	Name string
	// User and Group are those of Kubernetes.
	User, Group string
	DNS         []string
	IPs         []string
	Kubeconfig  bool
}

// multinetUser is the API user of the CNI meta-plugin. manifests/rbac.yaml has its permissions.
const multinetUser = "tailgate-multinet"

func identities(s site, nodes []node) []identity {
	ids := []identity{
		{
			Name: "apiserver", User: "kube-apiserver",
			DNS: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
			IPs: []string{"127.0.0.1", serviceIP, s.controlPlaneIP()},
		},
		{Name: "admin", User: "admin", Group: "system:masters", Kubeconfig: true},
		{Name: "multinet", User: multinetUser, Kubeconfig: true},
	}
	for _, n := range nodes {
		ids = append(ids, identity{
			Name: n.Name, User: "system:node:" + n.Name, Group: "system:nodes",
			DNS: []string{n.Name}, IPs: []string{n.IP}, Kubeconfig: true,
		})
	}
	return ids
}

// writePKI writes to dir a certificate authority, a certificate and key for every identity, and the keys that sign service
// account tokens.
func writePKI(dir string, ids []identity) error {
	caKey, err := writeKey(filepath.Join(dir, "ca.key"))
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "tailgate-localcluster"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(certificateLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if err := writeCertificate(filepath.Join(dir, "ca.crt"), ca, ca, caKey.Public(), caKey); err != nil {
		return err
	}
	for i, id := range ids {
		key, err := writeKey(filepath.Join(dir, id.Name+".key"))
		if err != nil {
			return err
		}
		cert := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i) + 2),
			Subject:      pkix.Name{CommonName: id.User},
			NotBefore:    ca.NotBefore,
			NotAfter:     ca.NotAfter,
			KeyUsage:     x509.KeyUsageDigitalSignature,
			ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
			DNSNames:     id.DNS,
		}
		if id.Group != "" {
			cert.Subject.Organization = []string{id.Group}
		}
		for _, ip := range id.IPs {
			cert.IPAddresses = append(cert.IPAddresses, net.ParseIP(ip))
		}
		if err := writeCertificate(filepath.Join(dir, id.Name+".crt"), cert, ca, key.Public(), caKey); err != nil {
			return err
		}
	}
	serviceAccounts, err := writeKey(filepath.Join(dir, "sa.key"))
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(serviceAccounts.Public())
	if err != nil {
		return fmt.Errorf("encoding the service account key: %w", err)
	}
	return writePEM(filepath.Join(dir, "sa.pub"), "PUBLIC KEY", public)
}

func writeKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return key, writePEM(path, "EC PRIVATE KEY", der)
}

func writeCertificate(path string, cert, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) error {
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, public, signer)
	if err != nil {
		return fmt.Errorf("signing a certificate: %w", err)
	}
	return writePEM(path, "CERTIFICATE", der)
}

func writePEM(path, kind string, der []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("writing a certificate or key: %w", err)
	}
	return nil
}

// writeKubeconfig writes a kubeconfig that embeds all certificates and keys, so that it can be copied elsewhere.
func writeKubeconfig(p paths, id identity) error {
	config := clientcmdapi.NewConfig()
	cluster, user := clientcmdapi.NewCluster(), clientcmdapi.NewAuthInfo()
	cluster.Server = "https://" + net.JoinHostPort(p.controlPlaneIP(), strconv.Itoa(apiServerPort))
	for path, into := range map[string]*[]byte{
		p.pki("ca.crt"):         &cluster.CertificateAuthorityData,
		p.pki(id.Name + ".crt"): &user.ClientCertificateData,
		p.pki(id.Name + ".key"): &user.ClientKeyData,
	} {
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading what goes into a kubeconfig: %w", err)
		}
		*into = content
	}
	const name = "tailgate-local"
	config.Clusters[name] = cluster
	config.AuthInfos[name] = user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, p.kubeconfig(id.Name)); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return nil
}
