# MinIO for the embedded stores, compiled in the build. GO_IMAGE: any image with Go 1.26 or later.
ARG GO_IMAGE=docker.io/library/golang:1.26
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
ARG TARGETOS
ARG TARGETARCH
ARG MINIO=v0.0.0-20260212201848-7aac2a2c5b7c
ENV CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOTOOLCHAIN=local
WORKDIR /src
# `go install` puts what is not for its own platform into a folder of that platform.
RUN GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go install -trimpath -ldflags "-s -w" github.com/minio/minio@${MINIO} \
 && find "$(go env GOPATH)/bin" -name minio -type f -exec mv {} /minio ';'

FROM scratch
COPY --from=build /minio /minio
USER 65532:65532
ENTRYPOINT ["/minio"]
