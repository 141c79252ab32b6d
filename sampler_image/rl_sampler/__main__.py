"""``python -m rl_sampler stage`` or ``serve``: the program of the sampler image."""

import os
import signal
import sys

from rl_sampler import TERMINATED

# A container's first process receives no signal without a handler: a pod that is stopped while this
# process imports, or while it stages, would last as long as its grace.
signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))

from rl_sampler.program import main  # noqa: E402 - the imports take seconds

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
