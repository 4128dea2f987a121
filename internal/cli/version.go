package cli

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailgate-dev/tailgate/internal/report"
)

type versions struct {
	Client clientVersion  `json:"client"`
	Server *serverVersion `json:"server,omitempty"` // the manager; nil if none can be read
}

type serverVersion struct {
	Deployment string `json:"deployment"`
	Image      string `json:"image"`
}

type clientVersion struct {
	Version  string `json:"version"`            // the tag of a release, or a pseudo-version
	Revision string `json:"revision,omitempty"` // the commit; empty without version control
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

const serverTimeout = 5 * time.Second // of the search; the client's version needs no cluster

func newVersion(c *cluster) *cobra.Command {
	var clientOnly bool
	var form string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this command and the image of the manager",
		Long: "Print the version of this command and, if the cluster responds and you may list deployments, the manager's\n" +
			"Deployment with its image.",
		Args: takes("no arguments", 0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Client: readClientVersion()}
			if !clientOnly {
				v.Server = c.findManager(cmd.Context())
			}
			return v.write(cmd.OutOrStdout(), form)
		},
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "do not contact the cluster")
	outputFlag(cmd, &form, "table", "json")
	return cmd
}

func readClientVersion() clientVersion {
	v := clientVersion{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	return v
}

func (c *cluster) findManager(ctx context.Context) *serverVersion {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	api, _, err := c.client()
	if err != nil {
		return nil
	}
	m, _, err := managerOf(ctx, api, nil)
	if err != nil || m == nil {
		return nil
	}
	return &serverVersion{Deployment: m.Name, Image: m.Image}
}

func (v versions) write(out io.Writer, form string) error {
	if form == "json" {
		return report.WriteJSON(out, v)
	}
	text := fmt.Sprintf("client  %s %s %s\n", v.Client.Version, v.Client.Go, v.Client.Platform)
	if v.Server != nil {
		text += fmt.Sprintf("server  %s image %s\n", v.Server.Deployment, v.Server.Image)
	}
	return emit(out, text, nil)
}
