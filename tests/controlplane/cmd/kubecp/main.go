// kubecp is etcd and kube-apiserver in one binary; the first argument chooses. Each still runs as a process of
// its own, so that tests can kill, freeze and restart it alone.
package main

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	if len(os.Args) < 2 {
		usage("no component named")
	}
	component := os.Args[1]
	os.Args = append([]string{component}, os.Args[2:]...) // cobra and etcd read os.Args
	switch component {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	default:
		usage(fmt.Sprintf("unknown component %q", component))
	}
}

func usage(problem string) {
	fmt.Fprintf(os.Stderr, "kubecp: %s; want etcd or kube-apiserver, then its flags\n", problem)
	os.Exit(2)
}
