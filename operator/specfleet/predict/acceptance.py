"""Accepted length from acceptance: tokens that one verification step yields."""

from collections.abc import Sequence


def accepted_length(conditional_rates: Sequence[float]) -> float:
    """Tokens per step, bonus token included: 1 + sum over i of the product of c_1 .. c_i.

    conditional_rates[i]: share of drafts accepted at position i among those accepted at i - 1 (0..1). For one constant
    rate a this is (1 - a^(k+1)) / (1 - a) (Leviathan et al., 2023). Raises ValueError outside 0..1.
    """
    length, alive = 1.0, 1.0
    for rate in conditional_rates:
        if not 0 <= rate <= 1:
            raise ValueError(f"an acceptance rate lies between 0 and 1, not {rate}")
        alive *= rate
        length += alive
    return length


def conditional_rates(accepted_per_position: Sequence[int], drafts: int) -> list[float]:
    """Conditional rates from the engine's counters (accepted tokens per position, number of drafts). Empty: no drafts.

    A position that was never reached ends the list: there is no rate to know.
    """
    rates: list[float] = []
    before = drafts
    for accepted in accepted_per_position:
        if before <= 0:
            break
        rates.append(min(1.0, accepted / before))
        before = accepted
    return rates


def extended(rates: Sequence[float], depth: int) -> list[float]:
    """Rates for another depth: cut, or continued with the mean of what is known (good for EAGLE, poor for n-gram)."""
    if depth <= len(rates):
        return list(rates[:depth])
    mean = sum(rates) / len(rates) if rates else 0.0
    return [*rates, *[mean] * (depth - len(rates))]
