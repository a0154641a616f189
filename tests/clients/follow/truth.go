package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// names is how many objects of each kind there are at most, beside those that nobody writes to.
const names = 150

// writers write at once, each to names of its own.
const writers = 6

// truth is the API server.
type truth struct {
	client    dynamic.Interface
	namespace string
}

func newTruth(config *rest.Config, namespace string) (*truth, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 10 * time.Second
	client, err := dynamic.NewForConfig(config)
	return &truth{client: client, namespace: namespace}, err
}

func (t *truth) list(ctx context.Context, of schema.GroupVersionResource, selector string) (map[string]state, error) {
	listed, err := t.client.Resource(of).Namespace(t.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	found := map[string]state{}
	for at := range listed.Items {
		name, is, err := stateOf(&listed.Items[at])
		if err != nil {
			return nil, err
		}
		found[name] = is
	}
	return found, nil
}

// write makes count random changes; the same for the same seed, but for their order.
func (t *truth) write(ctx context.Context, count int, seed uint64) error {
	errs := make([]error, writers)
	var all sync.WaitGroup
	for writer := range writers {
		all.Add(1)
		go func() {
			defer all.Done()
			random := rand.New(rand.NewPCG(seed, uint64(writer)))
			for done := 0; done < count/writers && errs[writer] == nil; {
				var made int
				made, errs[writer] = t.change(ctx, random, writer)
				done += made
			}
		}()
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// change makes one random change, or two: a deletion with another object of the same name right behind it.
func (t *truth) change(ctx context.Context, random *rand.Rand, writer int) (int, error) {
	of, kind := settings, "ConfigMap"
	if random.IntN(3) == 0 {
		of, kind = parts, "Part"
	}
	name := fmt.Sprintf("o-%d", random.IntN(names/writers)*writers+writer)
	objects := t.client.Resource(of).Namespace(t.namespace)
	version := of.Version
	if of.Group != "" {
		version = of.Group + "/" + of.Version
	}
	labels := map[string]any{}
	if value := []string{"web", "api", ""}[random.IntN(3)]; value != "" {
		labels["app"] = value
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": version, "kind": kind,
		"metadata": map[string]any{"name": name, "labels": labels},
	}}
	text := fmt.Sprintf("%d <é> \"\\\n", random.Uint64())
	if kind == "Part" {
		object.Object["spec"] = map[string]any{"text": text, "large": int64(12345678901234567), "half": 0.5, "none": []any{}}
	} else {
		object.Object["data"] = map[string]any{"text": text}
	}
	create := func() error {
		return until(ctx, apierrors.IsAlreadyExists, func(ctx context.Context) error {
			_, err := objects.Create(ctx, object, metav1.CreateOptions{})
			return err
		})
	}
	remove := func() error {
		return until(ctx, apierrors.IsNotFound, func(ctx context.Context) error {
			return objects.Delete(ctx, name, metav1.DeleteOptions{})
		})
	}
	patch := func(body string) error {
		return until(ctx, apierrors.IsNotFound, func(ctx context.Context) error {
			_, err := objects.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
			return err
		})
	}
	switch roll := random.IntN(10); {
	case roll < 3:
		return 1, create()
	case roll < 6:
		return 1, patch(fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, random.Uint64()))
	case roll < 8:
		value := []string{`"web"`, `"api"`, "null"}[random.IntN(3)]
		return 1, patch(fmt.Sprintf(`{"metadata":{"labels":{"app":%s}}}`, value))
	case roll < 9:
		return 1, remove()
	default:
		if err := remove(); err != nil {
			return 0, err
		}
		return 2, create()
	}
}

// until tries again while the API server is away; expected is as good as done.
func until(ctx context.Context, expected func(error) bool, try func(context.Context) error) error {
	deadline := time.Now().Add(patience)
	for {
		err := try(ctx)
		if err == nil || expected(err) {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
