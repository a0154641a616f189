// Command warmstart starts the cache of a controller twice: cold, from the API server, and warm, from
// kubewarm. It prints the time until the first result of each.
//
//	go run ./warmstart [-api-version v1] [-kind ConfigMap] [-namespace shop] KUBECONFIG CACHE_KUBECONFIG
//
// `kubewarm kubeconfig` writes the second kubeconfig. Both starts run the same code.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	version := flag.String("api-version", "v1", "of the objects")
	kind := flag.String("kind", "ConfigMap", "of the objects")
	namespace := flag.String("namespace", "", "where they are; all namespaces if empty")
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	ctrl.SetLogger(logr.Discard())
	of := schema.FromAPIVersionAndKind(*version, *kind)
	for at, from := range []string{"cold, from the API server", "warm, from kubewarm"} {
		count, took, err := firstAnswer(flag.Arg(at), of, *namespace)
		if err != nil {
			fmt.Fprintf(os.Stderr, "warmstart: %s: %v\n", from, err)
			os.Exit(1)
		}
		fmt.Printf("%-26s %6d objects after %v\n", from+":", count, took.Round(time.Millisecond))
	}
}

// firstAnswer returns the result of a reconciler's first read, and the time that a new process waits for
// it. The manager finds the kind, its cache lists and watches it, and the read comes from the cache.
func firstAnswer(kubeconfig string, of schema.GroupVersionKind, namespace string) (int, time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	started := time.Now()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return 0, 0, err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	if err != nil {
		return 0, 0, err
	}
	objects := &unstructured.UnstructuredList{}
	objects.SetGroupVersionKind(of.GroupVersion().WithKind(of.Kind + "List"))
	first := func(ctx context.Context) error {
		defer cancel()
		return manager.GetClient().List(ctx, objects, client.InNamespace(namespace))
	}
	// The manager starts runnables such as controllers after its cache.
	if err := manager.Add(runnable(first)); err != nil {
		return 0, 0, err
	}
	if err := manager.Start(ctx); err != nil {
		return 0, 0, err
	}
	return len(objects.Items), time.Since(started), nil
}

type runnable func(context.Context) error

func (r runnable) Start(ctx context.Context) error { return r(ctx) }
