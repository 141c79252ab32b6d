# The controller of kubernetes-sigs/agent-sandbox.
FROM scratch
COPY artifacts/agent-sandbox-controller /agent-sandbox-controller
USER 65532:65532
ENTRYPOINT ["/agent-sandbox-controller"]
