# The embedded document store, compiled in the build: FerretDB on SQLite behind a gateway.
# GO_IMAGE: any image with Go 1.26 or later and git. It runs on the builder's own platform.
ARG GO_IMAGE=docker.io/library/golang:1.26
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
ARG TARGETOS
ARG TARGETARCH
ARG FERRETDB=v1.24.2
ENV CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOTOOLCHAIN=local
COPY local/go/store /src
WORKDIR /src
RUN go mod download github.com/FerretDB/FerretDB@${FERRETDB} \
 && cp -r "$(go env GOMODCACHE)/github.com/!ferret!d!b/!ferret!d!b@${FERRETDB}" patched \
 && chmod -R u+w patched \
 && git apply --directory=patched ferretdb.patch \
 && go mod edit -replace=github.com/FerretDB/FerretDB=./patched
RUN GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags "-s -w" -tags ferretdb_no_postgresql -o /store .

FROM scratch
COPY --from=build /store /store
USER 65532:65532
ENTRYPOINT ["/store"]
