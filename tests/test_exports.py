"""Learning from other assistants: only what the user wrote, each message once, with its date and conversation."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import subprocess
import tracemalloc
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from conftest import User, eventually

import llm_user_memory as memory

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterable

ELSEWHERE = "I am not what the user wrote"
"""Begins like a statement about oneself, which the scripted model takes for one."""


@pytest.fixture
def here(user: User, monkeypatch: pytest.MonkeyPatch) -> User:
    """The user whose scripted models this process asks."""
    monkeypatch.setenv("LLM_USER_PATH", str(user.user_dir))
    return user


def chatgpt(title: str, *texts: str, at: float = 1_714_557_600.5, **fields: Any) -> dict[str, Any]:
    """A conversation of ChatGPT's: with an answer to each prompt, and what is hidden from the user."""

    def node(key: str, role: str, content: dict[str, Any], **metadata: Any) -> dict[str, Any]:
        message = {"id": key, "author": {"role": role, "metadata": {}}, "create_time": at, "content": content}
        return {"id": key, "message": {**message, "metadata": metadata, "recipient": "all"}, "children": []}

    def said(*parts: Any) -> dict[str, Any]:
        return {"content_type": "text", "parts": [*parts]}

    about = {"content_type": "user_editable_context", "user_profile": ELSEWHERE, "user_instructions": ELSEWHERE}
    nodes = [
        node(f"{title}-1", "system", said(ELSEWHERE), is_visually_hidden_from_conversation=True),
        node(f"{title}-2", "user", about, is_visually_hidden_from_conversation=True, is_user_system_message=True),
        node(f"{title}-3", "user", said(ELSEWHERE), is_visually_hidden_from_conversation=True),
        node(f"{title}-4", "tool", said(ELSEWHERE)),
    ]
    for number, text in enumerate(texts):
        nodes += [
            node(f"{title}-{number}-p", "user", said(text)),
            node(f"{title}-{number}-a", "assistant", said(ELSEWHERE)),
            node(f"{title}-{number}-b", "assistant", {"content_type": "code", "text": ELSEWHERE}),
        ]
    mapping = {"root": {"id": "root", "message": None, "parent": None, "children": []}} | {n["id"]: n for n in nodes}
    return {"title": title, "create_time": at, "mapping": mapping, "conversation_id": title, **fields}


def claude(name: str, *texts: str, at: str = "2025-05-01T10:00:00.123456Z") -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for number, text in enumerate(texts):
        attached = {"file_name": "paste.txt", "file_type": "txt", "extracted_content": ELSEWHERE}
        typed = [{"type": "text", "text": text}]
        prompt = {"uuid": f"{name}-{number}", "sender": "human", "text": text, "content": typed, "created_at": at}
        thoughts = [{"type": "thinking", "thinking": ELSEWHERE}, {"type": "text", "text": ELSEWHERE}]
        answer = {"sender": "assistant", "text": ELSEWHERE, "content": thoughts, "created_at": at}
        messages += [{**prompt, "attachments": [attached], "files": []}, {**answer, "uuid": f"{name}-{number}-a"}]
    return {"uuid": name, "name": name, "summary": ELSEWHERE, "created_at": at, "chat_messages": messages}


def gemini(
    title: str, at: str = "2025-06-01T09:00:00.42Z", header: str = "Gemini Apps", **fields: Any
) -> dict[str, Any]:
    answer = [{"html": f"<p>{ELSEWHERE}</p>"}]
    attached = [{"name": f"Attached 1 file: {ELSEWHERE}"}]
    shown = {"header": header, "title": title, "time": at, "products": [header], "subtitles": attached}
    return {**shown, "safeHtmlItem": answer, "activityControls": ["Gemini Apps Activity"], **fields}


