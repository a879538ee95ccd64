"""The rules of the CRD, evaluated offline: the part of CEL that specfleet.api uses, on plain JSON values.

The API server enforces `x-kubernetes-validations`; lint has no API server. Evaluating the same rule text keeps one
source. Supported: literals, lists, field and index access, has(), comparison, `in`, `!`, `-`, `&&`, `||`, size(),
startsWith(), isSorted(), `*` and `%` of counts, `? :` and the macros all(), exists(), filter() and map(). Anything else
raises CelError when the rule is compiled, so that a rule can never be skipped in silence.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Scope = Mapping[str, Any]
Evaluate = Callable[[Scope], Any]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.\d+|\d+)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<name>[A-Za-z_]\w*)|"
    r"(?P<symbol>&&|\|\||==|!=|<=|>=|[<>!()\[\].,?:*%\-]))"
)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda item, items: item in items,
}
_MULTIPLY: dict[str, Callable[[Any, Any], Any]] = {"*": operator.mul, "%": operator.mod}
_LITERALS = {"true": True, "false": False, "null": None}


class CelError(ValueError):
    """A rule that this evaluator cannot read, or that fails on the value (for example an absent field)."""


@lru_cache(maxsize=512)
def compile_rule(rule: str) -> Evaluate:
    """Function from {"self": value} to the rule's result. Raises CelError for unsupported syntax."""
    parser = _Parser(rule, _tokens(rule))
    evaluate = parser.choice()
    if parser.here is not None:
        raise CelError(f"unexpected {parser.here!r} in {rule!r}")
    return evaluate


def holds(rule: str, value: Any) -> bool:
    """Whether the value satisfies the rule. Raises CelError as the API server would report an error."""
    result = compile_rule(rule)({"self": value})
    if not isinstance(result, bool):
        raise CelError(f"{rule!r} gives {result!r}, not a boolean")
    return result


def _tokens(rule: str) -> list[str]:
    tokens, position = [], 0
    while rule[position:].strip():
        found = _TOKEN.match(rule, position)
        if found is None:
            raise CelError(f"cannot read {rule[position:]!r}")
        tokens.append(found[found.lastgroup or 0])
        position = found.end()
    return tokens


@dataclass
class _Parser:
    """Recursive descent, one method per precedence level of the CEL grammar."""

    rule: str
    tokens: list[str]
    position: int = 0

    @property
    def here(self) -> str | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def take(self, *wanted: str) -> str:
        token = self.here
        if token is None or (wanted and token not in wanted):
            raise CelError(f"expected {' or '.join(wanted) or 'more'} in {self.rule!r}, found {token!r}")
        self.position += 1
        return token

    def choice(self) -> Evaluate:
        condition = self.either()
        if self.here != "?":
            return condition
        self.take()
        then = self.choice()
        self.take(":")
        otherwise = self.choice()
        return lambda scope: then(scope) if condition(scope) else otherwise(scope)

    def either(self) -> Evaluate:
        parts = [self.both()]
        while self.here == "||":
            self.take()
            parts.append(self.both())
        return parts[0] if len(parts) == 1 else lambda scope: any(part(scope) for part in parts)

    def both(self) -> Evaluate:
        parts = [self.relation()]
        while self.here == "&&":
            self.take()
            parts.append(self.relation())
        return parts[0] if len(parts) == 1 else lambda scope: all(part(scope) for part in parts)

    def relation(self) -> Evaluate:
        left = self.sum()
        if self.here in _COMPARE:
            compare, right = _COMPARE[self.take()], self.sum()
            return lambda scope: compare(left(scope), right(scope))
        return left

    def sum(self) -> Evaluate:
        left = self.product()
        while self.here == "-":
            self.take()
            left = _minus(left, self.product())
        return left

    def product(self) -> Evaluate:
        left = self.unary()
        while self.here in _MULTIPLY:
            left = _both(_MULTIPLY[self.take()], left, self.unary())
        return left

    def unary(self) -> Evaluate:
        if self.here == "!":
            self.take()
            inner = self.unary()
            return lambda scope: not inner(scope)
        return self.member()

    def member(self) -> Evaluate:
        value = self.primary()
        while self.here in (".", "["):
            if self.take() == "[":
                index = self.choice()
                self.take("]")
                value = _index(value, index)
                continue
            name = self.take()
            value = self.call(value, name) if self.here == "(" else _field(value, name, self.rule)
        return value

    def primary(self) -> Evaluate:
        token = self.take()
        if token == "(":  # noqa: S105 - a parenthesis
            inner = self.choice()
            self.take(")")
            return inner
        if token == "[":  # noqa: S105
            items = self.items("]")
            return lambda scope: [item(scope) for item in items]
        if token[0] in "'\"":
            return _constant(token[1:-1])
        if token[0].isdigit():
            return _constant(float(token) if "." in token else int(token))
        if token in _LITERALS:
            return _constant(_LITERALS[token])
        if token == "has":  # noqa: S105
            return self.presence()
        if not token[0].isalpha():
            raise CelError(f"unexpected {token!r} in {self.rule!r}")
        return lambda scope: scope[token]

    def presence(self) -> Evaluate:
        self.take("(")
        parts = [self.take()]
        while self.here == ".":
            self.take()
            parts.append(self.take())
        self.take(")")
        *parents, last = parts
        return lambda scope: last in _walk(scope, parents, self.rule)

    def items(self, end: str) -> list[Evaluate]:
        listed: list[Evaluate] = []
        while self.here != end:
            listed.append(self.choice())
            if self.here != end:
                self.take(",")
        self.take(end)
        return listed

    def call(self, subject: Evaluate, name: str) -> Evaluate:
        self.take("(")
        if name in ("all", "exists", "filter", "map"):
            variable = self.take()
            self.take(",")
            body = self.choice()
            self.take(")")
            return _macro(name, subject, variable, body)
        arguments = self.items(")")
        if name == "size" and not arguments:
            return lambda scope: len(subject(scope))
        if name == "isSorted" and not arguments:
            return lambda scope: subject(scope) == sorted(subject(scope))
        if name == "startsWith" and len(arguments) == 1:
            return lambda scope: subject(scope).startswith(arguments[0](scope))
        raise CelError(f"{name}() with {len(arguments)} arguments is not supported in {self.rule!r}")


def _constant(value: Any) -> Evaluate:
    return lambda _: value


def _minus(left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda scope: left(scope) - right(scope)


def _both(apply: Callable[[Any, Any], Any], left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda scope: apply(left(scope), right(scope))


def _index(value: Evaluate, index: Evaluate) -> Evaluate:
    return lambda scope: value(scope)[index(scope)]


def _field(value: Evaluate, name: str, rule: str) -> Evaluate:
    def evaluate(scope: Scope) -> Any:
        holder = value(scope)
        if name not in holder:
            raise CelError(f"no such field {name} in {rule!r}")
        return holder[name]

    return evaluate


def _walk(scope: Scope, parts: list[str], rule: str) -> Any:
    value: Any = scope
    for part in parts:
        if part not in value:
            raise CelError(f"no such field {part} in {rule!r}")
        value = value[part]
    return value


def _macro(name: str, subject: Evaluate, variable: str, body: Evaluate) -> Evaluate:
    def each(scope: Scope) -> list[tuple[Any, Any]]:
        return [(item, body({**scope, variable: item})) for item in subject(scope)]

    if name == "all":
        return lambda scope: all(result for _, result in each(scope))
    if name == "exists":
        return lambda scope: any(result for _, result in each(scope))
    if name == "map":
        return lambda scope: [result for _, result in each(scope)]
    return lambda scope: [item for item, result in each(scope) if result]
