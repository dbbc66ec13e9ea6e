"""What is typed is learned, once; what is not typed, or not to be learned, never is."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import shutil
import signal
import sqlite3
import stat
import subprocess
from typing import Any

import pytest
from conftest import BIN, PATIENCE, User, eventually, holder

import llm_user_memory as memory

PAGE = "I am the author of this page. I live in Atlantis.\nAll about fish.\n"


def learned(user: User, *facts: str) -> None:
    """Wait until the profile has these facts, and see that it has nothing else and nothing twice."""
    eventually(lambda: set(facts) <= set(user.facts), f"learning {facts}")
    user.settled()
    assert sorted(user.facts) == sorted(facts)


def knows(user: User, fact: str) -> bool:
    return fact in user.facts


def asked_about(user: User, text: str) -> int:
    """How many update requests held this text."""
    return sum(text in call["messages"][-1][1] for call in user.calls(update=True))


def ended(pid: int) -> bool:
    try:
        return "\nState:\tZ" in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


# Learned


def test_the_first_prompt_is_learned_and_the_next_one_carries_it(user: User) -> None:
    user.llm("Hello! I live in Leeds. What is the time?")
    learned(user, "I live in Leeds")
    user.llm("And now?")
    assert "- I live in Leeds" in user.calls(update=False)[-1]["system"]
    assert user.query("select quote from evidence", user.places.database) == "I live in Leeds"
    assert user.query("select count(*) from versions", user.places.database) == 1


def test_a_call_ends_while_its_worker_goes_on_and_shares_no_file_with_it(user: User) -> None:
    (user.script / "slow.txt").write_text("NO_UPDATE 600")
    command = 'said=$("$0" "I live in Leeds"); "$0" "And now?" | cat >/dev/null; echo "$said"'
    done = subprocess.run(
        ["sh", "-c", command, BIN / "llm"],
        env=user.env | {"LLM_MEMORY_AUTO": "1"},
        cwd=user.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout == b"You said: I live in Leeds\n"
    assert done.stderr == b""
    process = pathlib.Path(f"/proc/{user.worker_pid()}")
    assert {os.readlink(process / "fd" / n) for n in "012"} == {"/dev/null"}
    assert not [link for fd in (process / "fd").iterdir() if (link := os.readlink(fd)).startswith("pipe:")]
    assert os.readlink(process / "cwd") == "/"
    assert os.getsid(int(process.name)) == int(process.name)
    assert b"LLM_MEMORY_AUTO" not in (process / "environ").read_bytes()


def test_three_prompts_in_parallel_are_all_learned_once_by_one_worker(user: User) -> None:
    user.make_log()  # llm itself fails where several first calls create its log at once
    facts = ["I live in Leeds", "I work as a nurse", "I play the oboe"]
    calls = [user.start(fact) for fact in facts]
    assert [call.wait(PATIENCE) for call in calls] == [0, 0, 0]
    learned(user, *facts)
    eventually(lambda: len(user.workers()) == 1, "only one worker")
    assert [asked_about(user, f">\n{fact}\n<") for fact in facts] == [1, 1, 1]
    assert user.query("select count(*) from evidence", user.places.database) == 3


def test_a_slow_call_logged_after_a_later_quick_one_is_learned(user: User) -> None:
    goes_on = user.folder / "goes on"
    wait = f"import os, time\ndef wait():\n    while not os.path.exists({str(goes_on)!r}):\n        time.sleep(0.05)\n"
    slow = user.start("--functions", wait, "I work as a nurse")
    eventually(lambda: user.calls(update=False), "the slow call")
    user.llm("I live in Leeds")
    learned(user, "I live in Leeds")
    goes_on.touch()
    assert slow.wait(PATIENCE) == 0
    slow_id, quick_id = (
        user.query(f"select id from turns where id in (select turn_id from turn_search where prompt like '%{w}')")
        for w in ("nurse", "Leeds")
    )
    assert slow_id < quick_id, "the slow call was to start before the quick one"
    learned(user, "I live in Leeds", "I work as a nurse")


def test_every_message_of_a_chat_is_learned_while_it_goes_on(user: User) -> None:
    terminal = user.terminal("llm", "chat")
    terminal.expect("> ")
    terminal.type("I live in Leeds\n")
    learned(user, "I live in Leeds")
    terminal.expect("> ")
    terminal.type("!multi\nSo:\nI work as a nurse\n!end\n")
    learned(user, "I live in Leeds", "I work as a nurse")
    terminal.expect("You said: So.*> ")
    terminal.type("quit\n")
    assert terminal.wait() == 0


def test_words_typed_into_a_bare_llm_at_a_terminal_are_learned(user: User) -> None:
    terminal = user.terminal("llm")
    terminal.type("I live in Leeds\n")
    terminal.end()
    assert terminal.wait() == 0
    learned(user, "I live in Leeds")


def test_the_model_of_the_turn_is_asked_with_its_own_options_unless_another_is_named(user: User) -> None:
    (user.user_dir / "model_options.json").write_text('{"scripted-2": {"temperature": 0.25}}')
    user.llm("-m", "scripted-2", "I live in Leeds")
    learned(user, "I live in Leeds")
    user.llm("I work as a nurse", LLM_MEMORY_MODEL="scripted-2")
    learned(user, "I live in Leeds", "I work as a nurse")
    user.llm("I play the oboe")
    learned(user, "I live in Leeds", "I work as a nurse", "I play the oboe")
    updates = user.calls(update=True)
    assert [call["model"] for call in updates] == ["scripted-2", "scripted-2", "scripted"]
    assert updates[0]["options"] == {"temperature": 0.25}
    assert updates[2]["options"] == {}


def test_a_users_edit_made_while_the_model_thinks_survives(user: User) -> None:
    user.profile = "# Me\n\n## Work\n- Nurse\n"
    (user.script / "slow.txt").write_text("NO_UPDATE 2")
    user.llm("I live in Leeds")
    eventually(lambda: user.calls(update=True), "the update request")
    user.profile = "# Me\n\n## Work\n- Doctor\n- Tired\n"
    assert "I live in Leeds" not in user.facts
    learned(user, "Doctor", "Tired", "I live in Leeds")


def test_after_llms_log_was_deleted_new_turns_are_learned_and_none_twice(user: User) -> None:
    user.llm("I live in Leeds")
    learned(user, "I live in Leeds")
    user.places.logs.unlink()
    user.llm("I work as a nurse")
    learned(user, "I live in Leeds", "I work as a nurse")
    assert asked_about(user, ">\nI live in Leeds\n<") == 1


# Not learned


def test_what_is_not_to_be_learned_never_is_also_not_later(user: User) -> None:
    def quietly() -> None:
        user.llm("I am a spy one", LLM_MEMORY_UPDATES="false")
        if not user.worker_runs():
            assert user.workers() == [], "a worker was started, though there is nothing for it to do"
        user.llm("I am a spy two", LLM_MEMORY_DISABLED="true")
        user.llm("I am a spy three", auto=None)

    quietly()
    user.llm("-n", "I am a spy four")
    user.llm("-d", str(user.folder / "other.db"), "I am a spy five")
    assert not user.worker_runs()
    user.llm("I live in Leeds")
    learned(user, "I live in Leeds")
    quietly()
    user.llm("chat", input="I am a spy six\nquit\n")
    (user.user_dir / "logs-off").touch()
    user.llm("I am a spy seven")
    (user.user_dir / "logs-off").unlink()
    user.llm("memory", "pause")
    user.llm("I am a spy eight")
    user.llm("memory", "resume")
    user.llm("I work as a nurse")
    learned(user, "I live in Leeds", "I work as a nurse")
    user.llm("memory", "update", "--retry")
    learned(user, "I live in Leeds", "I work as a nurse")
    assert asked_about(user, "a spy") == 0


def test_a_chat_goes_unlearned_while_paused(user: User) -> None:
    terminal = user.terminal("llm", "chat")
    for pause, text in ((False, "I live in Leeds"), (True, "I am a spy"), (False, "I work as a nurse")):
        with user.memory() as opened:
            (opened.pause if pause else opened.resume)()
        terminal.expect("> ")
        terminal.type(f"{text}\n")
        terminal.expect(f"You said: .*{text[-5:]}\n")
        if not pause:
            eventually(functools.partial(knows, user, text), f"learning {text}")
    terminal.expect("> ")
    terminal.type("quit\n")
    terminal.wait()
    learned(user, "I live in Leeds", "I work as a nurse")
    assert asked_about(user, "a spy") == 0


def test_a_note_of_a_call_made_while_paused_stays_unlearned_when_it_is_written_late(user: User) -> None:
    typed = "I am a spy"
    with user.memory() as opened:
        opened.pause()
        at = memory.utc_now().isoformat()
        opened.resume()
        late = memory.Note("prompt", learn=True, length=len(typed), sha256=memory.digest(typed), at=at)
        memory.keep_late_note(user.places, late)
        opened.take_late_notes()
        assert [note.learn for note in opened.open_notes()] == [False]


def test_a_piped_page_is_not_learned_from_but_the_words_typed_for_it_are(user: User) -> None:
    templates = user.user_dir / "templates"
    templates.mkdir()
    (templates / "sum.yaml").write_text("prompt: 'I am a template. Sum up: $input (I am the end)'\n")
    (user.folder / "page.txt").write_text(PAGE)
    user.reply(
        "ADD | Personal Information | Is the author | I am the author of this page\n"
        "ADD | Personal Information | Lives in Atlantis | I live in Atlantis\n"
        "ADD | Personal Information | Is a template | I am a template\n"
        "ADD | Preferences | Prefers short summaries | I prefer short summaries\n"
        "ADD | Preferences | Reads at night | I like to read at night\n"
    )
    user.llm("summarize, I prefer short summaries", input=PAGE)
    user.llm("-t", "sum", "I like to read at night", input=PAGE)
    user.llm(input=PAGE)
    user.llm("-t", "sum", input=PAGE)
    user.llm("-f", "page.txt", "summarize this")
    learned(user, "Prefers short summaries", "Reads at night")
    assert asked_about(user, "Atlantis") == asked_about(user, "a template") == 0
    assert user.query("select count(*) from turn_search where prompt like '%Atlantis%'") == 4


@pytest.mark.parametrize(
    ("args", "env"),
    [(("-c",), {}), (("-c", "I am a spy"), {"LLM_MEMORY_UPDATES": "false"}), (("-c", "sum up"), {"auto": None})],
    ids=["nothing typed", "updates off", "without memory"],
)
def test_a_call_that_continues_an_open_chat_from_elsewhere_is_not_taken_for_typed(
    user: User, args: tuple[str, ...], env: dict[str, Any]
) -> None:
    terminal = user.terminal("llm", "chat")
    terminal.expect("> ")
    terminal.type("I live in Leeds\n")
    learned(user, "I live in Leeds")
    user.llm(*args, input=PAGE, **env)
    terminal.expect("> ")
    terminal.type("I work as a nurse\n")
    eventually(lambda: "I work as a nurse" in user.facts, "learning from the chat")
    user.settled()
    assert asked_about(user, "Atlantis") == asked_about(user, "a spy") == 0
    terminal.expect("> ")
    terminal.type("quit\n")
    terminal.wait()


def test_a_chat_whose_terminal_was_closed_is_over(user: User) -> None:
    terminal = user.terminal("llm", "chat")
    terminal.expect("> ")
    terminal.type("I live in Leeds\n")
    learned(user, "I live in Leeds")
    os.kill(terminal.pid, signal.SIGHUP)
    terminal.wait()
    user.llm("-c", "sum up", input=PAGE, auto=None)
    user.llm("I work as a nurse")
    learned(user, "I live in Leeds", "I work as a nurse")
    assert asked_about(user, "Atlantis") == 0


# The worker's life


@pytest.mark.parametrize("moment", ["before", "thinking", "after"])
def test_after_a_kill_the_next_call_starts_another_worker_and_the_turn_is_learned_once(user: User, moment: str) -> None:
    if moment == "thinking":
        (user.script / "slow.txt").write_text("NO_UPDATE 600")
    user.llm("I live in Leeds", LLM_MEMORY_UPDATE_INTERVAL="600" if moment == "before" else "0.1")
    if moment == "thinking":
        eventually(lambda: user.calls(update=True), "the update request")
    elif moment == "after":
        eventually(lambda: user.facts, "learning")
    user.kill_worker(signal.SIGKILL)
    (user.script / "slow.txt").unlink(missing_ok=True)
    assert len(user.calls(update=True)) == {"before": 0, "thinking": 1, "after": 1}[moment]
    user.llm("I work as a nurse")
    learned(user, "I live in Leeds", "I work as a nurse")
    assert user.query("select count(*) from evidence", user.places.database) == 2
    assert asked_about(user, ">\nI live in Leeds\n<") == (2 if moment == "thinking" else 1)


class Crash(Exception):
    pass


@pytest.mark.parametrize("users_edit", ["", "- Mine\n"])
def test_a_crash_between_the_database_and_the_file_is_finished_by_the_next_change(user: User, users_edit: str) -> None:
    class Crashing(memory.Memory):
        def _put_in_place(self, *_: object) -> None:
            raise Crash

    user.profile = "# Me\n- A\n"
    with Crashing(user.places) as crashing, pytest.raises(Crash):
        crashing.change("worker", lambda text: text + "- B\n")
    assert user.profile == "# Me\n- A\n"
    user.profile += users_edit
    with user.memory() as opened:
        opened.change("load", lambda text: text + "- C\n")
        assert user.profile.endswith("- C\n")
        assert sorted(user.facts) == sorted(["A", "B", "C", *(["Mine"] if users_edit else [])])
        assert opened.version_text(opened.versions(1)[0].id) == user.profile
    assert [path.name for path in user.places.directory.glob(".*.tmp")] == []


@pytest.fixture
def here(user: User, monkeypatch: pytest.MonkeyPatch) -> User:
    """The user whose worker runs inside this process, idle after an instant."""
    monkeypatch.setenv("LLM_USER_PATH", str(user.user_dir))
    monkeypatch.setattr(memory, "IDLE_EXIT", 0.2)
    return user


def test_a_turn_logged_while_an_idle_worker_makes_up_its_mind_is_learned(here: User) -> None:
    class Worker(memory.Worker):
        served = 0

        def _serve(self) -> str:
            ending = super()._serve()
            self.served += 1
            if self.served == 1:
                # The lock is still held, so this call starts no worker of its own.
                here.llm("I live in Leeds")
            return ending

    worker = Worker(here.places, memory.Settings(interval=0.05))
    worker.run()
    assert here.facts == ["I live in Leeds"]
    assert worker.served == 2
    assert not here.worker_runs()


def test_a_worker_exits_when_idle_also_while_paused(here: User) -> None:
    class Worker(memory.Worker):
        served = 0

        def _serve(self) -> str:
            self.served += 1
            assert self.served < 4, "a worker with nothing it may do went on for ever"
            return super()._serve()

    with here.memory() as opened:
        opened.pause()
    here.llm("I am a spy", LLM_MEMORY_UPDATES="false")
    Worker(here.places, memory.Settings(interval=0.05)).run()
    assert not here.worker_runs()


def test_a_worker_exits_when_its_home_vanishes_and_does_not_bring_it_back(user: User) -> None:
    user.llm("I live in Leeds")
    learned(user, "I live in Leeds")
    pid = user.worker_pid()
    user.places.directory.rename(user.folder / "gone")
    eventually(lambda: ended(pid), "the worker's end")
    assert not user.places.directory.exists()


def test_a_worker_makes_way_for_a_new_one_when_the_module_is_replaced(user: User, tmp_path: pathlib.Path) -> None:
    copy = tmp_path / "site" / "llm_user_memory.py"
    copy.parent.mkdir()
    shutil.copy(memory.__file__, copy)
    user.env["PYTHONPATH"] = str(copy.parent)
    user.llm("I live in Leeds")
    learned(user, "I live in Leeds")
    old = user.worker_pid()
    shutil.copy(copy, copy.with_suffix(".new"))
    os.replace(copy.with_suffix(".new"), copy)
    eventually(lambda: ended(old), "the old worker's end")
    assert user.worker_pid() != old


# Privacy of the files


def test_no_file_of_ours_is_readable_by_others_whatever_the_umask(user: User) -> None:
    config = user.home / ".config" / "io.datasette.llm"
    config.mkdir(parents=True)
    del user.env["LLM_USER_PATH"]
    user.env |= {"LLM_MODEL": "scripted", "SCRIPTED_DIR": str(user.script), "LLM_MEMORY_AUTO": "1"}
    home = memory.Home(config)

    def run(*args: str) -> None:
        subprocess.run(
            [BIN / "llm", *args], env=user.env, umask=0, check=True, stdin=subprocess.DEVNULL, timeout=PATIENCE
        )

    try:
        run("I live in Leeds")
        eventually(lambda: "Leeds" in memory.read_profile(home.profile), "learning")
        (user.folder / "new.md").write_text("- A\n")
        run("memory", "load", str(user.folder / "new.md"))
        run("memory", "pause")
        eventually(lambda: list(user.home.rglob("worker-*.log")), "the worker's log")
    finally:
        while pid := holder(home.worker_lock):
            os.kill(pid, signal.SIGKILL)
    ours = [*home.directory.rglob("*"), home.directory, *user.home.rglob("worker-*.log")]
    assert {home.profile, home.database, home.worker_lock, home.profile_lock} <= set(ours)
    assert [(path, oct(stat.S_IMODE(path.stat().st_mode))) for path in ours if path.stat().st_mode & 0o077] == []


def test_words_of_a_call_that_failed_do_not_stand_for_those_of_a_later_one(user: User) -> None:
    user.llm("I live in Leeds")
    with contextlib.closing(sqlite3.connect(user.places.logs)) as db:
        thread = db.execute("select id from threads").fetchone()[0]
    failed = memory.Note("prompt", learn=True, length=2, sha256=memory.digest("hi"), thread_id=thread)
    with user.memory() as opened:
        opened.note(failed)
    user.llm("-c", "hi, I work as a nurse")
    learned(user, "I live in Leeds", "I work as a nurse")


def test_words_of_a_call_that_failed_are_not_learned_when_memory_takes_no_part_in_the_next(user: User) -> None:
    failed = user.llm("-m", "scripted-key", "I am a spy", check=False)
    assert failed.returncode == 1
    with user.memory() as opened:
        assert opened.open_notes() == []
    user.llm("I am a spy", auto=None)
    user.llm("I live in Leeds")
    learned(user, "I live in Leeds")
    assert asked_about(user, "a spy") == 0


@pytest.mark.parametrize("how", ["paused", "updates off"])
@pytest.mark.parametrize("continued", [True, False])
def test_words_of_a_call_that_was_killed_are_not_learned_when_they_are_typed_again_and_not_for_memory(
    user: User, how: str, *, continued: bool
) -> None:
    user.llm("I live in Leeds")
    learned(user, "I live in Leeds")
    thread = user.query("select id from threads")
    text = "I am a spy"
    with user.memory() as opened:
        opened.note(
            memory.Note(
                "prompt",
                learn=True,
                length=len(text),
                sha256=memory.digest(text),
                thread_id=thread if continued else None,
            )
        )
        if how == "paused":
            opened.pause()
    user.llm(*(["-c"] if continued else []), text, LLM_MEMORY_UPDATES="on" if how == "paused" else "off")
    with user.memory() as opened:
        opened.resume()
    user.llm("I work as a nurse")
    learned(user, "I live in Leeds", "I work as a nurse")
    assert asked_about(user, "a spy") == 0


def test_a_turn_that_was_passed_over_stays_so_when_the_log_is_read_again(user: User) -> None:
    user.llm("I am a spy", LLM_MEMORY_UPDATES="off")
    user.llm("I live in Leeds")
    learned(user, "I live in Leeds")
    text = "I am a spy"
    at = user.query("select datetime_utc from turns order by rowid")
    with user.memory() as opened:
        opened.note(memory.Note("prompt", learn=True, length=len(text), sha256=memory.digest(text), at=at))
        opened.set("cursor", None)
    user.llm("I work as a nurse")
    learned(user, "I live in Leeds", "I work as a nurse")
    assert asked_about(user, "a spy") == 0


def test_a_note_is_not_of_a_turn_that_was_logged_before_it(user: User) -> None:
    user.llm("I am a spy", auto=None)
    with user.memory() as opened:
        opened.note(memory.Note("prompt", learn=True, length=10, sha256=memory.digest("I am a spy")))
    user.llm("I live in Leeds")
    learned(user, "I live in Leeds")
    assert asked_about(user, "a spy") == 0


@pytest.mark.parametrize(("around", "found"), [(0, True), (9_000, True), (10_000, False)])
def test_typed_words_are_looked_for_inside_a_prompt_of_ordinary_size(around: int, *, found: bool) -> None:
    typed = "I live in Leeds"
    note = memory.Note("prompt", learn=True, length=len(typed), sha256=memory.digest(typed))
    prompt = "x" * around + typed + "y" * around
    assert memory.typed_at(prompt, note, anywhere=True) == (around if found else None)
    assert memory.typed_at("x" * 30_000 + typed, note) == 30_000
