// kubenode contains the scheduler and the components of a node in one binary. The first argument
// names the component.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	if len(os.Args) < 2 {
		usage("no component named")
	}
	component := os.Args[1]
	os.Args = append([]string{component}, os.Args[2:]...) // cobra reads os.Args
	switch component {
	case "kubelet":
		os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
	case "kube-proxy":
		os.Exit(cli.Run(proxy.NewProxyCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	default:
		usage(fmt.Sprintf("unknown component %q", component))
	}
}

func usage(problem string) {
	fmt.Fprintf(os.Stderr, "kubenode: %s; want kubelet, kube-proxy or kube-scheduler, then its flags\n", problem)
	os.Exit(2)
}
