import signal
import sys

# The first process of a container is sent no signal that it has not asked for: what is told to stop
# while it imports would be killed at the end of its pod's grace.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

from rl_operator.kube import unread_models  # noqa: E402 - what follows takes a second

unread_models.leave_out()

from rl_operator import app  # noqa: E402 - imports the client
from rl_operator.kube import logs, settings  # noqa: E402

parsed = settings.parse(sys.argv[1:])
logs.configure(parsed.log_level)
sys.exit(app.run(parsed))
