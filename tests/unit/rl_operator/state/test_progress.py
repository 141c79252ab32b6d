from __future__ import annotations

from rl_operator.state.progress import plain


def test_store_error_message_is_stable() -> None:
    raw = "<urllib3.connection.HTTPConnection object at 0x7f1b>: Failed to connect: refused"
    assert plain(raw) == "Failed to connect: refused"
    assert plain("db:1: refused (configured timeouts: 20 s)") == "db:1: refused"
