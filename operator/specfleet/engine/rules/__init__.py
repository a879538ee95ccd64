"""The rule table: what each vLLM version refuses or silently does wrong, checked before a GPU is spent."""

from specfleet.engine.rules.catalogue import PROPOSER_RULES, SPEC_RULES, check, check_proposer, check_shared

__all__ = ["PROPOSER_RULES", "SPEC_RULES", "check", "check_proposer", "check_shared"]
