// Command client-go fills an informer with the ConfigMaps of a namespace twice: from the API server, and from kubewarm.
// It prints how many ConfigMaps each informer holds, and the time until the informer was synced.
//
//	go run . [-namespace shop] CACHE_KUBECONFIG
//
// `kubewarm kubeconfig` writes CACHE_KUBECONFIG. As kubectl does, the program finds the API server by $KUBECONFIG or
// ~/.kube/config. Only the kubeconfig differs: both informers run the same code.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	namespace := flag.String("namespace", "shop", "namespace of the ConfigMaps")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: client-go [flags] CACHE_KUBECONFIG")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Arg(0), *namespace); err != nil {
		fmt.Fprintln(os.Stderr, "client-go:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cacheKubeconfig, namespace string) error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	apiServer, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return err
	}
	kubewarm, err := clientcmd.BuildConfigFromFlags("", cacheKubeconfig)
	if err != nil {
		return err
	}
	for _, server := range []struct {
		name   string
		config *rest.Config
	}{{"the API server", apiServer}, {"kubewarm", kubewarm}} {
		count, duration, err := fillInformer(ctx, server.config, namespace)
		if err != nil {
			return fmt.Errorf("read ConfigMaps from %s: %w", server.name, err)
		}
		fmt.Printf("from %s: %d ConfigMaps after %v\n", server.name, count, duration.Round(time.Millisecond))
	}
	return nil
}

// fillInformer returns the number of ConfigMaps in a new informer, and the time until the informer was synced.
func fillInformer(ctx context.Context, config *rest.Config, namespace string) (int, time.Duration, error) {
	// A server that does not answer must not block the program.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	started := time.Now()
	factory, err := newInformerFactory(config, namespace)
	if err != nil {
		return 0, 0, err
	}
	lister := factory.Core().V1().ConfigMaps().Lister()
	factory.Start(ctx.Done())
	for _, isSynced := range factory.WaitForCacheSync(ctx.Done()) {
		if !isSynced {
			return 0, 0, errors.New("the informer did not sync")
		}
	}
	duration := time.Since(started)
	// The lister reads from the informer, not from the server.
	configMaps, err := lister.List(labels.Everything())
	return len(configMaps), duration, err
}

// newInformerFactory returns informers that read from the server of this kubeconfig.
func newInformerFactory(config *rest.Config, namespace string) (informers.SharedInformerFactory, error) {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(namespace)), nil
}
