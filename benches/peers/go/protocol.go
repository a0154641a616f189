package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// syncedLine is the first line of each cache.
type syncedLine struct {
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	Objects    int     `json:"objects"`
	usageLine
}

// listedLine answers `list KEY VALUE,VALUE,…`: one read for each value.
type listedLine struct {
	P50Seconds float64 `json:"p50_seconds"`
	P99Seconds float64 `json:"p99_seconds"`
	Objects    int     `json:"objects"`
}

// lagLine answers `lag-stop`.
type lagLine struct {
	P50Seconds float64 `json:"p50_seconds"`
	P99Seconds float64 `json:"p99_seconds"`
	Events     int     `json:"events"`
}

// serve answers commands until standard input ends: `list KEY VALUES`, `usage`, `lag-start`,
// `lag-stop`.
func serve(ctx context.Context, cache *podCache) error {
	recorder := newLagRecorder()
	registered := false
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		var answer any
		switch {
		case len(words) == 3 && words[0] == "list":
			listed, err := timeLists(ctx, cache, words[1], strings.Split(words[2], ","))
			if err != nil {
				return err
			}
			answer = listed
		case len(words) == 1 && words[0] == "usage":
			answer = readUsage().line()
		case len(words) == 1 && words[0] == "lag-start":
			// Registered only now: the replay of 50,000 objects is not part of the lag.
			if !registered {
				if err := cache.handle(ctx, recorder); err != nil {
					return err
				}
				registered = true
			}
			recorder.start()
			answer = struct{}{}
		case len(words) == 1 && words[0] == "lag-stop":
			answer = recorder.stop()
		default:
			return fmt.Errorf("unknown command %q", lines.Text())
		}
		if err := reply(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func timeLists(ctx context.Context, cache *podCache, key string, values []string) (listedLine, error) {
	took := make([]float64, 0, len(values))
	objects := 0
	for _, value := range values {
		selector := labels.SelectorFromSet(labels.Set{key: value})
		started := time.Now()
		found, err := cache.list(ctx, selector)
		took = append(took, time.Since(started).Seconds())
		if err != nil {
			return listedLine{}, err
		}
		objects = found
	}
	return listedLine{P50Seconds: quantile(took, 0.5), P99Seconds: quantile(took, 0.99), Objects: objects}, nil
}

// quantile sorts its argument and returns the nearest rank, or 0 without samples.
func quantile(samples []float64, share float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	slices.Sort(samples)
	return samples[min(int(float64(len(samples))*share), len(samples)-1)]
}

func reply(line any) error {
	return json.NewEncoder(os.Stdout).Encode(line)
}
