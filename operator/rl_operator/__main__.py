import signal
import sys

# A container's first process receives no signal without a handler: a process that is told to stop
# while it imports would be killed only at the end of its pod's grace period.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

from rl_operator import app  # noqa: E402 - the imports take a second or two
from rl_operator.kube import logs, settings  # noqa: E402

parsed = settings.parse(sys.argv[1:])
logs.configure(parsed.log_level)
sys.exit(app.run(parsed))
