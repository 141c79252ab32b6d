# SGLang on a CPU, for machines without an accelerator; on a GPU use SGLang's own image of the same
# version. BASE_IMAGE has /opt/venv with torch and transformers (local/images/torch.Dockerfile).
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY sampler_image/engine-cpu-requirements.txt /opt/engine-cpu-requirements.txt
RUN /opt/venv/bin/pip install --no-cache-dir --no-deps -r /opt/engine-cpu-requirements.txt
COPY sampler_image/engine_cpu_shim/ /opt/venv/lib/python3.11/site-packages/
# The root file system is read-only in a pod: everything that writes at run time goes to the
# emptyDir on /tmp. USER is named because torch asks for the name of a uid that has none.
ENV HOME=/tmp \
    USER=engine \
    TMPDIR=/tmp \
    XDG_CACHE_HOME=/tmp/.cache \
    HF_HOME=/tmp/.cache/huggingface \
    HF_HUB_OFFLINE=1 \
    SGLANG_CACHE_DIR=/tmp/.cache/sglang \
    NUMBA_CACHE_DIR=/tmp/.cache/numba \
    TORCHINDUCTOR_CACHE_DIR=/tmp/.cache/inductor \
    TRITON_CACHE_DIR=/tmp/.cache/triton \
    TOKENIZERS_PARALLELISM=false \
    OMP_NUM_THREADS=1
USER 65532:65532
WORKDIR /tmp
EXPOSE 30000
ENTRYPOINT ["/opt/venv/bin/python", "-m", "sglang.launch_server"]
