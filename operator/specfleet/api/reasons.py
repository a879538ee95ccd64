"""Reasons of decisions, phases and conditions that more than one part of the operator acts on."""

ABORTED = "CommandAbort"
"""What a person's abort led to: they know, and do not want the next attempt to start by itself."""
OPERATOR_ERROR = "OperatorError"
"""A reconcile fails again and again: what serves goes on serving, and nobody looks after it."""
UNREADABLE = "Unreadable"
"""The object does not fit this operator's API, so that nothing at all is done about it; its children stay."""
