// Lists the built-in kinds.

package main

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// builtins is client-go's scheme with the kinds of metadata reads, which client-go keeps in another scheme.
var builtins = func() *runtime.Scheme {
	scheme.Scheme.AddKnownTypes(metav1.SchemeGroupVersion,
		&metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{})
	return scheme.Scheme
}()

// kinds lists the kinds of whole objects, sorted by API version and kind. Kinds such as ListOptions are
// parameters of requests, and a watch event is a frame around an object.
func kinds() []schema.GroupVersionKind {
	var found []schema.GroupVersionKind
	for kind := range builtins.AllKnownTypes() {
		skip := kind.Version == runtime.APIVersionInternal || kind.Kind == "WatchEvent" ||
			strings.HasSuffix(kind.Kind, "Options")
		if !skip {
			found = append(found, kind)
		}
	}
	slices.SortFunc(found, func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.GroupVersion().String()+" "+a.Kind, b.GroupVersion().String()+" "+b.Kind)
	})
	return found
}
