package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podCache is a synced cache of all pods, with the reads that its users have.
type podCache struct {
	// objects returns the number of objects.
	objects func() int
	// list returns the number of pods with the label.
	list func(ctx context.Context, selector labels.Selector) (int, error)
	// handle registers a handler, and returns after it has received all existing objects.
	handle func(ctx context.Context, handler toolscache.ResourceEventHandler) error
}

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

var errNotSynced = errors.New("the cache did not sync")

// open returns a cache that has synced.
func open(ctx context.Context, kind string, config *rest.Config) (*podCache, error) {
	switch kind {
	case "dynamic":
		return openDynamic(ctx, config)
	case "metadata":
		return openMetadata(ctx, config)
	case "typed":
		return openTyped(ctx, config)
	case "controller-runtime":
		return openControllerRuntime(ctx, config)
	default:
		return nil, fmt.Errorf("unknown cache %q: dynamic, metadata, typed or controller-runtime", kind)
	}
}

// openDynamic opens the cache for custom resources: JSON, decoded into maps.
func openDynamic(ctx context.Context, config *rest.Config) (*podCache, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	pods := factory.ForResource(podResource)
	factory.Start(ctx.Done())
	return syncGeneric(ctx, pods)
}

// openMetadata opens the cache of metadata: protobuf.
func openMetadata(ctx context.Context, config *rest.Config) (*podCache, error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := metadatainformer.NewSharedInformerFactory(client, 0)
	pods := factory.ForResource(podResource)
	factory.Start(ctx.Done())
	return syncGeneric(ctx, pods)
}

func syncGeneric(ctx context.Context, pods informers.GenericInformer) (*podCache, error) {
	informer, lister := pods.Informer(), pods.Lister()
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errNotSynced
	}
	list := func(_ context.Context, selector labels.Selector) (int, error) {
		found, err := lister.List(selector)
		return len(found), err
	}
	return &podCache{objects: storeSize(informer), list: list, handle: register(informer)}, nil
}

// openTyped opens the cache for built-in kinds: protobuf, decoded into structs.
func openTyped(ctx context.Context, config *rest.Config) (*podCache, error) {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods()
	informer, lister := pods.Informer(), pods.Lister()
	factory.Start(ctx.Done())
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errNotSynced
	}
	list := func(_ context.Context, selector labels.Selector) (int, error) {
		found, err := lister.List(selector)
		return len(found), err
	}
	return &podCache{objects: storeSize(informer), list: list, handle: register(informer)}, nil
}

// openControllerRuntime opens the cache of a controller: typed objects, copied at every read.
func openControllerRuntime(ctx context.Context, config *rest.Config) (*podCache, error) {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	pods, err := cache.New(config, cache.Options{})
	if err != nil {
		return nil, err
	}
	go func() { _ = pods.Start(ctx) }()
	informer, err := pods.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return nil, err
	}
	if !pods.WaitForCacheSync(ctx) {
		return nil, errNotSynced
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("%T is not a shared informer", informer)
	}
	list := func(ctx context.Context, selector labels.Selector) (int, error) {
		var found corev1.PodList
		err := pods.List(ctx, &found, client.MatchingLabelsSelector{Selector: selector})
		return len(found.Items), err
	}
	return &podCache{objects: storeSize(shared), list: list, handle: register(shared)}, nil
}

func storeSize(informer toolscache.SharedIndexInformer) func() int {
	return func() int { return len(informer.GetStore().ListKeys()) }
}

func register(
	informer toolscache.SharedIndexInformer,
) func(context.Context, toolscache.ResourceEventHandler) error {
	return func(ctx context.Context, handler toolscache.ResourceEventHandler) error {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return err
		}
		if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return errNotSynced
		}
		return nil
	}
}