def claude_code(content: Any, at: str = "2025-07-01T08:00:00.000Z", **fields: Any) -> dict[str, Any]:
    id = memory.digest(f"{content}{at}")
    line = {
        "type": "user",
        "uuid": id,
        "sessionId": "s",
        "timestamp": at,
        "cwd": "/home/me/src/pots",
        "userType": "external",
    }
    return {**line, "message": {"role": "user", "content": content}, "isSidechain": False, **fields}


def codex(line: str, at: str = "2025-08-01T07:00:00.000Z", **payload: Any) -> dict[str, Any]:
    return {"timestamp": at, "type": line, "payload": payload}


def lines(*entries: dict[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, entries)).encode()


CLAUDE_CODE = lines(
    {"type": "summary", "summary": ELSEWHERE, "leafUuid": "l"},
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {"text": ELSEWHERE}},
    claude_code(f"<local-command-caveat>{ELSEWHERE}</local-command-caveat>", isMeta=True),
    claude_code("<command-name>/clear</command-name>\n<command-args></command-args>"),
    claude_code(f"<local-command-stdout>{ELSEWHERE}</local-command-stdout>"),
    claude_code(f"I have a kiln. Fix the build\n<system-reminder>\n{ELSEWHERE}\n</system-reminder>"),
    claude_code(
        [{"type": "tool_result", "tool_use_id": "t", "content": ELSEWHERE}], toolUseResult={"stdout": ELSEWHERE}
    ),
    claude_code([{"type": "tool_result", "content": [{"type": "text", "text": ELSEWHERE}]}]),
    claude_code(
        [
            {"type": "image", "source": {}},
            {"type": "text", "text": "[Request interrupted by user]"},
            {"type": "text", "text": "I work with clay, see the picture"},
        ]
    ),
    claude_code(ELSEWHERE, isSidechain=True),
    claude_code(f"This session is being continued. {ELSEWHERE}", isCompactSummary=True, isVisibleInTranscriptOnly=True),
    claude_code("[Request interrupted by user for tool use]"),
    claude_code(ELSEWHERE, entrypoint="sdk-cli"),
    {
        "type": "assistant",
        "uuid": "a",
        "message": {"role": "assistant", "content": [{"type": "text", "text": ELSEWHERE}]},
    },
)
CODEX_META = codex("session_meta", id="x", cwd="/home/me/src/looms", source="cli", instructions=ELSEWHERE)
CODEX = lines(
    CODEX_META,
    codex(
        "response_item",
        type="message",
        role="user",
        content=[{"type": "input_text", "text": f"# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>{ELSEWHERE}"}],
    ),
    codex("turn_context", cwd="/home/me/src/looms", user_instructions=ELSEWHERE),
    codex("response_item", type="message", role="user", content=[{"type": "input_text", "text": "I use a loom. Why?"}]),
    codex("event_msg", type="user_message", message="I use a loom. Why?", kind="plain", images=[]),
    codex(
        "event_msg",
        type="user_message",
        message=f"# Context from my IDE setup:\n\n## Active file: {ELSEWHERE}\n\n## My request for Codex:\nI like wool, as ever\n",
    ),
    codex("event_msg", type="agent_message", message=ELSEWHERE),
    codex("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": ELSEWHERE}]),
    codex("response_item", type="function_call_output", call_id="c", output=ELSEWHERE),
)
OLDER_CODEX = lines(
    CODEX_META,
    codex(
        "response_item",
        type="message",
        role="user",
        content=[{"type": "input_text", "text": f"<environment_context>\n{ELSEWHERE}\n</environment_context>"}],
    ),
    codex(
        "response_item", type="message", role="user", content=[{"type": "input_text", "text": "I like linen, do you?"}]
    ),
)


def read(data: Any, name: str = "export.json") -> list[memory.Message]:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return memory.read_export(io.BufferedReader(io.BytesIO(raw)), name)


def zipped(path: pathlib.Path, files: dict[str, Any]) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data if isinstance(data, bytes) else json.dumps(data))
    return str(path)


