// Command follow is clients of Go that read through kubewarm, beside one that asks the API server.
//
//	follow API_KUBECONFIG CACHE_KUBECONFIG NAMESPACE
//
// Each follower keeps in step with some kind in the namespace, by the cache. When all have synced, a
// line of JSON says so; then commands from standard input are answered with a line each, of which
// protocol.go has the list. The end of standard input ends it.
//
// Whether lists are streamed is a matter of the process: KUBE_FEATURE_WatchListClient.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// patience is for a first sync, and for what it takes to notice that the cache is there again.
const patience = time.Minute

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: follow API_KUBECONFIG CACHE_KUBECONFIG NAMESPACE")
		os.Exit(2)
	}
	klog.SetOutput(os.Stderr)
	ctrl.SetLogger(logr.Discard())
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "follow:", err)
		os.Exit(1)
	}
}

func run(api, cached, namespace string) error {
	direct, err := configured(api)
	if err != nil {
		return err
	}
	through, err := configured(cached)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started := time.Now()
	followers, reader, err := follow(ctx, through, namespace)
	if err != nil {
		return err
	}
	truth, err := newTruth(direct, namespace)
	if err != nil {
		return err
	}
	if err := reply(syncedLine{Seconds: time.Since(started).Seconds(), Followers: len(followers)}); err != nil {
		return err
	}
	return serve(ctx, followers, truth, reader)
}

func configured(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}
