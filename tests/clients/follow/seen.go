package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// state is an object's identity and content.
type state struct {
	uid     string
	version uint64
	// metadata is JSON without managedFields, which profiles drop.
	metadata string
	// rest is the JSON of all other fields except the kind, which typed clients drop. It is empty for
	// metadata-only clients.
	rest string
}

// shows reports whether a client with s has the object is.
func (s state) shows(is state) bool {
	if s.rest == "" {
		is.rest = ""
	}
	return s == is
}

// seen is a client's copy of the objects, with the newest version of each. It detects objects that go back
// to an older version.
type seen struct {
	mu      sync.Mutex
	objects map[string]state
	newest  map[string]uint64
	faults  []string
}

// maxFaults limits the number of recorded faults.
const maxFaults = 20

func newSeen() *seen {
	return &seen{objects: map[string]state{}, newest: map[string]uint64{}}
}

func (s *seen) apply(object any) {
	name, found, err := stateOf(object)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.fault(err.Error())
		return
	}
	s.look(name, found)
	s.objects[name] = found
}

// remove removes the object. If another object of its name has replaced it, that is a fault. A client can
// receive a deletion with the last state that it had, which is never older than the newest version.
func (s *seen) remove(object any) {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	name, found, err := stateOf(object)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.fault(err.Error())
		return
	}
	s.look(name, found)
	if held, ok := s.objects[name]; ok && held.uid != found.uid {
		s.fault(fmt.Sprintf("%s was said to be gone with UID %s, and is %s", name, found.uid, held.uid))
		return
	}
	delete(s.objects, name)
}

// look records an object's version, which must not be older than the newest one. The caller holds the lock.
func (s *seen) look(name string, found state) {
	if found.version < s.newest[name] {
		s.fault(fmt.Sprintf("%s went back from version %d to %d", name, s.newest[name], found.version))
	}
	s.newest[name] = max(found.version, s.newest[name])
}

// replace replaces all objects.
func (s *seen) replace(objects []any) {
	s.mu.Lock()
	s.objects = map[string]state{}
	s.mu.Unlock()
	for _, object := range objects {
		s.apply(object)
	}
}

// fault records a fault. The caller holds the lock.
func (s *seen) fault(text string) {
	if len(s.faults) < maxFaults {
		s.faults = append(s.faults, text)
	}
}

// differences lists the differences from the API server's objects.
func (s *seen) differences(truth map[string]state) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []string
	for name, is := range truth {
		switch held, ok := s.objects[name]; {
		case !ok:
			found = append(found, fmt.Sprintf("%s is missing, of version %d", name, is.version))
		case !held.shows(is):
			found = append(found, fmt.Sprintf("%s is %v, not %v", name, held, is))
		}
	}
	for name, held := range s.objects {
		if _, ok := truth[name]; !ok {
			found = append(found, fmt.Sprintf("%s is held, of version %d, and gone", name, held.version))
		}
	}
	return found
}

func (s *seen) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.faults...)
}

func stateOf(object any) (string, state, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return "", state{}, err
	}
	version, err := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
	if err != nil {
		return "", state{}, fmt.Errorf("%s: %w", accessor.GetName(), err)
	}
	name := accessor.GetNamespace() + "/" + accessor.GetName()
	metadata, rest, err := contents(object)
	if err != nil {
		return "", state{}, fmt.Errorf("%s: %w", name, err)
	}
	return name, state{uid: string(accessor.GetUID()), version: version, metadata: metadata, rest: rest}, nil
}

// contents returns an object's metadata and its other fields as JSON, equal for all types of clients.
func contents(object any) (metadata, rest string, err error) {
	written, err := json.Marshal(object)
	if err != nil {
		return "", "", err
	}
	fields := map[string]any{}
	read := json.NewDecoder(bytes.NewReader(written))
	read.UseNumber()
	if err := read.Decode(&fields); err != nil {
		return "", "", err
	}
	own, ok := fields["metadata"].(map[string]any)
	if !ok {
		return "", "", fmt.Errorf("no metadata in %T", object)
	}
	delete(own, "managedFields")
	for _, left := range []string{"metadata", "kind", "apiVersion"} {
		delete(fields, left)
	}
	before, err := json.Marshal(own)
	if err != nil {
		return "", "", err
	}
	if _, isMetadata := object.(*metav1.PartialObjectMetadata); isMetadata {
		return string(before), "", nil
	}
	behind, err := json.Marshal(fields)
	return string(before), string(behind), err
}
