// Command peer runs the informers that kubewarm is compared with, from client-go and controller-runtime.
//
//	peer dynamic|metadata|typed|controller-runtime KUBECONFIG
//	peer manager typed|metadata|none KUBECONFIG COUNT
//	peer agents --servers A,B --authority FILE --file FILE --count N [--watch-list]
//
// The first form syncs all pods and prints one line of JSON. The second form reconciles COUNT pods with a manager of
// controller-runtime, prints one line of JSON and ends. The third form runs the agents of N nodes. The first and the
// third form then answer each command on standard input with one line of JSON; protocol.go and agents.go list the
// commands. They end with their standard input.
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
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "agents":
		err = runAgents(os.Args[2:])
	case len(os.Args) == 5 && os.Args[1] == "manager":
		err = runManager(os.Args[2], os.Args[3], os.Args[4])
	case len(os.Args) == 3:
		err = run(os.Args[1], os.Args[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: peer dynamic|metadata|typed|controller-runtime KUBECONFIG, "+
			"peer manager typed|metadata|none KUBECONFIG COUNT, or peer agents --help")
		os.Exit(2)
	}
	if err != nil {
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

	// The TLS handshake is part of the warm-up, as for the other caches.
	started := time.Now()
	cache, err := open(ctx, kind, config)
	if err != nil {
		return err
	}
	synced := time.Since(started)
	atSync := readUsage()
	// The runtime returns garbage of the first list for a while. Resident memory is measured after that.
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
	// For clients that it takes for a browser or for curl, the API server indents JSON.
	config.UserAgent = "kubewarm-bench-peer"
	config.QPS = -1
	return config, nil
}
