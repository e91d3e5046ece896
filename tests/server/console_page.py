"""A page of the console in a real Chromium, as the tests of the console drive it."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import chronicle
from chronicle.tests.patience import PATIENCE_S

__all__ = ["AXE", "REQUIRED", "SWITCHES", "Console", "chromium"]

REQUIRED = os.environ.get("CHRONICLE_BROWSER") == "required"
NAMES = (os.environ.get("CHRONICLE_CHROMIUM") or "chromium", "chromium-browser", "google-chrome")
SWITCHES = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    # as on a machine without a network: no name leads anywhere
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
AXE = Path(chronicle.__file__).parent / "web" / "node_modules" / "axe-core" / "axe.min.js"


def chromium() -> str | None:
    """Where it lies."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Console:
    """A page of the console, and what went wrong in it."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.address = address
        self.troubles: list[str] = []
        self.expected: list[str] = []
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.troubles.append(f"script: {error}"))
        page.on("request", self._asked)

    def _said(self, message: Any) -> None:
        if message.type == "error" and not any(word in message.text for word in self.expected):
            self.troubles.append(f"{message.location}: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.address, "blob:", "data:")):
            self.troubles.append(f"asked {request.url}")

    def open(self, place: str = "") -> None:
        self.page.goto(f"{self.address}/console/{place}")

    def sign_in(self, secret: str, place: str = "") -> None:
        self.expected = ["401"]
        self.open(place)
        self.page.get_by_label("Token").fill(secret)
        button = self.page.get_by_role("button", name="Sign in")
        button.click()
        button.wait_for(state="detached")

    def write(self, sql: str) -> None:
        editor = self.page.get_by_role("textbox", name="SQL editor")
        editor.click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(sql)
        self.page.keyboard.press("Escape")

    def run(self, sql: str) -> None:
        self.write(sql)
        self.page.get_by_role("button", name="Run").click()

    def shows(self, text: str | re.Pattern[str]) -> None:
        """Wait for a text; where it does not come, tell what the page says instead."""
        try:
            self.page.get_by_text(text).wait_for()
        except Exception as error:
            said = self.page.locator("body").inner_text()[:2000]
            raise AssertionError(f"no {text!r} in {said!r}; {self.troubles}") from error

    def cells(self) -> list[str]:
        grid = self.page.get_by_role("grid", name="Results")
        grid.get_by_role("gridcell").first.wait_for()
        return [str(text) for text in grid.get_by_role("gridcell").all_inner_texts()]
