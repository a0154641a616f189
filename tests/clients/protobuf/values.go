// Makes random values for the fuzzer.

package main

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"
)

// edgeValues makes values that Kubernetes' own functions rarely or never make. Examples are zeros, times
// before 1970, quantities with suffixes, raw JSON that Go rewrites, and characters that JSON escapes.
func edgeValues(serializer.CodecFactory) []any {
	return []any{
		func(value *int32, c randfill.Continue) { *value = int32(number(c)) },
		func(value *int64, c randfill.Continue) { *value = number(c) },
		func(value *string, c randfill.Continue) {
			*value = c.String(0)
			if c.Intn(4) == 0 {
				*value += string(pick(c, escaped)) + c.String(0)
			}
		},
		func(value *resource.Quantity, c randfill.Continue) {
			number := c.Intn(20000) - 10000
			*value = resource.MustParse(fmt.Sprint(number) + pick(c, fractions) + pick(c, suffixes))
		},
		func(value *metav1.Time, c randfill.Continue) { value.Time = moment(c) },
		func(value *metav1.MicroTime, c randfill.Continue) { value.Time = moment(c) },
		func(value *runtime.RawExtension, c randfill.Continue) { value.Raw = []byte(pick(c, raws)) },
		func(value *metav1.ManagedFieldsEntry, c randfill.Continue) {
			c.FillNoCustom(value)
			value.FieldsV1 = nil
			if c.Bool() {
				value.FieldsV1 = metav1.NewFieldsV1(pick(c, raws))
			}
		},
	}
}

var (
	// Next to the escaped characters are their neighbors, which JSON does not escape.
	escaped = []rune("\x00\b\t\n\f\r\x1f\"\\/<>&\x7f\u0085\u2027\u2028\u2029\u202a\ufeff\ufffd" +
		"\U0001f600\U0010ffff")
	fractions = []string{"", "", ".5", ".001", ".123456789"}
	suffixes  = []string{
		"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E6", "e-3",
	}
	// encoding/json removes white space from raw JSON and escapes the characters of HTML.
	raws = []string{
		`{}`,
		`null`,
		`{"apiVersion":"example.com/v1","kind":"CustomType","spec":{"replicas":1}}`,
		"{ \"z\" : [ 1.50, -2E+10, true, null, [], { } ],\n\t\"a\" : \"a  b\" }\r\n",
		"{\"<\u2028&>\":\"\\u003c\\/\\\" \u2029\u2027 \\ud83d\\ude00 \U0001f600\"}",
		` [ "text" ] `,
	}
)

func pick[T any](c randfill.Continue, from []T) T {
	return from[c.Intn(len(from))]
}

// number returns 0, a small number or any number.
func number(c randfill.Continue) int64 {
	switch c.Intn(4) {
	case 0:
		return 0
	case 1:
		return c.Int63n(1000) - 500
	default:
		return int64(c.Uint64())
	}
}

// moment returns the zero time, or a time before the year 10,000.
func moment(c randfill.Continue) time.Time {
	if c.Intn(4) == 0 {
		return time.Time{}
	}
	end := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	start := time.Time{}.Unix()
	return time.Unix(start+c.Int63n(end-start), c.Int63n(int64(time.Second)))
}
