// Command record records Events with client-go's recorder, one for each of several objects, and prints a line after
// each. It runs until its standard input ends, because the recorder repeats failed Events in the background.
//
//	record [-namespace shop] [-count 10] KUBECONFIG
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
)

// pause is the time between two Events.
const pause = 100 * time.Millisecond

func main() {
	namespace := flag.String("namespace", "shop", "namespace of the Events")
	count := flag.Int("count", 10, "number of Events")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := recordEvents(flag.Arg(0), *namespace, *count); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// recordEvents records Events of different objects: the recorder would combine Events of one object.
func recordEvents(kubeconfig, namespace string, count int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster()
	events := clientset.CoreV1().Events(namespace)
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: events})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "record"})
	for number := range count {
		name := fmt.Sprintf("object-%d", number)
		object := &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: name}
		recorder.Event(object, corev1.EventTypeNormal, "Recorded", "recorded by the test")
		fmt.Println(name)
		time.Sleep(pause)
	}
	return nil
}
