// Command follow runs Go clients that read through kubewarm, and one client of the API server for
// comparison.
//
//	follow API_KUBECONFIG CACHE_KUBECONFIG NAMESPACE
//
// Each follower copies a resource of the namespace through kubewarm. When all have synced, the program
// prints a line of JSON. Then it answers each command on standard input with one line; protocol.go lists
// the commands. It ends with its standard input.
//
// KUBE_FEATURE_WatchListClient decides for the whole process whether lists are streamed.
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

// patience is the time limit for a first sync, and for the reconnection after kubewarm was away.
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
