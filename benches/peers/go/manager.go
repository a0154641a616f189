package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// workers is the number of concurrent reconciles.
	workers = 8
	// pageSize is client-go's size of a page.
	pageSize = 500
)

// managerLine is printed by a manager that has reconciled each pod once.
type managerLine struct {
	Seconds float64 `json:"seconds"`
	// The time in which a reconcile reads its pod.
	P50Seconds float64 `json:"p50_seconds"`
	P99Seconds float64 `json:"p99_seconds"`
	usageLine
}

// runManager runs a controller-runtime manager until it has reconciled each of `count` pods. Each reconcile reads
// its pod. The kind says what the manager keeps in memory: `typed`, all pods; `metadata`, the metadata of all pods,
// as a trigger only; `none`, no objects, so a paged list is the trigger.
func runManager(kind, kubeconfig, count string) error {
	expected, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	config, err := clientConfig(kubeconfig)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	options := ctrl.Options{Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}}
	if kind != "typed" {
		// Without a cache, the client reads from the server.
		options.NewClient = func(config *rest.Config, options client.Options) (client.Client, error) {
			options.Cache = nil
			return client.New(config, options)
		}
		// A trigger needs no managed fields, which are most of the metadata.
		options.Cache.DefaultTransform = cache.TransformStripManagedFields()
	}
	started := time.Now()
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return err
	}
	pods := &podReconciler{client: manager.GetClient(), expected: expected, done: make(chan struct{})}
	if err := pods.register(manager, kind); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	select {
	case err := <-ended:
		return fmt.Errorf("the manager ended: %w", err)
	case <-pods.done:
	}
	seconds := time.Since(started).Seconds()
	// The runtime returns garbage of the first list for a while. Resident memory is measured after that.
	time.Sleep(2 * time.Second)
	return reply(managerLine{
		Seconds:    seconds,
		P50Seconds: quantile(pods.took, 0.5),
		P99Seconds: quantile(pods.took, 0.99),
		usageLine:  readUsage().line(),
	})
}

// podReconciler reads each pod, and counts the reads.
type podReconciler struct {
	client   client.Client
	expected int
	done     chan struct{}

	lock sync.Mutex
	took []float64
	// left is called after each reconcile.
	left func()
}

func (r *podReconciler) register(manager ctrl.Manager, kind string) error {
	built := ctrl.NewControllerManagedBy(manager).Named("pods").
		WithOptions(controller.Options{MaxConcurrentReconciles: workers})
	switch kind {
	case "typed":
		built = built.For(&corev1.Pod{})
	case "metadata":
		built = built.For(&corev1.Pod{}, builder.OnlyMetadata)
	case "none":
		events := make(chan event.GenericEvent)
		page := &sync.WaitGroup{}
		r.left = page.Done
		list := func(ctx context.Context) error { return r.list(ctx, events, page) }
		if err := manager.Add(runnable(list)); err != nil {
			return err
		}
		built = built.WatchesRawSource(source.Channel(events, &handler.EnqueueRequestForObject{}))
	default:
		return fmt.Errorf("unknown manager %q: typed, metadata or none", kind)
	}
	return built.Complete(r)
}

// runnable is a function that the manager runs.
type runnable func(context.Context) error

func (r runnable) Start(ctx context.Context) error { return r(ctx) }

// list sends the names of all pods, a page after the other.
func (r *podReconciler) list(ctx context.Context, events chan<- event.GenericEvent, page *sync.WaitGroup) error {
	next := ""
	for {
		var pods metav1.PartialObjectMetadataList
		pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		if err := r.client.List(ctx, &pods, client.Limit(pageSize), client.Continue(next)); err != nil {
			return err
		}
		page.Add(len(pods.Items))
		for _, pod := range pods.Items {
			named := metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}
			events <- event.GenericEvent{Object: &corev1.Pod{ObjectMeta: named}}
		}
		page.Wait()
		if next = pods.Continue; next == "" {
			return nil
		}
	}
}

func (r *podReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	started := time.Now()
	err := r.client.Get(ctx, request.NamespacedName, &pod)
	took := time.Since(started).Seconds()
	if err != nil {
		return ctrl.Result{}, err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.took = append(r.took, took)
	if len(r.took) == r.expected {
		close(r.done)
	}
	if r.left != nil {
		r.left()
	}
	return ctrl.Result{}, nil
}
