// Describes Kubernetes' protobuf for kubewarm, which has no Go types. `protobuf tables` prints the field
// tables of all built-in kinds. `protobuf fuzz` writes random objects in both encodings.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	command := ""
	if len(arguments) > 0 {
		command, arguments = arguments[0], arguments[1:]
	}
	flags := flag.NewFlagSet(command, flag.ExitOnError)
	switch command {
	case "tables":
		flags.Parse(arguments)
		return printTables(os.Stdout)
	case "fuzz":
		seed := flags.Int64("seed", rand.Int63(), "seed of the random objects")
		count := flags.Int("count", 1000, "number of objects")
		flags.Parse(arguments)
		fmt.Fprintf(os.Stderr, "protobuf fuzz --seed %d --count %d\n", *seed, *count)
		return writeObjects(os.Stdout, *seed, *count)
	default:
		return errors.New("usage: protobuf tables | protobuf fuzz [--seed N] [--count N]")
	}
}
