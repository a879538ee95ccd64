"""Credentials in text that goes further than the object that it comes from: into status, Events and alerts."""

import re

_CREDENTIALS = (
    (re.compile(r"(://)[^/\s@]+@"), r"\1***@"),
    (re.compile(r"\bhf_[A-Za-z0-9]{8,}"), "hf_***"),
    (re.compile(r"(?i)\b(bearer\s+)[^\s,]+"), r"\1***"),
    (
        re.compile(r"(?i)((?:api[_-]?key|token|password|secret)s?['\"]?\s*[=:]\s*)(?:'[^']*'|\"[^\"]*\"|[^\s,'\"]+)"),
        r"\1***",
    ),
)


def redacted(text: str) -> str:
    """The text without what looks like a credential."""
    for pattern, shown in _CREDENTIALS:
        text = pattern.sub(shown, text)
    return text
