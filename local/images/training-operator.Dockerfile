# Kubeflow's training-operator, under the name that its manifests call.
FROM scratch
COPY artifacts/training-operator /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
