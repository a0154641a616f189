// Command writer uses only its in-cluster configuration. It creates a numbered ConfigMap after the other in its
// namespace, and reads each of them back by a list and by an informer. It prints a line for each:
//
//	7 0
//
// The first number is the number of ConfigMaps, and the second the number of lists so far that lacked one.
//
//	writer NAME
//
// A ConfigMap that exists without having been found before is an error: an incomplete list has hidden it.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
)

const (
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	// pause is the time between two ConfigMaps, and between attempts.
	pause = 200 * time.Millisecond
	// limit is longer than an outage of the test and client-go's longest back-off together.
	limit = 2 * time.Minute
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: writer NAME")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "writer:", err)
		os.Exit(1)
	}
}

// writer creates ConfigMaps with one label.
type writer struct {
	name       string
	configMaps typedcorev1.ConfigMapInterface
	informer   listers.ConfigMapNamespaceLister
	// stale is the number of lists that lacked a ConfigMap.
	stale int
}

func run(ctx context.Context, name string) error {
	namespace, err := os.ReadFile(namespaceFile)
	if err != nil {
		return err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	inNamespace := strings.TrimSpace(string(namespace))
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(inNamespace))
	lister := factory.Core().V1().ConfigMaps().Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	writer := writer{
		name:       name,
		configMaps: clientset.CoreV1().ConfigMaps(inNamespace),
		informer:   lister.ConfigMaps(inNamespace),
	}
	found, err := writer.informed()
	if err != nil {
		return err
	}
	for number := found; ; number++ {
		if err := writer.write(ctx, number); err != nil {
			return err
		}
		fmt.Println(number+1, writer.stale)
		time.Sleep(pause)
	}
}

// write creates a ConfigMap, and waits until a list and the informer contain it.
func (w *writer) write(ctx context.Context, number int) error {
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprintf("%s-%d", w.name, number),
			Labels: map[string]string{"writer": w.name, "app": "web"},
		},
		Data: map[string]string{"number": fmt.Sprint(number)},
	}
	failures := 0
	if err := w.repeat(func() error {
		_, err := w.configMaps.Create(ctx, object, metav1.CreateOptions{})
		// An attempt without a response may have created the object.
		if errors.IsAlreadyExists(err) && failures > 0 {
			return nil
		}
		failures++
		return err
	}, errors.IsAlreadyExists); err != nil {
		return err
	}
	selected := metav1.ListOptions{LabelSelector: "writer=" + w.name}
	if err := w.repeat(func() error {
		list, err := w.configMaps.List(ctx, selected)
		if err == nil && len(list.Items) != number+1 {
			w.stale++
			return fmt.Errorf("%d of %d ConfigMaps in the list", len(list.Items), number+1)
		}
		return err
	}, nil); err != nil {
		return err
	}
	return w.repeat(func() error {
		count, err := w.informed()
		if err == nil && count != number+1 {
			return fmt.Errorf("%d of %d ConfigMaps in the informer", count, number+1)
		}
		return err
	}, nil)
}

// informed returns the number of the writer's ConfigMaps in the informer.
func (w *writer) informed() (int, error) {
	objects, err := w.informer.List(labels.SelectorFromSet(labels.Set{"writer": w.name}))
	return len(objects), err
}

// repeat calls try until it succeeds, its error is final, or the limit has passed.
func (w *writer) repeat(try func() error, isFinal func(error) bool) error {
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil || isFinal != nil && isFinal(err) || time.Now().After(deadline) {
			return err
		}
		fmt.Fprintln(os.Stderr, "writer: again:", err)
		time.Sleep(pause)
	}
}
