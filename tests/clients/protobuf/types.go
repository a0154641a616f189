// Names the types of fields in the notation of the tables.

package main

import (
	"encoding"
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// special has the types whose JSON is not that of their fields. kubewarm's transcoder knows each of them.
var special = map[reflect.Type]string{
	reflect.TypeFor[metav1.Time]():          "Time",
	reflect.TypeFor[metav1.MicroTime]():     "MicroTime",
	reflect.TypeFor[metav1.FieldsV1]():      "Raw",
	reflect.TypeFor[runtime.RawExtension](): "Raw",
	reflect.TypeFor[intstr.IntOrString]():   "IntOrString",
	reflect.TypeFor[resource.Quantity]():    "Quantity",
}

// fieldKind returns the type of a field in the notation of the tables.
func (m *messages) fieldKind(path string, of reflect.Type) string {
	switch {
	case of.Kind() == reflect.Pointer:
		return "*" + m.valueKind(path, of.Elem())
	case of.Kind() == reflect.Map:
		if key := of.Key(); key.Kind() != reflect.String || hasMarshaler(key) {
			m.fault("%s: the map's keys are %s", path, key)
		}
		return "map:" + m.valueKind(path, of.Elem())
	case of.Kind() == reflect.Slice && !isBytes(of) && !isMessage(of):
		return "[]" + m.valueKind(path, of.Elem())
	default:
		return m.valueKind(path, of)
	}
}

// valueKind returns the type of a single value.
func (m *messages) valueKind(path string, of reflect.Type) string {
	if name, ok := special[of]; ok {
		return name
	}
	if hasMarshaler(of) {
		m.fault("%s: %s has a method for its JSON", path, of)
	}
	switch of.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32, reflect.Int64:
		return "int"
	case reflect.Struct:
		return m.message(of)
	case reflect.Slice:
		if isBytes(of) {
			return "bytes"
		}
		if isMessage(of) {
			return "list:" + m.valueKind(path, of.Elem())
		}
	}
	m.fault("%s: %s has no notation", path, of)
	return "?"
}

func isBytes(of reflect.Type) bool {
	return of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Uint8
}

// isMessage reports whether a type has a protobuf message of its own. For a slice, that message has one
// repeated field, number 1, because protobuf has no repeated values in maps.
func isMessage(of reflect.Type) bool {
	return reflect.PointerTo(of).Implements(reflect.TypeFor[interface{ Unmarshal([]byte) error }]())
}

// hasMarshaler reports whether encoding/json calls a method of the type, which an embedded field can add.
func hasMarshaler(of reflect.Type) bool {
	pointer := reflect.PointerTo(of)
	return pointer.Implements(reflect.TypeFor[json.Marshaler]()) ||
		pointer.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}
