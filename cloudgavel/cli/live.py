"""The live view on a terminal, and one line per event without one."""

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cloudgavel.cli.streams import note, wants_colour
from cloudgavel.documents.status import StatusDocument, StatusEvent
from cloudgavel.views.status import frame_lines

FRAME_S = 0.5
"""At most two frames a second."""
HELP = (
    " q or Ctrl-C  leave: the run goes on, machines cost money until it ends or `cloudgavel down`",
    " e            more or fewer events",
    " ?            this help",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """What following a run ended with."""

    ended: bool
    """The run itself ended; otherwise the person left or the controller is gone."""
    controller_gone: bool = False


def follow_plainly(
    read: Callable[[], StatusDocument],
    wait: Callable[[float], object],
    *,
    already: Sequence[StatusEvent] = (),
) -> Watched:
    """Write one line per event to stderr until the run ends or its controller is gone.

    ``already``: events that were there before, newest first: not told again.
    """
    shown = already[0].at_s if already else 0.0
    seen = {(event.at, event.subject, event.text) for event in already}
    while True:
        status = read()
        if status.events:
            for event in reversed(status.events):
                key = (event.at, event.subject, event.text)
                if event.at_s >= shown and key not in seen:
                    seen.add(key)
                    note(plain_line(event))
            newest = status.events[0]
            if newest.at_s > shown:
                shown = newest.at_s
                seen = {key for key in seen if key[0] == newest.at}
        if status.state not in ("running", "stopping"):
            return Watched(ended=True)
        if not status.controller_alive:
            return Watched(ended=False, controller_gone=True)
        wait(FRAME_S)


def plain_line(event: StatusEvent) -> str:
    """``2026-11-29T14:06:31Z  resnet50       saved at step 640``."""
    return f"{event.at}  {event.subject:<16} {event.text}"


def follow_live(read: Callable[[], StatusDocument], *, leave_hint: str) -> Watched:
    """Draw frames on the terminal until the run ends, the person leaves, or nobody controls it.

    The normal screen is used, so that what scrolled by stays; the terminal is restored whatever
    happens.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(
        file=sys.stderr,
        force_terminal=True,
        no_color=not wants_colour(sys.stderr, os.environ),
        highlight=False,
    )
    events, helping = 8, False
    with (
        _keys() as key,
        Live(console=console, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        while True:
            status = read()
            width = min(120, console.width)
            fitting = max(0, console.height - 12 - len(status.jobs) - len(status.fleet))
            lines = frame_lines(status, width=width, events=min(events, fitting))
            lines.append("")
            lines.extend(HELP if helping else [_footer(leave_hint, width)])
            text = Text("\n".join(lines), no_wrap=True, overflow="crop")
            _paint(text)
            live.update(text, refresh=True)
            if status.state not in ("running", "stopping"):
                return Watched(ended=True)
            if not status.controller_alive:
                return Watched(ended=False, controller_gone=True)
            pressed = key(FRAME_S)
            if pressed in ("q", "\x03"):
                return Watched(ended=False)
            if pressed == "?":
                helping = not helping
            if pressed == "e":
                events = 30 if events == 8 else 8


def _footer(leave_hint: str, width: int) -> str:
    return f" ? help   e events   q leave ({leave_hint})"[:width]


WORDS = {
    r"\brunning\b|\bfinished\b|\bkept\b|\bok\b": "green",
    r"\bwaiting\b|\bstarting\b|\bsaving\b|\bmoving\b|\blikely\b": "yellow",
    r"\bfailed\b|\bmissed\b|\breleased\b|\borphan\b|controller gone": "red",
}


def _paint(text: "object") -> None:
    """Repeat by colour what the words say."""
    from rich.text import Text

    assert isinstance(text, Text)
    for pattern, style in WORDS.items():
        text.highlight_regex(pattern, style)


@contextmanager
def _keys() -> Iterator[Callable[[float], str | None]]:
    """Single key presses from stdin: ``key(timeout_s)`` returns one or ``None``.

    Ctrl-C comes as a key, so that leaving never lands in the middle of a frame.
    """
    import time

    if not sys.stdin.isatty():

        def wait(timeout_s: float) -> str | None:
            time.sleep(timeout_s)
            return None

        yield wait
        return
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    tty.setcbreak(handle)
    mode = termios.tcgetattr(handle)
    mode[3] &= ~termios.ISIG
    termios.tcsetattr(handle, termios.TCSADRAIN, mode)

    def key(timeout_s: float) -> str | None:
        ready, _, _ = select.select([handle], [], [], timeout_s)
        return os.read(handle, 1).decode(errors="replace") if ready else None

    try:
        yield key
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)
