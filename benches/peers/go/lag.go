package main

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
)

// writtenAt is the annotation with the time at which the writer sent the update, in nanoseconds since the
// epoch. Writer and readers run on one machine and share its clock.
const writtenAt = "bench.kubewarm.io/written-at"

// lagRecorder measures the time from a write until a handler can see it in the store.
type lagRecorder struct {
	mu      sync.Mutex
	running bool
	samples []float64
}

func newLagRecorder() *lagRecorder { return &lagRecorder{} }

func (r *lagRecorder) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.samples = true, nil
}

func (r *lagRecorder) stop() lagLine {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = false
	return lagLine{
		P50Seconds: quantile(r.samples, 0.5),
		P99Seconds: quantile(r.samples, 0.99),
		Events:     len(r.samples),
	}
}

// OnAdd does nothing: the writer only updates.
func (r *lagRecorder) OnAdd(any, bool) {}

// OnDelete does nothing: the writer only updates.
func (r *lagRecorder) OnDelete(any) {}

func (r *lagRecorder) OnUpdate(_, object any) {
	now := time.Now().UnixNano()
	written, ok := writtenTime(object)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		r.samples = append(r.samples, float64(now-written)/1e9)
	}
}

// writtenTime returns the time at which the writer sent the update, in nanoseconds since the epoch.
func writtenTime(object any) (int64, bool) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return 0, false
	}
	written, err := strconv.ParseInt(accessor.GetAnnotations()[writtenAt], 10, 64)
	return written, err == nil
}
