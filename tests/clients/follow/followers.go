package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var (
	settings = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	parts    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "parts"}
)

// web is the label selector of some followers. Objects gain and lose the label.
const web = "app=web"

// follower keeps a copy of a resource by a list and a watch.
type follower struct {
	name     string
	of       schema.GroupVersionResource
	selector string
	seen     *seen
}

// start starts a follower. Each has its own client, as separate programs have.
type start func(ctx context.Context, config *rest.Config, namespace string, into *follower) error

var errNotSynced = errors.New("did not sync")

// follow returns the followers after all have synced, and the reader of the controller's cache.
func follow(ctx context.Context, config *rest.Config, namespace string) ([]*follower, *reader, error) {
	var followers []*follower
	for _, one := range []struct {
		name     string
		of       schema.GroupVersionResource
		selector string
		start    start
	}{
		{"reflector, typed", settings, "", startReflector},
		{"informer, typed", settings, "", startTyped},
		{"informer, dynamic", settings, web, startDynamic},
		{"informer, dynamic", parts, "", startDynamic},
		{"informer, dynamic", parts, web, startDynamic},
	} {
		into := &follower{name: one.name, of: one.of, selector: one.selector, seen: newSeen()}
		if err := one.start(ctx, rest.CopyConfig(config), namespace, into); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", into.title(), err)
		}
		followers = append(followers, into)
	}
	managed, reader, err := startManager(ctx, rest.CopyConfig(config), namespace)
	if err != nil {
		return nil, nil, fmt.Errorf("manager of controller-runtime: %w", err)
	}
	return append(followers, managed...), reader, nil
}

func (f *follower) title() string {
	return fmt.Sprintf("%s of %s %s", f.name, f.of.Resource, f.selector)
}

// startReflector follows with a reflector, which informers are built on.
func startReflector(ctx context.Context, config *rest.Config, namespace string, into *follower) error {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	source := toolscache.NewListWatchFromClient(
		clientset.CoreV1().RESTClient(), into.of.Resource, namespace, fields.Everything())
	store := &recorder{seen: into.seen, synced: make(chan struct{})}
	reflector := toolscache.NewReflectorWithOptions(
		source, &corev1.ConfigMap{}, store, toolscache.ReflectorOptions{Name: into.title()})
	go reflector.Run(ctx.Done())
	select {
	case <-store.synced:
		return nil
	case <-time.After(patience):
		return errNotSynced
	}
}

func startTyped(ctx context.Context, config *rest.Config, namespace string, into *follower) error {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(
		clientset, 0, informers.WithNamespace(namespace))
	return inform(ctx, factory.Core().V1().ConfigMaps().Informer(), into, factory.Start)
}

func startDynamic(ctx context.Context, config *rest.Config, namespace string, into *follower) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	selected := func(options *metav1.ListOptions) { options.LabelSelector = into.selector }
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, selected)
	return inform(ctx, factory.ForResource(into.of).Informer(), into, factory.Start)
}

func inform(
	ctx context.Context,
	informer toolscache.SharedIndexInformer,
	into *follower,
	begin func(<-chan struct{}),
) error {
	registration, err := informer.AddEventHandler(handler(into.seen))
	if err != nil {
		return err
	}
	begin(ctx.Done())
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !toolscache.WaitForCacheSync(waiting.Done(), registration.HasSynced) {
		return errNotSynced
	}
	return nil
}

func handler(seen *seen) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    seen.apply,
		UpdateFunc: func(_, object any) { seen.apply(object) },
		DeleteFunc: seen.remove,
	}
}

// startManager follows with the cache of a manager: typed, unstructured and metadata-only objects.
func startManager(ctx context.Context, config *rest.Config, namespace string) ([]*follower, *reader, error) {
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	})
	if err != nil {
		return nil, nil, err
	}
	part := &unstructured.Unstructured{}
	part.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Part"})
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	var followers []*follower
	for _, one := range []struct {
		name   string
		of     schema.GroupVersionResource
		object client.Object
	}{
		{"manager, typed", settings, &corev1.ConfigMap{}},
		{"manager, unstructured", parts, part},
		{"manager, metadata", settings, metadata},
	} {
		into := &follower{name: one.name, of: one.of, seen: newSeen()}
		waiting, cancel := context.WithTimeout(ctx, patience)
		informer, err := manager.GetCache().GetInformer(waiting, one.object)
		if err == nil {
			_, err = informer.AddEventHandler(handler(into.seen))
		}
		if err == nil && !toolscache.WaitForCacheSync(waiting.Done(), informer.HasSynced) {
			err = errNotSynced
		}
		cancel()
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", one.name, err)
		}
		followers = append(followers, into)
	}
	select {
	case err := <-ended:
		return nil, nil, fmt.Errorf("ended: %w", err)
	default:
	}
	uncached, err := client.New(config, client.Options{})
	if err != nil {
		return nil, nil, err
	}
	return followers, &reader{cached: manager.GetClient(), uncached: uncached, namespace: namespace}, nil
}

// recorder is the store of a reflector. It records what it receives.
type recorder struct {
	seen   *seen
	synced chan struct{}
	once   bool
}

func (r *recorder) Add(object any) error    { r.seen.apply(object); return nil }
func (r *recorder) Update(object any) error { r.seen.apply(object); return nil }
func (r *recorder) Delete(object any) error { r.seen.remove(object); return nil }
func (r *recorder) Resync() error           { return nil }

func (r *recorder) Replace(objects []any, _ string) error {
	r.seen.replace(objects)
	if !r.once {
		r.once = true
		close(r.synced)
	}
	return nil
}
