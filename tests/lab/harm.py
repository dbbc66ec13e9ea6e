"""How the bytes of a file are damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def somewhere(data: bytes, chance: random.Random) -> int:
    """Return a place that is not empty: most of a database's are."""
    return chance.choice([at for at, byte in enumerate(data) if byte] or [0])


def changed_byte(data: bytes, chance: random.Random) -> bytes:
    at = somewhere(data, chance)
    return data[:at] + chance.randbytes(1) + data[at + 1 :]


def flipped_bit(data: bytes, chance: random.Random) -> bytes:
    at = somewhere(data, chance)
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def not_utf8(data: bytes, chance: random.Random) -> bytes:
    at = somewhere(data, chance)
    return data[:at] + b"\xff\xc3\x28" + data[at + 3 :]


WAYS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "emptied": lambda _data, _chance: b"",
    "halved": lambda data, _chance: data[: len(data) // 2],
    "cut": lambda data, chance: data[: chance.randrange(len(data))],
    "zeros": lambda data, _chance: bytes(len(data)),
    "garbage": lambda data, chance: chance.randbytes(len(data)),
    "a byte": changed_byte,
    "a bit": flipped_bit,
    "not UTF-8": not_utf8,
}