def texts(messages: Iterable[memory.Message]) -> list[str]:
    return [message.text for message in messages]


# What is read of each


@pytest.mark.parametrize(
    ("data", "source", "expected", "day"),
    [
        ([chatgpt("Trip", "I live in York.", "I like rain, you know")], "ChatGPT conversation “Trip”", ["I live in York.", "I like rain, you know"], "2024-05-01T10:00:00"),
        ([claude("Plants", "I have a fern. Help")], "Claude conversation “Plants”", ["I have a fern. Help"], "2025-05-01T10:00:00"),
        ([gemini("Prompted I play the oboe")], "Gemini activity", ["I play the oboe"], "2025-06-01T09:00:00"),
        (CLAUDE_CODE, "Claude Code session", ["I have a kiln. Fix the build", "I work with clay, see the picture"], "2025-07-01T08:00:00"),
        (CODEX, "Codex session", ["I use a loom. Why?", "I like wool, as ever"], "2025-08-01T07:00:00"),
    ],
    ids=["chatgpt", "claude", "gemini", "claude-code", "codex"],
)  # fmt: skip
def test_only_what_the_user_wrote_is_read_with_its_date_and_conversation(
    data: Any, source: str, expected: list[str], day: str
) -> None:
    found = read(data)
    assert texts(found) == expected
    assert {message.thread_id for message in found} == {source}
    assert {message.at[:19] for message in found} == {day}
    assert all(message.at.endswith("+00:00") for message in found)


def test_a_prompt_to_chatgpt_is_read_once_with_its_pictures_and_spoken_words(here: User) -> None:
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x", "text": ELSEWHERE}
    spoken = {"content_type": "audio_transcription", "direction": "in", "text": "I speak Welsh"}
    again = chatgpt("Trip", "I live in York.", "I live in York.", "I moved to Leeds, in fact")
    message = again["mapping"]["Trip-2"]["message"] | {"metadata": {}, "id": "seen"}
    mixed = {"content_type": "multimodal_text", "parts": [picture, "I like this:", spoken]}
    again["mapping"]["mixed"] = {"message": message | {"content": mixed}}
    by_id = {message.turn_id: message.text for message in read([again])}
    assert [*by_id.values()] == ["I live in York.", "I moved to Leeds, in fact", "I like this:\nI speak Welsh"]


def test_prompts_to_gemini_are_told_from_other_activities_by_the_word_prompt() -> None:
    activities = [
        gemini("Prompted\u00a0I have a cat"),
        gemini("Prompted with: I have a dog"),
        gemini("Eingegebener Prompt: Ich bin Koch", header="Gemini-Apps"),
        gemini("여동생은 간호사예요", header="Gemini 앱"),
        gemini("알림 설정됨", header="Gemini 앱", safeHtmlItem=[]),
        gemini("Gave feedback: Good response", safeHtmlItem=[]),
        gemini("Used Gemini Apps"),
        gemini("Searched for tea", header="Search"),
    ]
    assert texts(read(activities)) == ["I have a cat", "I have a dog", "Ich bin Koch"]


def test_what_other_programs_and_agents_asked_codex_is_not_the_users() -> None:
    asked = codex("event_msg", type="user_message", message=ELSEWHERE)
    for source in ("exec", "mcp", {"subagent": {"thread_spawn": {"parent_thread_id": "p"}}}, {"subagent": "review"}):
        assert read(lines(codex("session_meta", id="x", cwd="/x", source=source), asked)) == []


