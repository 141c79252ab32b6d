# SGLang on a CPU, for machines without an accelerator. On a GPU use SGLang's own image of the same
# version, unmodified: lmsysorg/sglang. BASE_IMAGE: any image with Python 3.11 and venv. The layer with
# torch is the trainer's, so that a builder's cache and a node keep it once.
ARG BASE_IMAGE=docker.io/library/python:3.11-slim
FROM ${BASE_IMAGE}
COPY local/images/torch-requirements.txt /opt/build/
RUN { test -d /opt/venv || python3 -m venv /opt/venv; } \
 && /opt/venv/bin/pip install -r /opt/build/torch-requirements.txt
COPY sampler_image/engine-cpu-requirements.txt /opt/engine-cpu-requirements.txt
RUN /opt/venv/bin/pip install --no-cache-dir --no-deps -r /opt/engine-cpu-requirements.txt
COPY sampler_image/engine_cpu_shim/ /opt/engine-cpu-shim/
RUN cp -r /opt/engine-cpu-shim/. "$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
# The root file system is read-only in a pod: everything that writes at run time goes to the
# emptyDir on /tmp. USER is named because torch asks for the name of a uid that has none.
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/tmp \
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
