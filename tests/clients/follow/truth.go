package main

import (
	"context"
	"errors"
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

// names is the largest number of objects of each kind, in addition to the objects that are never written.
const names = 150

// writers is the number of concurrent writers. Each writes objects with its own names.
const writers = 6

// truth reads and writes at the API server.
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

// write makes at least count random changes and returns the number of successful ones. The same seed gives
// the same changes, in another order. Changes without a response while the API server was away are not
// counted.
func (t *truth) write(ctx context.Context, count int, seed uint64) (int, error) {
	share := (count + writers - 1) / writers
	made := make([]int, writers)
	errs := make([]error, writers)
	var all sync.WaitGroup
	for writer := range writers {
		all.Add(1)
		go func() {
			defer all.Done()
			random := rand.New(rand.NewPCG(seed, uint64(writer)))
			for made[writer] < share && errs[writer] == nil {
				var more int
				more, errs[writer] = t.change(ctx, random, writer)
				made[writer] += more
			}
		}()
	}
	all.Wait()
	sum := 0
	for _, of := range made {
		sum += of
	}
	return sum, errors.Join(errs...)
}

// change makes one random change, or two: a deletion followed by the creation of an object with the same
// name. It returns the number of writes; a creation of an existing object and a change of a missing one are
// none.
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
	create := func() (int, error) {
		return until(ctx, apierrors.IsAlreadyExists, func(ctx context.Context) error {
			_, err := objects.Create(ctx, object, metav1.CreateOptions{})
			return err
		})
	}
	remove := func() (int, error) {
		return until(ctx, apierrors.IsNotFound, func(ctx context.Context) error {
			return objects.Delete(ctx, name, metav1.DeleteOptions{})
		})
	}
	patch := func(body string) (int, error) {
		return until(ctx, apierrors.IsNotFound, func(ctx context.Context) error {
			_, err := objects.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
			return err
		})
	}
	// Each write contains a new value, because an update without changes is no write.
	number := random.Uint64()
	switch roll := random.IntN(10); {
	case roll < 3:
		return create()
	case roll < 6:
		return patch(fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, number))
	case roll < 8:
		value := []string{`"web"`, `"api"`, "null"}[random.IntN(3)]
		return patch(fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"},"labels":{"app":%s}}}`, number, value))
	case roll < 9:
		return remove()
	default:
		removed, err := remove()
		if err != nil {
			return removed, err
		}
		created, err := create()
		return removed + created, err
	}
}

// until repeats a write while the API server is away. It returns the number of successful writes, which is
// zero after an expected error.
func until(ctx context.Context, expected func(error) bool, try func(context.Context) error) (int, error) {
	deadline := time.Now().Add(patience)
	for {
		err := try(ctx)
		switch {
		case err == nil:
			return 1, nil
		case expected(err):
			return 0, nil
		case time.Now().After(deadline) || ctx.Err() != nil:
			return 0, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
