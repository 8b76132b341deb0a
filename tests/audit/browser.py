"""A page in headless Chromium, driven over the DevTools protocol on a pipe: no network port, no driver to install.

Chromium reads NUL-terminated JSON commands from its file descriptor 3 and writes replies and events to 4.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from select import select
from typing import Any

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--remote-debugging-pipe", "--force-color-profile=srgb", "--hide-scrollbars",
)  # fmt: skip
SECONDS = 60.0


def chromium() -> str:
    """The browser's path. Without one the test is skipped; under CI=true, where one is installed, it fails."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    reason = "no chromium on PATH (Debian: apt-get install chromium)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass
class Page:
    """An open page, and what it said and asked for since."""

    write_to: int
    read_from: int
    session: str = ""
    buffer: bytes = b""
    sent: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.sent += 1
        message: dict[str, Any] = {"id": self.sent, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next()
            if reply.get("id") == self.sent:
                assert "error" not in reply, f"{method}: {reply['error']}"
                return reply["result"]
            self.events.append(reply)

    def wait_for(self, method: str) -> None:
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + SECONDS
        while b"\0" not in self.buffer:
            ready, _, _ = select([self.read_from], [], [], max(0.0, until - time.monotonic()))
            assert ready, "chromium does not answer"
            data = os.read(self.read_from, 1 << 20)
            assert data, "chromium has ended"
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path) -> None:
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")
        self.command("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def resize(self, width: int, height: int, phone: bool = False, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.command("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression: run by the debugger, so the page's own ban on scripts stands."""
        result = self.command("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def screenshot(self, path: Path, whole: bool = True) -> None:
        data = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def requests(self) -> list[str]:
        """Every address that was asked for."""
        found = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in found]

    def complaints(self) -> list[str]:
        """Console messages, log entries (what the content policy refused, too) and uncaught errors."""
        methods = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"])[:500] for event in self.events if event.get("method") in methods]


@contextmanager
def browser() -> Generator[Page]:
    path = chromium()
    command_read, command_write = os.pipe()
    reply_read, reply_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The shell puts the pipes where Chromium looks for them, whatever numbers they have here.
        script = f'exec "$@" 3<&{command_read} 4>&{reply_write}'
        words = ["bash", "-c", script, "chromium", path, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            words, pass_fds=(command_read, reply_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(command_read)
        os.close(reply_write)
        page = Page(command_write, reply_read)
        try:
            yield page
            page.session = ""
            page.command("Browser.close")
            process.wait(SECONDS)
        finally:
            process.kill()
            process.wait()
            os.close(command_write)
            os.close(reply_read)
