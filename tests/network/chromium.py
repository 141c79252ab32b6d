"""Debian's Chromium without a window, driven by its DevTools protocol over a pipe.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import HUNG_SECONDS, until

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SHELL = "chromium-headless-shell"
TROUBLE = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")


def program(*, headless_shell: bool = False) -> str:
    """Path of Chromium, or of the smaller program without its windows where that is there.

    Fails where none is installed.
    """
    for name in ((SHELL,) if headless_shell else ()) + PROGRAMS:
        path = shutil.which(name)
        if path:
            return path
    pytest.fail("install Debian's package chromium")


@dataclass
class Page:
    """One tab."""

    writing: int
    reading: int
    session: str = ""
    numbers: int = 0
    buffer: bytearray = field(default_factory=bytearray)
    complaints: list[str] = field(default_factory=list)
    """What the page wrote to the console, and exceptions that nobody caught."""

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self.numbers += 1
        message: dict[str, Any] = {"id": self.numbers, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + HUNG_SECONDS
        while time.monotonic() < deadline:
            answer = self._receive()
            if answer.get("id") == self.numbers:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._note(answer)
        raise AssertionError(f"Chromium did not answer {method}")

    def open(self, url: str) -> None:
        """Load a page, to the end of its load event."""
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, script: str) -> Any:
        """The value of an expression, or of the promise that it is."""
        answer = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until an expression is true."""
        until(lambda: self.evaluate(f"Boolean({condition})"), what=condition, interval=0.02)

    def press(self, key: str) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        text |= {"text": "\r"} if key == "Enter" else {}
        codes = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def drag(self, left: float, right: float, top: float) -> None:
        """Drag the mouse from the left to the right."""
        for kind, x, buttons in (
            ("mouseMoved", left, 0),
            ("mousePressed", left, 1),
            ("mouseMoved", (left + right) / 2, 1),
            ("mouseMoved", right, 1),
            ("mouseReleased", right, 1),
        ):
            self.send(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=top,
                button="left" if buttons else "none",
                buttons=buttons,
                clickCount=1 if buttons else 0,
            )

    def screenshot(self, path: Path) -> None:
        """Write a PNG of the whole page."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def look(self, *, width: int, theme: str) -> None:
        """Set the size of the window and the preferred colours."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            piece = os.read(self.reading, 1 << 16)
            assert piece, "Chromium ended"
            self.buffer += piece
        line, _, rest = bytes(self.buffer).partition(b"\0")
        self.buffer = bytearray(rest)
        return dict(json.loads(line))

    def _note(self, message: dict[str, Any]) -> None:
        if message.get("method") in TROUBLE:
            self.complaints.append(json.dumps(message["params"])[:500])


@contextmanager
def browsing(folder: Path, arguments: Sequence[str] = ()) -> Iterator[Page]:
    """A tab of a Chromium with a profile of its own."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    def place() -> None:
        os.dup2(to_read, 3)
        os.dup2(from_write, 4)

    command = [
        program(),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--remote-debugging-pipe",
        f"--user-data-dir={folder}",
        *arguments,
        "about:blank",
    ]
    process = subprocess.Popen(
        command,
        preexec_fn=place,
        pass_fds=(3, 4),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    page = Page(writing=to_write, reading=from_read)
    try:
        target = page.send("Target.createTarget", url="about:blank")["targetId"]
        page.session = page.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            page.send(f"{domain}.enable")
        yield page
    finally:
        process.terminate()
        process.wait(timeout=HUNG_SECONDS)
        os.close(to_write)
        os.close(from_read)
