package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kept lists objects that exist during the whole test.
var kept = []string{"kept-0", "kept-1", "kept-2"}

// reader reads as a controller does: from its cache, and from the server without a cache.
type reader struct {
	cached, uncached client.Client
	namespace        string
}

// looks counts the results of reads of existing objects.
type looks struct {
	Found    int `json:"found"`
	NotFound int `json:"not_found"`
	// Empty counts lists without any of the objects.
	Empty int `json:"empty"`
	// Others counts all other errors, by text.
	Others map[string]int `json:"others"`
}

// look reads the existing objects until the context ends.
func (r *reader) look(ctx context.Context) looks {
	var mu sync.Mutex
	result := looks{Others: map[string]int{}}
	count := func(is *int) {
		mu.Lock()
		defer mu.Unlock()
		*is++
	}
	other := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		result.Others[string(apierrors.ReasonForError(err))+fmt.Sprintf(" %T", err)]++
	}
	var all sync.WaitGroup
	for _, from := range []client.Client{r.cached, r.uncached} {
		all.Add(1)
		go func() {
			defer all.Done()
			for ctx.Err() == nil {
				for _, name := range kept {
					var object corev1.ConfigMap
					err := from.Get(context.Background(), client.ObjectKey{Namespace: r.namespace, Name: name}, &object)
					switch {
					case err == nil:
						count(&result.Found)
					case apierrors.IsNotFound(err):
						count(&result.NotFound)
					default:
						other(err)
					}
				}
				var list corev1.ConfigMapList
				if err := from.List(context.Background(), &list, client.InNamespace(r.namespace)); err != nil {
					other(err)
				} else if !hasAll(list.Items) {
					count(&result.Empty)
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	all.Wait()
	return result
}

func hasAll(items []corev1.ConfigMap) bool {
	held := map[string]bool{}
	for at := range items {
		held[items[at].Name] = true
	}
	for _, name := range kept {
		if !held[name] {
			return false
		}
	}
	return true
}
