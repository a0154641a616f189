package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// agentTransport counts the responses to an agent, and follows its watches.
type agentTransport struct {
	agent *agent
	next  http.RoundTripper
}

func (t *agentTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	_, resource, _ := strings.Cut(request.URL.Path, "/api/v1/")
	kind := slices.Index(agentKinds[:], resource)
	isWatch := query.Has("watch")
	response, err := t.next.RoundTrip(request)
	t.agent.set.count(func(scene *agentScene) {
		switch {
		case errors.Is(err, context.Canceled): // this process ends
		case err != nil:
			scene.failed++
		case response.StatusCode == http.StatusTooManyRequests:
			scene.refused++
		// 410 is no failure: it tells a client whose version is too old to list again.
		case response.StatusCode == http.StatusGone:
		case response.StatusCode >= http.StatusBadRequest:
			scene.failed++
		}
	})
	if err != nil || !isWatch || kind < 0 || response.StatusCode != http.StatusOK {
		return response, err
	}
	timeout, _ := strconv.Atoi(query.Get("timeoutSeconds")) // client-go always sets it
	response.Body = &watchBody{
		ReadCloser: response.Body,
		agent:      t.agent,
		kind:       kind,
		number:     t.agent.openWatch(kind, query.Get("sendInitialEvents") == "true"),
		due:        time.Now().Add(time.Duration(timeout)*time.Second - time.Second),
	}
	return response, nil
}

// watchBody notes the end of a watch.
type watchBody struct {
	io.ReadCloser
	agent        *agent
	kind, number int
	// due is about the end that the client asked for.
	due  time.Time
	once sync.Once
}

func (b *watchBody) Read(data []byte) (int, error) {
	read, err := b.ReadCloser.Read(data)
	if err != nil {
		b.end()
	}
	return read, err
}

func (b *watchBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

func (b *watchBody) end() {
	b.once.Do(func() {
		b.agent.closeWatch(b.kind, b.number)
		if time.Now().Before(b.due) {
			b.agent.set.count(func(scene *agentScene) { scene.ended++ })
		}
	})
}
