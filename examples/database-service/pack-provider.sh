#!/bin/sh
# Builds provider-sql from its published source (with Go), and packs it with its kinds, to be run as a process.
set -eu
module=github.com/crossplane-contrib/provider-sql
version=v0.16.0
here=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
go mod init pack-provider
go get "$module/cmd/provider@$version"
go build -trimpath -o provider "$module/cmd/provider"
cp -r "$(go list -m -f '{{.Dir}}' "$module")/package" package
planform xpkg build --package-root package --executable provider --package-file "$here/provider-sql.xpkg"
