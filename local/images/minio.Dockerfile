# The object store.
FROM scratch
COPY artifacts/minio /minio
USER 65532:65532
ENTRYPOINT ["/minio"]
