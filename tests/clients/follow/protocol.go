package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// syncedLine is the first line of output.
type syncedLine struct {
	Seconds   float64 `json:"seconds"`
	Followers int     `json:"followers"`
}

// writtenLine is the response to `write COUNT SEED`.
type writtenLine struct {
	Seconds float64 `json:"seconds"`
	// Writes is the number of successful writes.
	Writes int `json:"writes"`
}

// agreedLine is the response to `agree SECONDS`: the differences between followers and API server, and
// objects that went back to an older version.
type agreedLine struct {
	Objects     int      `json:"objects"`
	Differences []string `json:"differences"`
	Faults      []string `json:"faults"`
}

// maxDifferences limits the reported differences of each follower.
const maxDifferences = 5

// serve answers commands until standard input ends: `write COUNT SEED`, `agree SECONDS`, `look`, `looked`.
func serve(ctx context.Context, followers []*follower, truth *truth, reader *reader) error {
	lines := bufio.NewScanner(os.Stdin)
	stop := func() looks { return looks{} }
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		var answer any
		switch {
		case len(words) == 3 && words[0] == "write":
			count, err := strconv.Atoi(words[1])
			if err != nil {
				return err
			}
			seed, err := strconv.ParseUint(words[2], 10, 64)
			if err != nil {
				return err
			}
			started := time.Now()
			writes, err := truth.write(ctx, count, seed)
			if err != nil {
				return err
			}
			answer = writtenLine{Seconds: time.Since(started).Seconds(), Writes: writes}
		case len(words) == 2 && words[0] == "agree":
			seconds, err := strconv.Atoi(words[1])
			if err != nil {
				return err
			}
			answer = agree(ctx, followers, truth, time.Duration(seconds)*time.Second)
		case len(words) == 1 && words[0] == "look":
			stop = looking(ctx, reader)
			answer = struct{}{}
		case len(words) == 1 && words[0] == "looked":
			answer = stop()
		default:
			return fmt.Errorf("unknown command %q", lines.Text())
		}
		if err := reply(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

// looking starts reads. The returned function stops them and returns their results.
func looking(ctx context.Context, reader *reader) func() looks {
	ctx, cancel := context.WithCancel(ctx)
	result := make(chan looks, 1)
	go func() { result <- reader.look(ctx) }()
	return func() looks {
		cancel()
		return <-result
	}
}

// agree waits until all followers have the API server's objects.
func agree(ctx context.Context, followers []*follower, truth *truth, limit time.Duration) agreedLine {
	deadline := time.Now().Add(limit)
	for {
		line := agreedLine{Differences: []string{}, Faults: []string{}}
		for _, one := range followers {
			is, err := truth.list(ctx, one.of, one.selector)
			if err != nil {
				line.Differences = append(line.Differences, err.Error())
				continue
			}
			line.Objects += len(is)
			found := one.seen.differences(is)
			for _, text := range found[:min(len(found), maxDifferences)] {
				line.Differences = append(line.Differences, one.title()+": "+text)
			}
			for _, text := range one.seen.told() {
				line.Faults = append(line.Faults, one.title()+": "+text)
			}
		}
		if len(line.Differences) == 0 || time.Now().After(deadline) {
			return line
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func reply(line any) error {
	return json.NewEncoder(os.Stdout).Encode(line)
}
