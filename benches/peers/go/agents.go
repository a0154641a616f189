package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	clientfeatures "k8s.io/client-go/features"
)

// agentIdentity is one line of the file of agents.
type agentIdentity struct {
	Node  string `json:"node"`
	Token string `json:"token"`
}

// agentSet runs the agents of many nodes in one process.
type agentSet struct {
	ctx    context.Context
	agents []*agent

	mu sync.Mutex
	// servers are the addresses of which each new connection takes a random one, as behind a Service.
	servers []string
	// inStep is the number of agents that are in step.
	inStep int
	scene  agentScene
}

// agentScene is what the agents have seen since the command `begin`.
type agentScene struct {
	began time.Time
	// transitions counts how often an agent came into step or lost it.
	transitions            int
	refused, failed, ended int
	events, stray          int
	lags                   []float64
}

// sceneLine answers `scene`. Times begin with `begin`.
type sceneLine struct {
	InStep      int `json:"in_step"`
	Transitions int `json:"transitions"`
	// Seconds is the time until the last agent came into step, and P50Seconds that of the median agent. Both
	// are 0 if no agent came into step.
	Seconds    float64 `json:"seconds"`
	P50Seconds float64 `json:"p50_seconds"`
	Lists      int     `json:"lists"`
	Watches    int     `json:"watches"`
	Refused    int     `json:"refused"`
	Failed     int     `json:"failed"`
	Ended      int     `json:"ended"`
	Events     int     `json:"events"`
	Stray      int     `json:"stray"`
	Lag        lagLine `json:"lag"`
}

// runAgents prepares the agents, prints one line, and answers commands until standard input ends:
//
//   - `start` starts all agents at once.
//   - `begin` begins a scene.
//   - `scene` prints what the agents have seen since then.
//   - `servers ADDRESS,ADDRESS,…` replaces the servers of new connections.
func runAgents(arguments []string) error {
	flags := flag.NewFlagSet("agents", flag.ContinueOnError)
	servers := flags.String("servers", "", "addresses of the servers, separated by commas")
	authority := flags.String("authority", "", "file with the CA certificate of the servers")
	file := flags.String("file", "", "file with a line of JSON for each agent")
	count := flags.Int("count", 0, "number of agents, which are the first ones of the file")
	watchList := flags.Bool("watch-list", false, "begin with a streaming list instead of a LIST")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if err := setWatchList(*watchList); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	set := &agentSet{ctx: ctx, servers: strings.Split(*servers, ",")}
	set.scene.began = time.Now()
	if err := set.read(*file, *count, *authority); err != nil {
		return err
	}
	if err := reply(struct {
		Agents int `json:"agents"`
	}{len(set.agents)}); err != nil {
		return err
	}
	return set.serve()
}

// setWatchList overrides the default of this release of client-go, so that both list methods can be measured.
func setWatchList(enabled bool) error {
	gates, ok := clientfeatures.FeatureGates().(interface {
		Set(clientfeatures.Feature, bool) error
	})
	if !ok {
		return errors.New("client-go's feature gates cannot be set")
	}
	return gates.Set(clientfeatures.WatchListClient, enabled)
}

// read makes the first `count` agents of the file.
func (s *agentSet) read(path string, count int, authority string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	ca, err := os.ReadFile(authority)
	if err != nil {
		return err
	}
	lines := json.NewDecoder(file)
	for number := range count {
		var identity agentIdentity
		if err := lines.Decode(&identity); err != nil {
			return fmt.Errorf("agent %d of %s: %w", number, path, err)
		}
		agent, err := newAgent(s, number, identity, ca)
		if err != nil {
			return err
		}
		s.agents = append(s.agents, agent)
	}
	return nil
}

func (s *agentSet) serve() error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		var answer any = struct{}{}
		switch {
		case len(words) == 1 && words[0] == "start":
			for _, agent := range s.agents {
				agent.start()
			}
		case len(words) == 1 && words[0] == "begin":
			s.begin()
		case len(words) == 1 && words[0] == "scene":
			answer = s.report()
		case len(words) == 2 && words[0] == "servers":
			s.mu.Lock()
			s.servers = strings.Split(words[1], ",")
			s.mu.Unlock()
		default:
			return fmt.Errorf("unknown command %q", lines.Text())
		}
		if err := reply(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

// server returns the server of a new connection.
func (s *agentSet) server() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[rand.IntN(len(s.servers))]
}

// count changes the counters of the scene.
func (s *agentSet) count(change func(scene *agentScene)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.scene)
}

func (s *agentSet) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scene = agentScene{began: time.Now()}
}

func (s *agentSet) report() sceneLine {
	s.mu.Lock()
	defer s.mu.Unlock()
	scene := &s.scene
	var stepped []float64
	for _, agent := range s.agents {
		if agent.stepped.After(scene.began) {
			stepped = append(stepped, agent.stepped.Sub(scene.began).Seconds())
		}
	}
	return sceneLine{
		InStep:      s.inStep,
		Transitions: scene.transitions,
		Seconds:     quantile(stepped, 1),
		P50Seconds:  quantile(stepped, 0.5),
		Refused:     scene.refused,
		Failed:      scene.failed,
		Ended:       scene.ended,
		Events:      scene.events,
		Stray:       scene.stray,
		Lag: lagLine{
			P50Seconds: quantile(scene.lags, 0.5),
			P99Seconds: quantile(scene.lags, 0.99),
			Events:     len(scene.lags),
		},
	}
}
