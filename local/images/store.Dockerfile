# The document store: FerretDB on SQLite behind a gateway that passes one command at a time.
FROM scratch
COPY artifacts/store /store
USER 65532:65532
ENTRYPOINT ["/store"]
