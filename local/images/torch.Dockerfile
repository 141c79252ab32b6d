# The one big layer that the trainer's and the engine's images share.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY local/images/torch-requirements.txt /opt/torch-requirements.txt
RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install -r /opt/torch-requirements.txt
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
