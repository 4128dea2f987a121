# The manager's image: the manager, the command line (/tailgate) for gates that run as pods, and no shell.
# `go run ./test/cmd/images manager` assembles the same content without a container engine or a registry.

FROM golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api api/
COPY cmd cmd/
COPY config/crd config/crd/
COPY controllers controllers/
COPY internal internal/
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o /rootfs/manager ./cmd/manager \
    && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o /rootfs/tailgate ./cmd/kubectl-tailgate \
    && mkdir /rootfs/etc \
    && echo 'nonroot:x:65532:65532:nonroot:/:/sbin/nologin' >/rootfs/etc/passwd \
    && echo 'nonroot:x:65532:' >/rootfs/etc/group

FROM scratch
COPY --from=build /rootfs /
USER 65532:65532
ENTRYPOINT ["/manager"]
