package main

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// newManager returns a manager whose cache kubewarm fills. Everything else goes to the API server.
func newManager(cacheKubeconfig string, options ctrl.Options) (ctrl.Manager, error) {
	apiServer, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	kubewarm, err := clientcmd.BuildConfigFromFlags("", cacheKubeconfig)
	if err != nil {
		return nil, err
	}
	options.NewCache = func(_ *rest.Config, options cache.Options) (cache.Cache, error) {
		// The manager presets HTTPClient with the API server's CA and credentials.
		options.HTTPClient = nil
		return cache.New(kubewarm, options)
	}
	return ctrl.NewManager(apiServer, options)
}

// newCluster returns a second cache, which the API server fills, with a client that reads from it. The manager
// starts and stops it.
func newCluster(manager ctrl.Manager, namespaces map[string]cache.Config) (cluster.Cluster, error) {
	direct, err := cluster.New(manager.GetConfig(), func(options *cluster.Options) {
		options.Cache.DefaultNamespaces = namespaces
	})
	if err != nil {
		return nil, err
	}
	return direct, manager.Add(direct)
}
