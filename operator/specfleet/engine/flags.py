"""`vllm serve` flags as the user wrote them in engine.args: grouped per flag, comparable by name."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_SHORT = re.compile(r"^-[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag and the values that follow it. `name` is empty for values before any flag."""

    name: str
    """With dashes, as vLLM normalises it: `--max_num_seqs` is `--max-num-seqs`."""
    values: tuple[str, ...] = ()
    index: int = field(default=-1, compare=False)
    """Place in engine.args, for messages; -1 for flags that specfleet adds."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """As separate arguments; a value that looks like a flag stays attached with `=`."""
        if len(self.values) == 1 and self.values[0].startswith("-"):
            return (f"{self.name}={self.values[0]}",)
        return (self.name, *self.values) if self.name else self.values

    @property
    def stem(self) -> str:
        """The name without `--` and without a leading `no-`: both switches of one setting have the same stem."""
        return self.name.removeprefix("--").removeprefix("no-")

    @property
    def text(self) -> str:
        """The values joined by blanks; `set` for a bare switch, so that it differs from an absent one."""
        return " ".join(self.values) or "set"


def parse_flags(args: Iterable[str]) -> tuple[Flag, ...]:
    """Flags in the order written. `--flag=value` and `--flag value` give the same Flag."""
    flags: list[Flag] = []
    for index, token in enumerate(args):
        if token.startswith("--") and len(token) > len("--"):
            name, separator, value = token.partition("=")
            flags.append(Flag(_normal(name), (value,) if separator else (), index))
        elif _SHORT.match(token):
            name, separator, value = token.partition("=")
            flags.append(Flag(name, (value,) if separator else (), index))
        elif flags:
            last = flags[-1]
            flags[-1] = Flag(last.name, (*last.values, token), last.index)
        else:
            flags.append(Flag("", (token,), index))
    return tuple(flags)


def ordered(flags: Iterable[Flag]) -> tuple[Flag, ...]:
    """Sorted by setting, later ones of the same setting last (argparse lets the last one win).

    The order in which different flags are written means nothing to vLLM; sorting keeps it out of the fingerprint.
    """
    return tuple(sorted(flags, key=lambda flag: flag.stem))


def find(flags: Iterable[Flag], *names: str) -> Flag | None:
    """The last flag with one of these names, or None."""
    found = [flag for flag in flags if flag.name in names]
    return found[-1] if found else None


def switched_on(flags: Iterable[Flag], name: str) -> bool:
    """Whether a boolean switch ends up on: `--name` without a later `--no-name`."""
    negative = "--no-" + name.removeprefix("--")
    found = [flag for flag in flags if flag.name in (name, negative)]
    return bool(found) and found[-1].name == name and found[-1].values not in (("false",), ("False",))


def integer(flags: Iterable[Flag], name: str) -> int | None:
    """The value of an integer flag, None when absent or not a whole number (`8k` is read by vLLM as 8000)."""
    flag = find(flags, name)
    if flag is None or len(flag.values) != 1:
        return None
    found = re.fullmatch(r"(\d+)([kKmM]?)", flag.values[0])
    if found is None:
        return None
    return int(found[1]) * {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20}[found[2]]


def _normal(name: str) -> str:
    head, dot, tail = name.partition(".")
    return "--" + head.removeprefix("--").replace("_", "-") + dot + tail
