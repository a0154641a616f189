package main

import (
	"context"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// agentKinds are the resources that each agent follows. Of pods, it follows those of its node.
var agentKinds = [3]string{"pods", "services", "namespaces"}

var agentObjects = [3]runtime.Object{&corev1.Pod{}, &corev1.Service{}, &corev1.Namespace{}}

// agent follows what an agent on one node follows: with reflectors of client-go, and with a token, a client
// address and a connection of its own.
type agent struct {
	set    *agentSet
	node   string
	client rest.Interface

	// The set's mutex guards the fields below.

	followed [3]followedKind
	// stepped is the last time at which the agent came into step.
	stepped time.Time
	// seen has the newest time of writing of each pod of the node.
	seen map[string]int64
}

// followedKind is the state of one reflector. The agent is in step while each of its reflectors holds a
// complete list and an open watch.
type followedKind struct {
	hasList bool
	// watch is the number of the open watch, or 0.
	watch int
	// watches is the number of watches so far.
	watches int
}

func newAgent(set *agentSet, number int, identity agentIdentity, authority []byte) (*agent, error) {
	a := &agent{set: set, node: identity.Node, seen: map[string]int64{}}
	// Linux accepts each address of 127.0.0.0/8 as a local one.
	address := net.IPv4(127, 10, byte((number+1)>>8), byte(number+1))
	// The time limits are those of client-go.
	dialer := &net.Dialer{
		Timeout:   30 * time.Second,
		KeepAlive: 30 * time.Second,
		LocalAddr: &net.TCPAddr{IP: address},
	}
	// QPS and Burst are client-go's defaults, 5 and 10, because few agents change them.
	config := &rest.Config{
		// The certificates of all servers are for this name. The dialer chooses the server.
		Host:            "https://127.0.0.1",
		BearerToken:     identity.Token,
		UserAgent:       "kubewarm-bench-agent",
		TLSClientConfig: rest.TLSClientConfig{CAData: authority},
		ContentConfig:   rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, set.server())
		},
		WrapTransport: func(next http.RoundTripper) http.RoundTripper {
			return &agentTransport{agent: a, next: next}
		},
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	a.client = client.CoreV1().RESTClient()
	return a, nil
}

// start starts the reflectors, which run until the process ends.
func (a *agent) start() {
	for kind, resource := range agentKinds {
		selector := fields.Everything()
		if resource == "pods" {
			selector = fields.OneTermEqualSelector("spec.nodeName", a.node)
		}
		objects := cache.NewListWatchFromClient(a.client, resource, metav1.NamespaceAll, selector)
		store := &followedStore{agent: a, kind: kind}
		options := cache.ReflectorOptions{Name: a.node + "/" + resource}
		reflector := cache.NewReflectorWithOptions(objects, agentObjects[kind], store, options)
		go reflector.RunWithContext(a.set.ctx)
	}
}

// change changes the state of one reflector, and the number of agents in step.
func (a *agent) change(kind int, change func(followed *followedKind)) {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	wasInStep := a.isInStep()
	change(&a.followed[kind])
	switch isInStep := a.isInStep(); {
	case isInStep && !wasInStep:
		a.stepped = time.Now()
		a.set.inStep++
		a.set.scene.transitions++
	case wasInStep && !isInStep:
		a.set.inStep--
		a.set.scene.transitions++
	}
}

func (a *agent) isInStep() bool {
	for _, followed := range a.followed {
		if !followed.hasList || followed.watch == 0 {
			return false
		}
	}
	return true
}

// openWatch notes an open watch and returns its number.
func (a *agent) openWatch(kind int, sendsInitialEvents bool) int {
	number := 0
	a.change(kind, func(followed *followedKind) {
		followed.watches++
		followed.watch = followed.watches
		number = followed.watch
		if sendsInitialEvents {
			followed.hasList = false
		}
	})
	return number
}

// closeWatch notes the end of a watch.
func (a *agent) closeWatch(kind, number int) {
	a.change(kind, func(followed *followedKind) {
		if followed.watch == number {
			followed.watch = 0
		}
	})
}

// observe records the lag of a pod that was written during the scene.
func (a *agent) observe(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	written, ok := writtenTime(pod)
	if !ok {
		return
	}
	now := time.Now().UnixNano()
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	key, scene := pod.Namespace+"/"+pod.Name, &a.set.scene
	if written <= a.seen[key] {
		return
	}
	a.seen[key] = written
	if written < scene.began.UnixNano() {
		return
	}
	scene.events++
	scene.lags = append(scene.lags, float64(now-written)/1e9)
	if pod.Spec.NodeName != a.node {
		scene.stray++
	}
}

// followedStore is the store of a reflector. It keeps no objects, so that thousands of agents need little
// memory and time.
type followedStore struct {
	agent *agent
	kind  int
}

func (s *followedStore) Add(object any) error {
	s.agent.observe(object)
	return nil
}

func (s *followedStore) Update(object any) error {
	s.agent.observe(object)
	return nil
}

func (s *followedStore) Delete(any) error { return nil }

func (s *followedStore) Resync() error { return nil }

func (s *followedStore) Replace(objects []any, _ string) error {
	for _, object := range objects {
		s.agent.observe(object)
	}
	s.agent.change(s.kind, func(followed *followedKind) { followed.hasList = true })
	return nil
}
