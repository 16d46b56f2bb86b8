"""The command lines that documents show, and whether the command would take them."""

import re
import shlex

from dedup_nb.cli import _load_config, _parse


def checked(words):
    "Raises `ConfigError` where the command takes no such words, or a setting no such value."
    args = _parse([word for word in words if word != "--help"])
    if hasattr(args, "set"):
        _load_config(args)


def blocks(text):
    "The lines of the fenced blocks of a Markdown text; a line that ends in a backslash goes on."
    parts = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    return re.sub(r"\\\n\s*", "", "".join(parts)).splitlines()


def inline(text):
    "What stands between backticks in the running text of a Markdown text."
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def words_of(line):
    return shlex.split(line, comments=True)
