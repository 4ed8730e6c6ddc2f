"""What `planform function init --language go` writes: the same function as in Python, on upstream's SDK for Go.

The program takes the options that every runtime gives a function, so that it runs here and on Crossplane alike.
"""

from __future__ import annotations

from typing import Final

SDK: Final = "github.com/crossplane/function-sdk-go"
SDK_VERSION: Final = "v0.5.0"

_MAIN = """// Command function serves a composition function.
package main

import (
	"flag"
	"log"

	function "github.com/crossplane/function-sdk-go"
)

func main() {
	address := flag.String("address", ":9443", "Where to serve.")
	certs := flag.String("tls-certs-dir", "", "Directory of tls.crt, tls.key and ca.crt.")
	insecure := flag.Bool("insecure", false, "Serve without TLS.")
	debug := flag.Bool("debug", false, "Log more.")
	flag.Parse()

	logger, err := function.NewLogger(*debug)
	if err != nil {
		log.Fatal(err)
	}
	err = function.Serve(&Function{log: logger},
		function.Listen("tcp", *address),
		function.MTLSCertificates(*certs),
		function.Insecure(*insecure))
	if err != nil {
		log.Fatal(err)
	}
}
"""

_FUNCTION = """package main

import (
	"context"
	"fmt"

	"github.com/crossplane/function-sdk-go/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/crossplane/function-sdk-go/request"
	"github.com/crossplane/function-sdk-go/resource"
	"github.com/crossplane/function-sdk-go/resource/composed"
	"github.com/crossplane/function-sdk-go/response"
)

// Function composes a ConfigMap that greets whoever the XR names.
type Function struct {
	fnv1.UnimplementedFunctionRunnerServiceServer

	log logging.Logger
}

// RunFunction answers one request. What it does not mention is passed on: other steps' resources stay as they are.
func (f *Function) RunFunction(_ context.Context, req *fnv1.RunFunctionRequest) (*fnv1.RunFunctionResponse, error) {
	rsp := response.To(req, response.DefaultTTL)
	xr, err := request.GetObservedCompositeResource(req)
	if err != nil {
		response.Fatal(rsp, fmt.Errorf("cannot read the XR: %w", err))
		return rsp, nil
	}
	who, err := xr.Resource.GetString("spec.name")
	if err != nil || who == "" {
		response.Fatal(rsp, fmt.Errorf("spec.name is required"))
		return rsp, nil
	}
	greeting := composed.New()
	greeting.SetAPIVersion("v1")
	greeting.SetKind("ConfigMap")
	if err := greeting.SetString("data.greeting", "Hello, "+who); err != nil {
		response.Fatal(rsp, err)
		return rsp, nil
	}
	desired, err := request.GetDesiredComposedResources(req)
	if err != nil {
		response.Fatal(rsp, fmt.Errorf("cannot read what is desired: %w", err))
		return rsp, nil
	}
	observed, err := request.GetObservedComposedResources(req)
	if err != nil {
		response.Fatal(rsp, fmt.Errorf("cannot read what is there: %w", err))
		return rsp, nil
	}
	ready := resource.ReadyUnspecified
	if _, found := observed["greeting"]; found {
		ready = resource.ReadyTrue
	}
	desired["greeting"] = &resource.DesiredComposed{Resource: greeting, Ready: ready}
	if err := response.SetDesiredComposedResources(rsp, desired); err != nil {
		response.Fatal(rsp, err)
	}
	return rsp, nil
}
"""

_TEST = """package main

import (
	"context"
	"testing"

	"github.com/crossplane/function-sdk-go/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/crossplane/function-sdk-go/resource"
)

func run(t *testing.T, xr string) *fnv1.RunFunctionResponse {
	t.Helper()
	req := &fnv1.RunFunctionRequest{Observed: &fnv1.State{
		Composite: &fnv1.Resource{Resource: resource.MustStructJSON(xr)},
	}}
	rsp, err := (&Function{log: logging.NewNopLogger()}).RunFunction(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	return rsp
}

func TestItGreetsWhoeverTheXRNames(t *testing.T) {
	rsp := run(t, `{"apiVersion":"example.org/v1","kind":"Greeting","spec":{"name":"Ada"}}`)
	data := rsp.GetDesired().GetResources()["greeting"].GetResource().AsMap()["data"].(map[string]any)
	if data["greeting"] != "Hello, Ada" {
		t.Errorf("unexpected greeting: %v", data)
	}
}

func TestAMissingNameIsFatal(t *testing.T) {
	rsp := run(t, `{"apiVersion":"example.org/v1","kind":"Greeting","spec":{}}`)
	if rsp.GetResults()[0].GetSeverity() != fnv1.Severity_SEVERITY_FATAL {
		t.Errorf("expected a fatal result: %v", rsp.GetResults())
	}
}
"""

_README = """# {name}

A composition function in Go.

    go mod tidy                   # once: writes go.sum
    go test ./...
    CGO_ENABLED=0 go build -o function .
    planform render example/xr.yaml example/composition.yaml --function {name}=./function
    planform xpkg build --package-root package --executable function --package-file {name}.xpkg
    planform function install {name}.xpkg --tag v0.1.0
"""


def go_files(name: str) -> dict[str, str]:
    """The files that only a function in Go has, by path."""
    return {
        "main.go": _MAIN,
        "fn.go": _FUNCTION,
        "fn_test.go": _TEST,
        "go.mod": f"module {name}\n\ngo 1.24\n\nrequire {SDK} {SDK_VERSION}\n",
        "README.md": _README.format(name=name),
        ".gitignore": "function\n*.xpkg\n",
    }
