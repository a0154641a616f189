// Prints the field tables in the format of crates/kubewarm-wire/src/protobuf/tables.txt.

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"slices"
)

// printTables prints one line for each kind, and for each message a line and the lines of its fields.
func printTables(output io.Writer) error {
	found := messages{fields: map[string][]field{}}
	buffer := &bytes.Buffer{}
	fmt.Fprintf(buffer, "# Field tables of Kubernetes protobuf, generated from k8s.io/api %s."+
		" `make generate` rewrites this file.\n", version("k8s.io/api"))
	known := builtins.AllKnownTypes()
	for _, kind := range kinds() {
		message := found.valueKind(kind.String(), known[kind])
		fmt.Fprintf(buffer, "kind %s %s %s\n", kind.GroupVersion(), kind.Kind, message)
	}
	for _, message := range slices.Sorted(maps.Keys(found.fields)) {
		fmt.Fprintf(buffer, "message %s\n", message)
		found.checkNames(message)
		for _, field := range found.fields[message] {
			fmt.Fprintf(buffer, "%d %s %s %s\n", field.number, field.name, field.omit, field.kind)
		}
	}
	if err := errors.Join(found.faults...); err != nil {
		return err
	}
	_, err := buffer.WriteTo(output)
	return err
}

// version returns the version of a module that this program was built with.
func version(module string) string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range build.Deps {
			if dependency.Path == module {
				return dependency.Version
			}
		}
	}
	return "of unknown version"
}
