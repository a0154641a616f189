// Command apply changes one key of a ConfigMap as client-go documents it: Get, ExtractConfigMap, Apply. It prints the
// ConfigMap's data as JSON.
//
//	apply [-namespace shop] [-name settings] KUBECONFIG
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const fieldManager = "apply"

func main() {
	namespace := flag.String("namespace", "shop", "namespace of the ConfigMap")
	name := flag.String("name", "settings", "name of the ConfigMap")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	data, err := change(flag.Arg(0), *namespace, *name)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(data)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "apply:", err)
		os.Exit(1)
	}
}

// change applies a ConfigMap with two keys, extracts the applied fields from a read, and applies them with one changed
// key. It returns the data of the result.
func change(kubeconfig, namespace, name string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	configMaps := clientset.CoreV1().ConfigMaps(namespace)
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	first := corev1.ConfigMap(name, namespace).WithData(map[string]string{"a": "1", "b": "2"})
	if _, err := configMaps.Apply(ctx, first, options); err != nil {
		return nil, err
	}
	found, err := configMaps.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	own, err := corev1.ExtractConfigMap(found, fieldManager)
	if err != nil {
		return nil, err
	}
	changed, err := configMaps.Apply(ctx, own.WithData(map[string]string{"a": "3"}), options)
	if err != nil {
		return nil, err
	}
	return changed.Data, nil
}
