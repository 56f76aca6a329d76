"""Speculative decoding: what a draft gains, as far as time is concerned."""

import msgspec


class Speculation(msgspec.Struct, frozen=True):
    """A draft proposes tokens, one pass of the model checks them all.

    Engines advance every sequence by one token per step; a draft shows as steps that are shorter
    by the tokens a pass yields, on average.
    """

    draft_tokens: int  # proposed per pass
    acceptance: float  # chance that a proposed token is right, given that all before it were
    draft_cost: float = 0.0  # time to propose one token, as a fraction of a pass

    @property
    def tokens_per_pass(self) -> float:
        """Expected tokens one pass yields: the accepted ones and the pass's own."""
        if self.acceptance >= 1.0:
            return self.draft_tokens + 1.0
        kept = self.acceptance ** (self.draft_tokens + 1)
        return float((1.0 - kept) / (1.0 - self.acceptance))


NO_SPECULATION = Speculation(draft_tokens=0, acceptance=0.0)
