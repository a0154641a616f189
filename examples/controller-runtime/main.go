// Command controller-runtime is a controller that reads from kubewarm and writes to the API server: it keeps a Secret for
// each ConfigMap with the label app=web.
//
//	go run . [flags] CACHE_KUBECONFIG
//
// `kubewarm kubeconfig` writes CACHE_KUBECONFIG. The program finds the API server as every controller does: by
// -kubeconfig, $KUBECONFIG, the files of its pod, or ~/.kube/config. docs/controllers.md explains the code.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// flags contains the command line.
type flags struct {
	cacheKubeconfig string
	namespace       string
	// secrets selects how the controller reads Secrets, which no profile declares.
	secrets     string
	syncTimeout time.Duration
}

func main() {
	var given flags
	flag.StringVar(&given.namespace, "namespace", "shop", "namespace of the ConfigMaps, the Secrets and the lease")
	flag.StringVar(&given.secrets, "secrets", "read", "source of Secrets: read (get them from the API server), "+
		"owned (watch them at kubewarm) or cluster (watch them at the API server)")
	flag.DurationVar(&given.syncTimeout, "sync-timeout", 2*time.Minute, "maximum time until a cache has synced")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: controller-runtime [flags] CACHE_KUBECONFIG")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	given.cacheKubeconfig = flag.Arg(0)
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler(), given); err != nil {
		fmt.Fprintln(os.Stderr, "controller-runtime:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, given flags) error {
	namespaces := map[string]cache.Config{given.namespace: {}}
	options := ctrl.Options{
		LeaderElection:          true,
		LeaderElectionID:        "settings-controller",
		LeaderElectionNamespace: given.namespace,
		// The next leader need not wait for the lease to expire.
		LeaderElectionReleaseOnCancel: true,
		Cache:                         cache.Options{DefaultNamespaces: namespaces},
		Controller:                    config.Controller{CacheSyncTimeout: given.syncTimeout},
		Metrics:                       metricsserver.Options{BindAddress: "0"},
	}
	if given.secrets == "read" {
		options.Client.Cache = &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}
	}
	manager, err := newManager(given.cacheKubeconfig, options)
	if err != nil {
		return err
	}
	if err := addController(manager, given.secrets, namespaces); err != nil {
		return err
	}
	return manager.Start(ctx)
}
