"""Computes what a draft gains in speculative decoding, in time alone."""

import math

import msgspec

MAX_DRAFT_TOKENS = 64  # more than any published draft; keeps `acceptance ** n` meaningful


class Speculation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Describes a draft that proposes tokens, which one pass of the model checks together.

    Engines advance every sequence by one token per step, so a draft makes steps shorter: by the
    tokens that a pass yields on average.
    """

    draft_tokens: int  # proposed per pass
    acceptance: float  # chance that a proposed token is right, given that all before it were
    draft_cost: float = 0.0  # time to propose one token, as a fraction of a pass

    def __post_init__(self) -> None:
        """Raises ValueError for a negative length or cost, or an acceptance of no probability."""
        if not 0 <= self.draft_tokens <= MAX_DRAFT_TOKENS:
            raise ValueError(f"draft_tokens {self.draft_tokens}: expected 0 to {MAX_DRAFT_TOKENS}")
        if not 0.0 <= self.acceptance <= 1.0:
            raise ValueError(f"acceptance {self.acceptance:g}: expected a probability, 0 to 1")
        if not 0.0 <= self.draft_cost < math.inf:
            raise ValueError(f"draft_cost {self.draft_cost:g}: expected 0 or more, of a pass")

    @property
    def tokens_per_pass(self) -> float:
        """Returns the expected tokens of a pass: the accepted ones and the pass's own."""
        if self.acceptance >= 1.0:
            return self.draft_tokens + 1.0
        kept = self.acceptance ** (self.draft_tokens + 1)
        return float((1.0 - kept) / (1.0 - self.acceptance))


NO_SPECULATION = Speculation(draft_tokens=0, acceptance=0.0)


def asked_speculation(
    draft_tokens: int | None, acceptance: float | None, draft_cost: float | None
) -> Speculation | None:
    """Makes the draft that a command line's options describe, if any.

    Raises ValueError if one option lacks another, or is out of range.
    """
    if draft_tokens is None:
        if acceptance is not None or draft_cost is not None:
            raise ValueError("--acceptance and --draft-cost need --draft-tokens")
        return None
    if draft_tokens and acceptance is None:
        raise ValueError("--draft-tokens needs --acceptance")
    return Speculation(draft_tokens, acceptance or 0.0, draft_cost or 0.0)
