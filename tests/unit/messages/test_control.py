"""The control directory's files: whole or no news."""

import os
import select
from pathlib import Path

from cloudgavel.messages.control import (
    CONTROL_FILE,
    Control,
    Progress,
    drain,
    make_pipe,
    read_control,
    read_progress,
    wake,
    watch_control,
    write_control,
    write_progress,
)


def test_what_is_written_is_read_also_when_it_gets_shorter(tmp_path: Path) -> None:
    long = Control(number=1, agent_pid=1, save_at_steps=tuple(range(1000)))
    short = Control(number=2, agent_pid=1)
    for control in (long, short):
        write_control(tmp_path, control)
        assert read_control(tmp_path) == control
    progress = Progress(pid=1, control_seen=2, step=3, state="paused", save_error="é")
    write_progress(tmp_path, progress)
    assert read_progress(tmp_path) == progress


def test_a_half_written_file_is_no_news(tmp_path: Path) -> None:
    write_control(tmp_path, Control(number=10, agent_pid=1, run_to_step=10))
    watched = watch_control(tmp_path)
    first = watched.look()
    path = tmp_path / CONTROL_FILE
    before = path.read_bytes()
    write_control(tmp_path, Control(number=11, agent_pid=1, run_to_step=99))
    after = path.read_bytes()
    assert len(before) == len(after)
    for cut in range(1, after.rindex(b"}") + 1):
        torn = after[:cut] + before[cut:]
        if torn not in (before, after):
            path.write_bytes(torn)
            assert watched.look() is None, cut
            assert read_control(tmp_path) is None
    path.write_bytes(after)
    assert first is not None and first.number == 10
    second = watched.look()
    assert second is not None and second.run_to_step == 99
    assert watched.look() is None, "nothing new"


def test_watching_may_begin_before_there_is_a_file(tmp_path: Path) -> None:
    watched = watch_control(tmp_path)
    assert watched.look() is None
    write_control(tmp_path, Control(number=1, agent_pid=1))
    assert watched.look() is not None
    watched.close()


def test_a_pipe_wakes_and_nobody_listening_is_fine(tmp_path: Path) -> None:
    wake(tmp_path / "none")
    pipe = make_pipe(tmp_path / "pipe")
    assert pipe is not None
    assert select.select([pipe], [], [], 0)[0] == []
    for _ in range(100_000 // 100):
        wake(tmp_path / "pipe")
    assert select.select([pipe], [], [], 0)[0] == [pipe]
    drain(pipe)
    assert select.select([pipe], [], [], 0)[0] == []
    os.close(pipe)
    wake(tmp_path / "pipe")
