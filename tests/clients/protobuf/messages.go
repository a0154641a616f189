// Reads the tables of messages from the tags of Go structs.

package main

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inlineName stands for the JSON name of an embedded struct, whose fields JSON has in place of the struct.
const inlineName = "."

// field is one line of a message's table.
type field struct {
	number int
	name   string
	// omit is `omitempty`, `omitzero` or `-`.
	omit string
	kind string
}

// messages collects the tables of all messages that are reachable from the kinds, in the order of the Go
// structs, which is the order of JSON.
type messages struct {
	fields map[string][]field
	// faults names everything that the tables cannot express.
	faults []error
}

func (m *messages) fault(format string, values ...any) {
	m.faults = append(m.faults, fmt.Errorf(format, values...))
}

// message adds the table of a struct, and of every struct in its fields. It returns the message's name.
func (m *messages) message(of reflect.Type) string {
	path := strings.TrimPrefix(strings.TrimPrefix(of.PkgPath(), "k8s.io/api/"), "k8s.io/apimachinery/pkg/")
	name := path + "." + of.Name()
	if _, ok := m.fields[name]; ok {
		return name
	}
	// A message can contain itself.
	m.fields[name] = nil
	var fields []field
	for index := range of.NumField() {
		member := of.Field(index)
		switch {
		case member.Type != reflect.TypeFor[metav1.TypeMeta]():
			if found, ok := m.field(name+"."+member.Name, member); ok {
				fields = append(fields, found)
			}
		// Protobuf has the kind and API version in the envelope. JSON has them first.
		case index > 0:
			m.fault("%s: TypeMeta is not the first field", name)
		}
	}
	m.fields[name] = fields
	return name
}

// field reads the tags of one field. It returns false if the field is in neither encoding.
func (m *messages) field(path string, member reflect.StructField) (field, bool) {
	name, options, _ := strings.Cut(member.Tag.Get("json"), ",")
	// The wire type before the number is wrong in some tags. Kubernetes' generator uses the Go type.
	_, tag, _ := strings.Cut(member.Tag.Get("protobuf"), ",")
	digits, _, _ := strings.Cut(tag, ",")
	number, err := strconv.Atoi(digits)
	switch {
	case name == "-" && err != nil:
		return field{}, false
	case name == "-":
		m.fault("%s: in protobuf, but not in JSON", path)
	case err != nil:
		m.fault("%s: no protobuf number", path)
	case !member.IsExported():
		m.fault("%s: has tags and is not exported", path)
	case member.Anonymous && name == "" && member.Type.Kind() == reflect.Struct:
		name = inlineName
	case name == "":
		m.fault("%s: no JSON name", path)
	}
	kind := m.fieldKind(path, member.Type)
	return field{number: number, name: name, omit: m.omit(path, options, member.Type), kind: kind}, true
}

// omit returns the condition under which Go leaves a field out of JSON.
//
// Go's omitempty means: nil pointers, empty strings, slices and maps, false and 0. Structs are never empty,
// so omitempty has no effect on messages, times, quantities and raw JSON. The tables do not show it there.
// omitzero calls IsZero. A time is zero at the start of year 1, which Go reads from an empty message.
func (m *messages) omit(path, options string, of reflect.Type) string {
	omit := "-"
	for option := range strings.SplitSeq(options, ",") {
		switch {
		case option == "" || option == "inline":
		case option == "omitempty":
			if of.Kind() != reflect.Struct {
				omit = option
			}
		case option == "omitzero" && of == reflect.TypeFor[metav1.Time]():
			omit = option
		default:
			m.fault("%s: JSON option %q on %s", path, option, of)
		}
	}
	return omit
}

// checkNames reports numbers and JSON names that occur twice in a message. Go would leave such names out.
func (m *messages) checkNames(message string) {
	var numbers []int
	for _, field := range m.fields[message] {
		if slices.Contains(numbers, field.number) {
			m.fault("%s: two fields have number %d", message, field.number)
		}
		numbers = append(numbers, field.number)
	}
	var names []string
	for _, name := range m.names(message) {
		if slices.Contains(names, name) {
			m.fault("%s: two fields have JSON name %q", message, name)
		}
		names = append(names, name)
	}
}

// names lists the JSON names of a message, with the names of its embedded structs.
func (m *messages) names(message string) []string {
	var names []string
	for _, field := range m.fields[message] {
		if field.name == inlineName {
			names = append(names, m.names(field.kind)...)
		} else {
			names = append(names, field.name)
		}
	}
	return names
}
