// Writes random objects in both encodings of the API server.

package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	genericfuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"
)

// The API server's own serializers.
var (
	asProtobuf = protobuf.NewSerializer(builtins, builtins)
	asJSON     = json.NewSerializerWithOptions(
		json.DefaultMetaFactory, builtins, builtins, json.SerializerOptions{})
)

// writeObjects writes random objects, of all kinds in turn. Each object is two frames: its protobuf, and its
// JSON. A frame is its length in 4 bytes, big-endian, and its bytes.
func writeObjects(output io.Writer, seed int64, count int) error {
	funcs := fuzzer.MergeFuzzerFuncs(genericfuzzer.Funcs, edgeValues)
	filler := fuzzer.FuzzerFor(funcs, rand.NewSource(seed), scheme.Codecs).NumElements(0, maxElements)
	buffer := bufio.NewWriter(output)
	all := kinds()
	for index := range count {
		kind := all[index%len(all)]
		if err := writeObject(buffer, filler, kind); err != nil {
			return fmt.Errorf("object %d, %s: %w", index, kind, err)
		}
	}
	return buffer.Flush()
}

// maxElements limits the elements of one list or map. With Kubernetes' own limit of 1, maps have no order.
const maxElements = 2

func writeObject(output io.Writer, filler *randfill.Filler, kind schema.GroupVersionKind) error {
	made, err := builtins.New(kind)
	if err != nil {
		return err
	}
	filler.Fill(made)
	made.GetObjectKind().SetGroupVersionKind(kind)
	// The API server serves objects that it has read from protobuf. Reading makes nil of empty lists, and
	// normalizes quantities.
	stored, err := runtime.Encode(asProtobuf, made)
	if err != nil {
		return err
	}
	served, err := runtime.Decode(asProtobuf, stored)
	if err != nil {
		return err
	}
	for _, serializer := range []runtime.Serializer{asProtobuf, asJSON} {
		frame, err := runtime.Encode(serializer, served)
		if err != nil {
			return err
		}
		if err := binary.Write(output, binary.BigEndian, uint32(len(frame))); err != nil {
			return err
		}
		if _, err := output.Write(frame); err != nil {
			return err
		}
	}
	return nil
}
