# The cluster's name server.
FROM scratch
COPY artifacts/coredns /coredns
USER 65532:65532
ENTRYPOINT ["/coredns"]
