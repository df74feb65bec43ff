# syntax=docker/dockerfile:1
FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
WORKDIR /src
# Modules in a layer of their own: a change of the code does not load them again.
COPY go.mod go.sum ./
COPY clients/go/go.mod clients/go/
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH VERSION=dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/broker ./cmd/broker
RUN mkdir -p /out/data /out/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/broker /broker
# Folders that the user below may write: the embedded store, SQLite's spill files.
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build --chown=65532:65532 /out/tmp /tmp
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
ENV BROKER_LISTEN=0.0.0.0:8080 BROKER_DATA_DIR=/data
EXPOSE 8080
VOLUME /data
# The image holds one program and no shell, so the program asks itself. Kubernetes
# passes this over: give it probes of /livez and /readyz.
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=3 CMD ["/broker", "healthcheck"]
# Listening beyond loopback needs BROKER_ADMIN_TOKEN (or BROKER_ADMIN_TOKEN_FILE).
ENTRYPOINT ["/broker"]
CMD ["serve"]
