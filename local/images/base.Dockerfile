# The base of every image of ours on the local cluster: a minimal Debian with Python.
FROM scratch
ADD artifacts/rootfs.tar /
ENV LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
CMD ["/usr/bin/python3"]
