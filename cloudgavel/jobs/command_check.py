"""Commands that do not exist, found before anything is rented."""

import re
from collections.abc import Callable
from typing import Final

from cloudgavel.jobs.spec import JobSpec, RunSpec

_SHELL_TEXT: Final = """
. : break continue eval exec exit export readonly return set shift times trap unset
alias bg cd command false fc fg getopts hash jobs kill pwd read test true type ulimit umask
unalias wait echo printf local [ ! { } case do done elif else esac fi for if in then until while
"""
_SHELL_WORDS: Final = frozenset(_SHELL_TEXT.split())
"""Built-ins and reserved words of /bin/sh."""
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_UNKNOWABLE: Final = frozenset("$`*?[~<>")
_INTERPRETER: Final = re.compile(r"(?:.*/)?(?:python[0-9.]*|bash|sh)")


def command_mistakes(run: RunSpec, *, exists: Callable[[str, str], bool]) -> tuple[str, ...]:
    """Say which commands, or scripts that they start with, are not there.

    ``exists(word, workdir)`` answers for one word: with a slash a file relative to ``workdir``,
    otherwise a program on the PATH. Shell built-ins, compound commands and words that only the
    shell can work out are accepted. A job with ``setup`` or ``image`` is not judged: those may
    bring the program.
    """
    found: dict[str, None] = {}
    for job in run.jobs:
        if job.setup is not None or job.image is not None:
            continue
        for platform, command in job.commands.items():
            message = _mistake(command, job, exists)
            if message is not None:
                key = "command" if platform == "any" else f"command.{platform}"
                line = f":{job.line}" if job.line is not None else ""
                found[f"{run.source or 'jobs.yaml'}{line} {job.name}.{key}: {message}"] = None
    return tuple(found)


def _mistake(command: str, job: JobSpec, exists: Callable[[str, str], bool]) -> str | None:
    words = first_words(command)
    if not words or _is_unknowable(words[0]) or words[0] in _SHELL_WORDS:
        return None
    program = words[0]
    if not exists(program, job.workdir):
        if "/" in program:
            return f"there is no file `{program}` in {job.workdir}"
        return f"there is no program `{program}` on the PATH"
    if _INTERPRETER.fullmatch(program) and len(words) > 1:
        script = words[1]
        is_script = script.endswith((".py", ".sh")) and not _is_unknowable(script)
        if is_script and not exists(script if "/" in script else f"./{script}", job.workdir):
            return f"there is no file `{script}` in {job.workdir}"
    return None


def _is_unknowable(word: str) -> bool:
    return any(character in _UNKNOWABLE for character in word) and word != "["


def first_words(command: str) -> tuple[str, ...]:
    """Words of the first simple command of a shell text, without assignments before it.

    Empty if it begins with a group, a comment or a redirection: then nothing can be said.
    """
    words: list[str] = []
    word = ""
    is_word = False
    quote = ""
    position = 0
    text = command.strip()
    while position < len(text):
        character = text[position]
        position += 1
        if quote:
            if character == quote:
                quote = ""
            elif character == "\\" and quote == '"' and position < len(text):
                word += text[position]
                position += 1
            else:
                word += character
        elif character in "'\"":
            quote = character
            is_word = True
        elif character == "\\" and position < len(text):
            if text[position] != "\n":
                word += text[position]
                is_word = True
            position += 1
        elif character in ";&|()\n" or (character == "#" and not is_word):
            break
        elif character.isspace():
            if is_word:
                words.append(word)
            word, is_word = "", False
        else:
            word += character
            is_word = True
    if is_word and not quote:
        words.append(word)
    while words and _ASSIGNMENT.match(words[0]):
        words.pop(0)
    return tuple(words)
