// Package tools of others, asked by the tests in ../test_xpkg_upstream.py: crossplane-runtime's parser, linters and
// builder, go-containerregistry's files and registries, and cosign's signatures.
//
//	parse FILE        what the package file is, as JSON
//	pull REF          the same of a package in a registry
//	build DIR FILE    a package file from the YAML files of a directory
//	push FILE REF     send a package file to a registry
//	sign REF KEY      sign an image with an ECDSA key in PEM, and attach the signature
//	bundle REF KEY    the same, in the form that cosign 3 prefers
package main

import (
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/xpkg"
	"github.com/crossplane/crossplane-runtime/v2/pkg/xpkg/parser"
	"github.com/crossplane/crossplane-runtime/v2/pkg/xpkg/parser/examples"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	cosignbundle "github.com/sigstore/cosign/v3/pkg/cosign/bundle"
	"github.com/sigstore/cosign/v3/pkg/oci/mutate"
	ociremote "github.com/sigstore/cosign/v3/pkg/oci/remote"
	"github.com/sigstore/cosign/v3/pkg/oci/static"
	"github.com/sigstore/cosign/v3/pkg/types"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/sigstore/sigstore/pkg/signature/payload"
	"github.com/spf13/afero"
)

type answer struct {
	Digest  string   `json:"digest"`
	Kind    string   `json:"kind"`
	Objects []string `json:"objects"`
	Lint    string   `json:"lint"`
}

var linters = map[string]parser.Linter{
	"Configuration": xpkg.NewConfigurationLinter(),
	"Function":      xpkg.NewFunctionLinter(),
	"Provider":      xpkg.NewProviderLinter(),
}

func packageParser() (*parser.PackageParser, error) {
	meta, err := xpkg.BuildMetaScheme()
	if err != nil {
		return nil, err
	}
	objects, err := xpkg.BuildObjectScheme()
	if err != nil {
		return nil, err
	}
	return parser.New(meta, objects), nil
}

func fromFile(file string) (v1.Image, error) {
	image, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		return nil, err
	}
	return xpkg.AnnotateLayers(image)
}

func describe(image v1.Image) error {
	reading, err := packageParser()
	if err != nil {
		return err
	}
	stream, err := xpkg.ExtractPackageYAML(image)
	if err != nil {
		return err
	}
	found, err := reading.Parse(context.Background(), stream)
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	said := answer{Digest: digest.String(), Objects: []string{}}
	for _, object := range found.GetObjects() {
		said.Objects = append(said.Objects, object.GetObjectKind().GroupVersionKind().Kind)
	}
	if len(found.GetMeta()) != 1 {
		return fmt.Errorf("%d meta objects", len(found.GetMeta()))
	}
	said.Kind = found.GetMeta()[0].GetObjectKind().GroupVersionKind().Kind
	if err := linters[said.Kind].Lint(found); err != nil {
		said.Lint = err.Error()
	}
	return json.NewEncoder(os.Stdout).Encode(said)
}

func build(directory, file string) error {
	reading, err := packageParser()
	if err != nil {
		return err
	}
	shown := filepath.Join(directory, "examples")
	source := parser.NewFsBackend(afero.NewOsFs(), parser.FsDir(directory), parser.FsFilters(
		parser.SkipDirs(), parser.SkipNotYAML(), parser.SkipEmpty(),
		func(path string, _ os.FileInfo) (bool, error) { return strings.HasPrefix(path, shown), nil }))
	shownSource := parser.NewFsBackend(afero.NewOsFs(), parser.FsDir(shown),
		parser.FsFilters(parser.SkipDirs(), parser.SkipNotYAML(), parser.SkipEmpty()))
	image, _, err := xpkg.New(source, shownSource, reading, examples.New()).Build(context.Background())
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	return tarball.Write(nil, image, out)
}

func signing(reference, keyFile string) (signature.Signer, name.Digest, error) {
	digest, err := name.NewDigest(reference, name.Insecure)
	if err != nil {
		return nil, digest, err
	}
	pem, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, digest, err
	}
	key, err := cryptoutils.UnmarshalPEMToPrivateKey(pem, cryptoutils.SkipPassword)
	if err != nil {
		return nil, digest, err
	}
	signer, err := signature.LoadSigner(key, crypto.SHA256)
	return signer, digest, err
}

func bundle(reference, keyFile string) error {
	signer, digest, err := signing(reference, keyFile)
	if err != nil {
		return err
	}
	statement := fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],`+
		`"predicateType":%q,"predicate":{}}`, strings.TrimPrefix(digest.DigestStr(), "sha256:"), types.CosignSignPredicateType)
	envelope, err := dsse.WrapSigner(signer, types.IntotoPayloadType).SignMessage(strings.NewReader(statement))
	if err != nil {
		return err
	}
	public, err := signer.PublicKey()
	if err != nil {
		return err
	}
	made, err := cosignbundle.MakeNewBundle(public, nil, []byte(statement), envelope, nil, nil)
	if err != nil {
		return err
	}
	return ociremote.WriteAttestationNewBundleFormat(digest, made, types.CosignSignPredicateType)
}

func sign(reference, keyFile string) error {
	signer, digest, err := signing(reference, keyFile)
	if err != nil {
		return err
	}
	body, err := (&payload.Cosign{Image: digest}).MarshalJSON()
	if err != nil {
		return err
	}
	made, err := signer.SignMessage(strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	kept, err := static.NewSignature(body, base64.StdEncoding.EncodeToString(made))
	if err != nil {
		return err
	}
	entity, err := ociremote.SignedEntity(digest)
	if err != nil {
		return err
	}
	signed, err := mutate.AttachSignatureToEntity(entity, kept)
	if err != nil {
		return err
	}
	return ociremote.WriteSignatures(digest.Repository, signed)
}

func run(words []string) error {
	if len(words) < 2 {
		return nil
	}
	switch words[0] {
	case "parse":
		image, err := fromFile(words[1])
		if err != nil {
			return err
		}
		return describe(image)
	case "pull":
		reference, err := name.ParseReference(words[1], name.Insecure)
		if err != nil {
			return err
		}
		image, err := remote.Image(reference)
		if err != nil {
			return err
		}
		return describe(image)
	case "build":
		return build(words[1], words[2])
	case "push":
		image, err := fromFile(words[1])
		if err != nil {
			return err
		}
		reference, err := name.ParseReference(words[2], name.Insecure)
		if err != nil {
			return err
		}
		return remote.Write(reference, image)
	case "bundle":
		return bundle(words[1], words[2])
	case "sign":
		return sign(words[1], words[2])
	}
	return fmt.Errorf("no such question: %s", words[0])
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
