# The process that holds a pod's namespaces.
FROM scratch
COPY artifacts/pause /pause
USER 65532:65532
ENTRYPOINT ["/pause"]
