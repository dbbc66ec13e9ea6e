"""A model that fails while it learns, in the words that it was sent; and a plugin that logs all it sees.

`unkind.json` in $SCRIPTED_DIR says when and how, and in which form it quotes the request.
"""

from __future__ import annotations

import asyncio
import html
import json
import logging
import os
import signal
import sqlite3
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, quote_plus

import click
import llm
from llm_scripted import Scripted, folder, is_look, is_update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class HTTPError(Exception):
    """As a client of a provider raises it."""

    def __init__(self, text: str, status: object = 400) -> None:
        super().__init__(text)
        self.status_code = status
        self.body = {"error": {"message": text}}


class Panic(BaseException):
    """As extensions in Rust raise it."""


def nested(text: str) -> NoReturn:
    raise llm.ModelError("Bad request") from ValueError(text)


def noted(text: str) -> NoReturn:
    error = RuntimeError("Bad request")
    error.__notes__ = [text]
    raise error


FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in a URL": quote,
    "in a form": quote_plus,
    "in JSON": json.dumps,
    "in UTF-8 JSON": lambda text: json.dumps(text, ensure_ascii=False),
    "in Python": repr,
    "in bytes": lambda text: repr(text.encode()),
    "in HTML": html.escape,
    "in capitals": str.upper,
    "folded": str.casefold,
}
RAISED: dict[str, Callable[[str], BaseException]] = {
    "ModelError": llm.ModelError,
    "KeyError": KeyError,
    "OSError": lambda text: OSError(2, text, text),
    "PermissionError": lambda text: PermissionError(13, text, text),
    "ConnectionError": ConnectionError,
    "TimeoutError": lambda text: TimeoutError(f"timed out: {text}"),
    "UnicodeDecodeError": lambda text: UnicodeDecodeError("utf-8", text.encode(), 0, 1, text),
    "JSONDecodeError": lambda text: json.JSONDecodeError(text, text, 0),
    "ClickException": click.ClickException,
    "OperationalError": sqlite3.OperationalError,
    "DatabaseError": lambda text: sqlite3.DatabaseError(f"malformed {text}"),
    "400": HTTPError,
    "401": lambda text: HTTPError(f"Incorrect API key: {text}", 401),
    "429": lambda text: HTTPError(text, 429),
    "context": lambda text: HTTPError(f"prompt is too long: {text}", 413),
    "status in words": lambda text: HTTPError(text, f"400 {text}"),
    "warning": UserWarning,
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "panic": Panic,
    "StopIteration": StopIteration,
}
DONE: dict[str, Callable[[str], Any]] = {
    "nested": nested,
    "noted": noted,
    "warns": warnings.warn,
    "logs": lambda text: logging.getLogger("provider").error("sent %s", text),
    "prints": print,
    "complains": lambda text: print(text, file=sys.stderr),
    "is killed": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "hangs": lambda _: time.sleep(600),
}
HOW = [*RAISED, *DONE]


class Unkind(Scripted):
    def execute(self, prompt: llm.Prompt, *others: Any, **options: Any) -> Iterator[str]:
        path = folder() / "unkind.json"
        order = json.loads(path.read_text()) if path.exists() else {}
        if order and {"update": is_update, "look": is_look}[order["when"]](prompt.prompt):
            text = f"Bad request: {FORMS[order['form']](prompt.prompt)}"
            if order["late"]:
                yield "ADD | "
            if order["how"] in RAISED:
                raise RAISED[order["how"]](text)
            DONE[order["how"]](text)
        yield from super().execute(prompt, *others, **options)


@llm.hookimpl
def register_models(register: Any) -> None:
    register(Unkind("unkind"))
    if (folder() / "logging").exists():
        logging.basicConfig(level=logging.DEBUG, force=True)
