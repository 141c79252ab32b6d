import sys

from rl_operator import app, logs, settings

parsed = settings.parse(sys.argv[1:])
logs.configure(parsed.log_level)
sys.exit(app.run(parsed))
