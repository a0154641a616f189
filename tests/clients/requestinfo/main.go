// Command requestinfo prints the attributes that the API server authorizes, for the GET requests whose targets it
// reads: one target in each line of standard input, one line of tab-separated attributes for each on standard output.
package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "requestinfo:", err)
		os.Exit(1)
	}
}

func run() error {
	resolver := &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	in := bufio.NewReader(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	for {
		target, err := in.ReadString('\n')
		if target == "" && err != nil {
			return out.Flush()
		}
		line, err := describe(resolver, strings.TrimSuffix(target, "\n"))
		if err != nil {
			// The API server rejects this request before it authorizes it.
			line = "-"
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
}

func describe(resolver request.RequestInfoResolver, target string) (string, error) {
	text := "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n"
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		return "", err
	}
	info, err := resolver.NewRequestInfo(req)
	if err != nil {
		return "", err
	}
	if !info.IsResourceRequest {
		return fmt.Sprintf("path\t%q", info.Path), nil
	}
	return fmt.Sprintf("%s\t%q\t%q\t%q\t%q\t%q\t%q", info.Verb, info.APIGroup, info.APIVersion, info.Namespace,
		info.Resource, info.Subresource, info.Name), nil
}
