// Command peer is what kubewarm is measured against: informers of client-go and of controller-runtime.
//
//	peer dynamic|typed|controller-runtime KUBECONFIG
//
// It syncs all pods, writes one line of JSON about that, and then answers commands from standard
// input with one line of JSON each; protocol.go has the list. The end of standard input ends it.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: peer dynamic|typed|controller-runtime KUBECONFIG")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(kind, kubeconfig string) error {
	config, err := clientConfig(kubeconfig)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	// As for the other subjects, the TLS handshake is part of warming up.
	started := time.Now()
	cache, err := open(ctx, kind, config)
	if err != nil {
		return err
	}
	synced := time.Since(started)
	atSync := readUsage()
	// Garbage of the first list is given back for a while; resident memory is taken after that.
	time.Sleep(2 * time.Second)
	if err := reply(syncedLine{
		Seconds:    synced.Seconds(),
		CPUSeconds: atSync.cpuSeconds,
		Objects:    cache.objects(),
		usageLine:  readUsage().line(),
	}); err != nil {
		return err
	}
	return serve(ctx, cache)
}

func clientConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	// The API server indents JSON for agents that it takes for a browser or for curl.
	config.UserAgent = "kubewarm-bench-peer"
	config.QPS = -1
	return config, nil
}
