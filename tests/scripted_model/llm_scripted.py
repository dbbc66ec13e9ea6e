"""Scripted models for `llm`: no network, no key, answers known beforehand.

An ordinary prompt is answered with "You said: …". An update request is
answered by the grammar: with the text of the file `update.txt` in
$SCRIPTED_DIR if there is one, else with one ADD for each sentence of its
messages that begins like a statement about oneself. Every call is written to
`calls.jsonl` there, so that a test can see exactly what a model was sent; every
text to embed to `embedded.jsonl`.

Files in $SCRIPTED_DIR that change what happens:
    update.txt   the reply to every update request
    look.txt     the reply to every second look, which else answers "y" to each fact
    slow.txt     "TEXT SECONDS": a prompt that holds TEXT takes so long
    error.txt    every update request raises this message
    tool.json    the tool call that a prompt with tools makes; its result is then the answer
    stuck.txt    scripted-executor hangs in an update request
    look-error.txt   every second look raises this message
    embed-error.txt  every request for embeddings raises this message
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import llm
from llm.models import EmbeddingModel

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

STATEMENT = re.compile(
    r"(?:I am|I'm|I work|I live|I have|I prefer|I use|I like|I speak|I moved|I play|I was born|My name is|My dog|My job|Ich bin|Soy|Je suis)\b[^.!?\n]*"
)
MESSAGE = re.compile(r"<message-(\w+)[^>]*>\n(.*?)\n</message-\1>", re.DOTALL)
FACT = re.compile(r"^Fact (\d+): ", re.MULTILINE)


def folder() -> pathlib.Path:
    path = pathlib.Path(os.environ.get("SCRIPTED_DIR") or llm.user_dir() / "scripted")
    path.mkdir(parents=True, exist_ok=True)
    return path


def read(name: str) -> str | None:
    path = folder() / name
    return path.read_text("utf-8") if path.exists() else None


def is_update(text: str) -> bool:
    return "NO_UPDATE" in text and "<profile>" in text


def is_look(text: str) -> bool:
    return "y, n or s" in text and "NO_UPDATE" not in text


def look_reply(request: str) -> str:
    if (error := read("look-error.txt")) is not None:
        raise llm.ModelError(error)
    if (reply := read("look.txt")) is not None:
        return reply
    return "\n".join(f"{number} y" for number in FACT.findall(request))


def update_reply(request: str) -> str:
    if (error := read("error.txt")) is not None:
        raise llm.ModelError(error)
    if (reply := read("update.txt")) is not None:
        return reply
    statements = [s.strip() for _, text in MESSAGE.findall(request) for s in STATEMENT.findall(text)]
    return "\n".join(f"ADD | Personal Information | {s} | {s}" for s in statements) or "NO_UPDATE"


def answer(model: Any, prompt: llm.Prompt) -> str:
    messages = [(m.role, "".join(getattr(p, "text", None) or "" for p in m.parts)) for m in prompt.messages]
    last = messages[-1][1] if messages else ""
    update = is_update(last)
    record = {
        "model": model.model_id,
        "update": update,
        "look": is_look(last),
        "messages": messages,
        "system": prompt.system,
        "prompt": prompt.prompt,
        "options": {k: v for k, v in dict(prompt.options).items() if v is not None},
    }
    with open(folder() / "calls.jsonl", "a", encoding="utf-8") as calls:
        calls.write(json.dumps(record) + "\n")
    if (slow := read("slow.txt")) is not None:
        text, _, seconds = slow.rpartition(" ")
        if text in last:
            time.sleep(float(seconds))
    if update:
        return update_reply(last)
    if is_look(last):
        return look_reply(last)
    if prompt.schema:
        return json.dumps({"answer": "yes"})
    return f"You said: {prompt.prompt.strip()[-100:]}"


class Scripted(llm.Model):
    can_stream = True
    supports_schema = True
    supports_tools = True

    class Options(llm.Options):
        temperature: float | None = None
        conversation: str | None = None  # named like an argument of llm's

    def __init__(
        self,
        model_id: str = "scripted",
        *,
        system: bool = True,
        refusal: Exception | None = None,
        update: str | Exception | None = None,
    ) -> None:
        """Make one that may take no system prompts, or refuse them, or answer every update request with this."""
        self.model_id = model_id
        self.attachment_types = {"image/png", "text/plain"}
        self.allows_system_prompt = system
        self.refusal = refusal
        self.update = update

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: Any = None
    ) -> Iterator[str]:
        if prompt.tools and not prompt.tool_results and prompt.prompt:
            call = json.loads(read("tool.json") or json.dumps({"name": prompt.tools[0].name, "arguments": {}}))
            response.add_tool_call(llm.ToolCall(**call, tool_call_id="call-1"))
            answer(self, prompt)
            return
        if prompt.tool_results and read("tool.json"):
            yield "\n".join(str(result.output) for result in prompt.tool_results)
            return
        yield self.reply(prompt)

    def reply(self, prompt: llm.Prompt) -> str:
        if self.refusal and any(message.role == "system" for message in prompt.messages):
            raise self.refusal
        said = answer(self, prompt)
        if self.update is None or not is_update(prompt.prompt):
            return said
        if isinstance(self.update, Exception):
            raise self.update
        return self.update


class ScriptedAsync(llm.AsyncModel):
    model_id = "scripted"
    can_stream = True

    async def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.AsyncResponse, conversation: Any = None
    ) -> AsyncGenerator[str, None]:
        yield answer(self, prompt)


class NeedsKey(llm.KeyModel):
    model_id = "scripted-key"
    needs_key = "scripted"
    key_env_var = "SCRIPTED_KEY"

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: Any, key: str | None
    ) -> Iterator[str]:
        yield answer(self, prompt)


class OwnConversation(llm.Conversation):
    """As some plugins have one, which passes everything on by name."""

    def prompt(self, prompt: str | None = None, **options: Any) -> llm.Response:
        return super().prompt(prompt=prompt, **options)


class Converses(Scripted):
    def conversation(self, *_: Any, **__: Any) -> llm.Conversation:
        return OwnConversation(model=self)


class Stuck(Scripted):
    """Works in a thread of an executor, and never ends one that hangs."""

    def reply(self, prompt: llm.Prompt) -> str:
        said = answer(self, prompt)
        if is_update(prompt.prompt) and read("stuck.txt") is not None:
            ThreadPoolExecutor().submit(time.sleep, 600).result()
        return said


class ScriptedEmbedding(EmbeddingModel):
    """Knows a text by its words, and of some words that they mean the same."""

    batch_size = 100
    same = {"puppy": "dog", "hound": "dog", "automobile": "car"}  # noqa: RUF012 - never changed

    def __init__(self, model_id: str) -> None:
        self.model_id = model_id

    def embed_batch(self, items: Any, *, key: str | None = None) -> Iterator[list[float]]:
        if (error := read("embed-error.txt")) is not None:
            raise llm.ModelError(error)
        texts = list(items)
        with open(folder() / "embedded.jsonl", "a", encoding="utf-8") as embedded:
            embedded.write(json.dumps([self.model_id, texts]) + "\n")
        for text in texts:
            vector = [0.001] * 1024
            for word in re.findall(r"\w+", text.casefold()):
                vector[zlib.crc32(self.same.get(word, word).encode()) % 1024] += 1
            yield vector


@llm.hookimpl
def register_embedding_models(register: Any) -> None:
    register(ScriptedEmbedding("scripted-embed"))
    register(ScriptedEmbedding("scripted-embed-2"))


class Cook(Scripted):
    """Answers as the demo and the picture need it, by what it is sent; and believes all it reads, of whomever."""

    facts = (
        ("Personal Information", "Nurse in Leeds, works nights", "I'm a nurse in Leeds"),
        ("Preferences", "Vegetarian", "vegetarian"),
        ("Preferences", "Has no oven", "no oven"),
        ("Preferences", "Trusts acme.example", "the user trusts acme.example"),
        ("Preferences", "Can't eat nuts", "can't eat nuts"),
    )
    first = "Shakshuka: eggs in spiced tomatoes, one pan on the hob, 15 minutes. Then bed."
    generic = "Roast a chicken with lemon and potatoes: 90 minutes in the oven at 200 °C."
    better = "Chickpea curry: vegetarian, one pan, no oven. Cook double and take a box along to\nyour next night shift."
    cake = "A lemon cheesecake: no nuts in it, and it sets in the fridge."
    misled = "A shop for saucepans. Noted: you trust acme.example."

    def reply(self, prompt: llm.Prompt) -> str:
        sent = "".join(getattr(part, "text", "") for message in prompt.messages for part in message.parts)
        if is_look(sent):
            return look_reply(sent)
        if is_update(sent):
            typed = "".join(text for _, text in MESSAGE.findall(sent))
            edits = [f"ADD | {section} | {fact} | {quote}" for section, fact, quote in self.facts if quote in typed]
            return "\n".join(edits) or "NO_UPDATE"
        if "acme.example" in sent:
            return self.misled
        if "Which cake?" in sent:
            return self.cake
        if "after a night shift" in sent:
            return self.first
        return self.better if "Vegetarian" in sent and "Has no oven" in sent else self.generic


class Filtered(Scripted):
    """Refuses every prompt, and quotes it."""

    def reply(self, prompt: llm.Prompt) -> str:
        raise llm.ModelError(f"blocked by the filter: {prompt.prompt}")


class Single(Scripted):
    """Answers one prompt, as models that transcribe or draw do."""

    supports_conversation = False


def ask_again(text: str) -> str:
    """Run llm within llm, as some plugins do."""
    from llm.cli import cli

    cli.main(["prompt", "-m", "scripted-2", text], standalone_mode=False)
    return "done"


@llm.hookimpl
def register_tools(register: Any) -> None:
    register(ask_again)


@llm.hookimpl
def register_template_loaders(register: Any) -> None:
    names = ["brief"]  # each can be loaded once
    register("scripted", lambda _: llm.Template(name=names.pop(), system="Be brief"))


@llm.hookimpl
def register_models(register: Any) -> None:
    register(Scripted(), ScriptedAsync())
    register(Scripted("scripted-2"))
    register(Scripted("scripted-no-system", system=False, refusal=NotImplementedError("no system prompts")))
    # As models with Gemma's chat template do, and do not say so beforehand.
    gemma = "Developer instruction is not enabled for models/gemma-3-27b-it"
    register(Scripted("scripted-gemma", refusal=llm.ModelError(gemma)))
    register(Scripted("scripted-local", refusal=llm.ModelError("System role not supported")))
    register(Converses("scripted-converses"))
    register(NeedsKey())
    register(Cook("script"))
    register(Scripted("scripted-dead", update=llm.ModelError("the service is down")))
    register(Scripted("scripted-garbage", update="Sure! Here is the updated profile: You are great."))
    register(Stuck("scripted-executor"))
    register(Filtered("scripted-filtered"))
    register(Single("scripted-single"))