def test_times_with_any_offset_become_the_same_moment_and_none_is_no_obstacle() -> None:
    for at in (
        "2025-05-01T22:30:00+02:00",
        "2025-05-01T13:30:00.5-07:00",
        "2025-05-01T20:30:00.1234567Z",
        1746131400.9,
    ):
        assert memory.as_utc(at)[:19] == "2025-05-01T20:30:00"
    for wrong in (None, "soon", float("nan"), 1e300, ["2025"]):
        assert memory.as_utc(wrong) == ""
    assert read([chatgpt("Trip", "I live in York.", at=None)])[0].at == ""  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "entry",
    [
        None, 1, "I like tea", [], {}, {"mapping": 1}, {"mapping": {"a": None, "b": {"message": []}}}, {"chat_messages": {}},
        {"mapping": {"a": {"message": {"author": {"role": ["user"]}, "content": {"parts": 3}}}}},
        {"chat_messages": [None, {"sender": "human"}, {"sender": "human", "text": {"a": 1}, "content": [[1], {"type": []}, {"type": ["x"]}]}]},
        {"header": "Gemini Apps"}, {"header": "Gemini Apps", "title": None, "time": {}},
        {"type": "user", "message": "I like tea"}, {"payload": None}, {"payload": {"type": "user_message", "message": None}},
        {"title": {}, "cwd": 5, "entrypoint": [], "payload": {"source": None, "cwd": []}},
    ],
)  # fmt: skip
def test_whatever_an_entry_holds_is_no_obstacle_to_the_others(entry: Any) -> None:
    assert texts(read([entry, chatgpt("Trip", "I live in York."), entry])) == ["I live in York."]


def test_a_line_that_a_killed_session_left_half_written_is_passed_over() -> None:
    data = lines(claude_code("I like pots, you know"))
    assert texts(read(data + b'\n{"type": "user", "mess\n\n' + data.replace(b"pots", b"jars"))) == [
        "I like pots, you know",
        "I like jars, you know",
    ]


def test_half_a_character_and_hidden_ones_in_an_export_stop_nothing(here: User) -> None:
    path = here.folder / "conversations.json"
    path.write_text(json.dumps([chatgpt("\x1b[31mTrip\ud83d\nto Rome", "I live in York \ud83d now")]))
    learn(here, str(path))
    (held,) = here.to_review()
    assert held["thread"] == "ChatGPT conversation “[31mTrip? to Rome”"


# The command


def learn(user: User, *options: str, **settings: Any) -> str:
    return user.run("learn", "--yes", *options, **settings)[1]


def facts(user: User) -> list[str]:
    return [held["fact"] for held in user.to_review()]


def test_what_is_found_waits_for_review_and_why_names_the_conversation(here: User) -> None:
    path = here.folder / "conversations.json"
    path.write_text(json.dumps([chatgpt("Trip to “Rome”", "I live in York. What now?")]))
    assert "1 text in 1 request to scripted" in learn(here, str(path))
    (held,) = here.to_review()
    assert (held["fact"], held["typed_at"][:10]) == ("I live in York", "2024-05-01")
    assert here.facts == []
    assert "in your ChatGPT conversation “Trip to “Rome””: “I live in York” (Wednesday 1 May 2024)" in " ".join(
        here.run("review", stdin="y\n")[1].split()
    )
    shown = here.run("why")[0]
    assert "in your ChatGPT conversation “Trip to “Rome””: “I live in York”\n" in shown
    assert "Wednesday 1 May 2024; learned with scripted, accepted\n" in shown


@pytest.mark.parametrize(
    "name", ["conversations.json", "conversations-000.json", "Takeout/My Activity/Gemini Apps/MyActivity.json"]
)
def test_a_zip_is_read_among_a_hundred_other_files(here: User, name: str) -> None:
    gemini_or_gpt = [gemini("Prompted I live in York")] if "Takeout" in name else [chatgpt("Trip", "I live in York.")]
    others: dict[str, Any] = {f"file-{number}.png": b"\x89PNG" + bytes([number]) for number in range(100)}
    others |= {"user.json": {"email": ELSEWHERE}, "shared_conversations.json": [{"id": "1", "title": ELSEWHERE}]}
    others |= {"chat.html": b"<html>", "__MACOSX/._conversations.json": b"\0\5\x16\7", "broken.json": b"[{"}
    path = zipped(here.folder / "export.zip", {**others, name: gemini_or_gpt})
    learn(here, path)
    assert facts(here) == ["I live in York"]


