"""What the local cluster does to this machine: packages, network, processes, mounts."""
