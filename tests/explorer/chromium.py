"""A headless Chromium for the tests of the explorer's page, if it is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def chromium(address: str) -> Iterator[Any]:
    """A browser that shows a page, without an error in its console. Tests are skipped if there is none."""
    webdriver = pytest.importorskip("selenium.webdriver")
    binary, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if binary is None or driver is None:
        pytest.skip("there is no Chromium here")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        found.get(address)
        yield found
        assert [entry["message"] for entry in found.get_log("browser")] == []
    finally:
        found.quit()


def wait_until(browser: Any, script: str, seconds: float = 20) -> Any:
    """The value of a script, once it is true."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, seconds, poll_frequency=0.02).until(lambda it: it.execute_script(f"return {script}"))