def test_folders_and_many_files_are_read_together_oldest_first(here: User) -> None:
    sessions = here.folder / "sessions" / "2025" / "08"
    sessions.mkdir(parents=True)
    (sessions / "rollout-1.jsonl").write_bytes(CODEX)
    (here.folder / "pots.jsonl").write_bytes(CLAUDE_CODE)
    (here.folder / "summary.jsonl").write_bytes(lines({"type": "summary", "summary": ELSEWHERE, "leafUuid": "l"}))
    (here.folder / "empty.jsonl").touch()
    (sessions / "gone.jsonl").symlink_to("nowhere")
    (sessions / "folder.json").mkdir()
    (here.folder / "about me.md").write_text("- I like notes\n")
    names = ("sessions", "pots.jsonl", "summary.jsonl", "empty.jsonl", "about me.md")
    learn(here, *(str(here.folder / name) for name in names))
    assert facts(here) == [
        "I have a kiln",
        "I work with clay, see the picture",
        "I use a loom",
        "I like wool, as ever",
        "I like notes",
    ]


def test_an_export_can_be_piped_in_but_no_zip(here: User) -> None:
    packed = here.folder / "export.zip"
    zipped(packed, {"conversations.json": [claude("Plants", "I have a fern")]})
    piped = ("memory", "learn", "--yes", "-")
    here.llm(*piped, auto=None, input=json.dumps([chatgpt("Trip", "I live in York.")]))
    refused = here.start(*piped, auto=None, stdin=subprocess.PIPE)
    assert b"unpack it" in refused.communicate(packed.read_bytes(), 60)[1]
    assert refused.returncode == 1
    assert facts(here) == ["I live in York"]


def test_without_a_terminal_a_piped_export_is_asked_about_by_naming_the_option(here: User) -> None:
    asked = here.start("memory", "learn", "-", auto=None, stdin=subprocess.PIPE)
    _, said = asked.communicate(json.dumps([chatgpt("Trip", "I live in York.")]).encode(), 60)
    assert b"add --yes" in said
    assert (asked.returncode, facts(here)) == (1, [])


def test_since_and_count_choose_among_messages_by_their_dates(here: User) -> None:
    path = here.folder / "conversations.json"
    day = dt.datetime(2025, 3, 1, 12, tzinfo=dt.timezone.utc)
    path.write_text(
        json.dumps([chatgpt(f"Day {n}", f"I am on day {n} now", at=day.timestamp() + n * 86_400) for n in range(4)])
    )
    for options, days in (
        (["--since", "2025-03-02"], "123"),
        (["-n", "1"], "3"),
        (["--since", "2025-03-02", "-n", "2"], "23"),
        (["--since", "2025-03-04", "-n", "2"], "3"),
    ):
        assert f"To learn from: {len(days)} text" in here.run("learn", str(path), *options, stdin="n\n", code=1)[1]
    learn(here, str(path), "-n", "1")
    learn(here, str(path), "--since", "2025-03-03")
    assert facts(here) == ["I am on day 3 now", "I am on day 2 now"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("export.json", b'[{"conversation": [{"role": "user", "content": "I like tea"}]}]'),
        ("settings.json", b'{"theme": "I like tea"}'),
        ("data.jsonl", b'{"role": "user", "content": "I like tea"}\n'),
        ("list.json", b'["I like tea"]'),
        ("text.json", b"I like tea"),
        ("rollout.jsonl", OLDER_CODEX),
        ("saved.txt", b'\xef\xbb\xbf \n[\n {"author": "assistant", "text": "I like tea"}]'),
        ("chat.html", b"<!DOCTYPE html><html><body>I like tea</body></html>"),
        ("deep.json", b"[" * 200_000),
        ("MyActivity.json", json.dumps([gemini("Searched for tea", header="Search")]).encode()),
        ("deepseek.json", b'[{"mapping": {"1": {"message": {"fragments": [{"type": "REQUEST", "content": "I like tea"}]}}}}]'),
    ],
)  # fmt: skip
def test_json_that_is_no_known_export_is_refused_by_a_sentence_that_says_what_is_known(
    here: User, name: str, data: bytes
) -> None:
    for path in (here.folder / name, here.folder / "unknown.zip"):
        path.write_bytes(data) if path.suffix != ".zip" else zipped(path, {"README.md": b"I like tea", name: data})
        said = learn(here, str(path), code=1)
        assert f"{path.name} holds no messages of yours" in said
        for known in ("ChatGPT", "Claude", "Gemini", "Claude Code", "Codex"):
            assert known in said
    assert here.calls() == []


