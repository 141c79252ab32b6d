import sys

from rl_operator import unread_models

unread_models.leave_out()

from rl_operator import app, logs, settings  # noqa: E402 - imports the client

parsed = settings.parse(sys.argv[1:])
logs.configure(parsed.log_level)
sys.exit(app.run(parsed))