def test_a_broken_export_is_an_error_in_words(here: User) -> None:
    export = [chatgpt(f"Trip {number}", "I live in York.") for number in range(20)]
    cut = here.folder / "conversations.json"
    cut.write_text(json.dumps(export)[:-3_000])
    assert "conversations.json is damaged" in learn(here, str(cut), code=1)
    path = here.folder / "export.zip"
    whole = zipped(path, {"conversations.json": export})
    for damage in (slice(0, -100), slice(0, 40)):
        data = path.read_bytes()
        path.write_bytes(data[damage])
        assert "export.zip is damaged" in learn(here, whole, code=1)
        path.write_bytes(data)
    path.write_bytes(data[:60] + bytes([data[60] ^ 255]) + data[61:])
    assert "is damaged" in learn(here, whole, code=1)
    path.write_text("an error page")
    assert "export.zip is damaged" in learn(here, whole, code=1)
    assert here.calls() == []


# Long ones


def test_an_export_is_never_in_memory_as_a_whole(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "conversations.json"
    with open(path, "w") as file:
        file.write("[")
        for number in range(400):
            conversation = chatgpt(f"Trip {number}", f"I like the number {number}.")
            conversation["mapping"]["long"] = {
                "message": {"author": {"role": "assistant"}, "content": {"parts": ["x" * 50_000]}}
            }
            file.write(f"{', ' if number else ''}{json.dumps(conversation)}")
        file.write("]")
    assert path.stat().st_size > 20_000_000
    tracemalloc.start()
    messages = memory.read_past(str(path))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert messages is not None
    assert len(messages) == 400
    assert most < 12_000_000
    monkeypatch.setattr(memory, "LARGEST_ENTRY", 1_000_000)
    path.write_text(json.dumps([chatgpt("Trip", "I live in York."), chatgpt("Long", "x" * 3_000_000), 1]))
    with pytest.raises(memory.Problem, match="is damaged, or too large"):
        memory.read_past(str(path))


def test_five_thousand_messages_say_what_they_cost_and_how_to_read_less(here: User) -> None:
    path = here.folder / "export.zip"
    export = [
        chatgpt(f"Trip {n}", *(f"I like the number {n * 50 + k}, and more" for k in range(50))) for n in range(100)
    ]
    zipped(path, {"conversations.json": export})
    said = " ".join(here.run("learn", str(path), stdin="n\n", code=1)[1].split())
    assert re.search(
        r"To learn from: 5,000 texts in 167 requests to scripted, which will read about \d\d\d,\d\d\d tokens", said
    )
    assert "To read less: --since DATE, or -n N" in said
    assert here.calls() == []
    assert "60 texts in 2 requests" in learn(here, str(path), "-n", "60")
    assert len(here.calls(update=True)) == 2


@pytest.mark.parametrize("longest", [7_000, 60_000])
def test_what_an_agent_puts_around_a_prompt_is_left_out_however_long(tmp_path: pathlib.Path, longest: int) -> None:
    around = f"{ELSEWHERE} " * (longest // len(ELSEWHERE))
    blocks = (
        f"<environment-context>{around}</environment-context>\nI live in York.\n<ide-selection>{around}</ide-selection>"
    )
    request = f"# Context from my IDE setup:\n{around}\n## My request for Codex:\nI like wool\n"
    path = tmp_path / "session.jsonl"
    path.write_bytes(lines(claude_code(blocks), codex("event_msg", type="user_message", message=request)))
    typed = [message.text for message in memory.read_past(str(path))]
    assert typed == (["I live in York.", "I like wool"] if longest < 10_000 else [])


def test_what_has_no_date_is_read_whatever_since_says(here: User) -> None:
    path = here.folder / "session.jsonl"
    path.write_bytes(lines(claude_code("I live in York.", at="")))
    learn(here, str(path), "--since", "3 days ago")
    assert facts(here) == ["I live in York"]


def test_a_long_message_is_cut_in_its_middle_and_its_secrets_are_masked(here: User) -> None:
    path = here.folder / "conversations.json"
    text = f"I live in York. {'pasted ' * 3_000} my password is hunter2secret9. I like tea."
    path.write_text(json.dumps([chatgpt("Trip", text)]))
    learn(here, str(path))
    (request,) = here.calls(update=True)
    sent = request["messages"][-1][1]
    assert len(sent) < len(memory.INSTRUCTIONS) + 2_500
    assert "I live in York" in sent
    assert "I like tea" in sent
    assert "hunter2" not in sent


# Again


def test_a_run_that_was_stopped_goes_on_where_it_was_and_a_newer_export_adds_what_is_new(here: User) -> None:
    path = here.folder / "conversations.json"
    export = [chatgpt("Numbers", *(f"I like the number {number}, not so much" for number in range(40)))]
    path.write_text(json.dumps(export))
    (here.script / "slow.txt").write_text("number 30, 60")
    terminal = here.terminal("llm", "memory", "learn", str(path), auto=None)
    terminal.expect(r"If\s+interrupted,\s+run\s+it\s+again\s.*Learn from this\?.*: ")
    terminal.type("y\r")
    eventually(lambda: len(here.calls(update=True)) == 2, "the second request")
    terminal.type("\x03")
    terminal.expect(r"30 edits to review: llm memory review")
    assert terminal.wait() == 1
    (here.script / "slow.txt").unlink()
    newer = zipped(here.folder / "newer.zip", {"conversations-000.json": [*export, chatgpt("Trip", "I live in York.")]})
    said = learn(here, newer)
    assert "Skipped: 30 already read" in said
    assert len(here.to_review()) == 41
    said = learn(here, str(path))
    assert ("40 already read" in said, "41 edits to review" in said, "nothing new" in said) == (True, True, True)


def test_forgetting_takes_the_titles_of_conversations_with_it(here: User) -> None:
    path = here.folder / "conversations.json"
    path.write_text(json.dumps([chatgpt("Leukaemia treatment", "I live in York.", "I have leukaemia, it seems")]))
    learn(here, str(path))
    here.run("review", "--accept", "1")
    assert "Leukaemia treatment" in here.run("forget", "leukaemia", "--yes")[1]
    assert here.facts == ["I live in York"]
    assert here.files_with("leukaemia") == []
    assert "in your [forgotten]: “I live in York”" in here.run("why")[0]
    learn(here, str(path))
    assert facts(here) == []


def test_what_was_dropped_by_mistake_can_be_taken_up_again(here: User) -> None:
    path = here.folder / "conversations.json"
    path.write_text(json.dumps([chatgpt("Trip", "I live in York.", "I like rain, you know")]))
    learn(here, str(path))
    here.run("review", "--drop", "all")
    assert "Dropped in reviews: 2; to review again: llm memory learn --again\n" in learn(here, str(path))
    assert facts(here) == []
    learn(here, "--again")
    assert facts(here) == ["I live in York", "I like rain, you know"]
