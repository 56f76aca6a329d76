"""Counts the KV blocks of live sequences, and of the prefixes kept for later ones.

Every block is free, a live sequence's own, or a kept prefix's. Kept prefixes form a tree: each
holds the full blocks between its parent's end and its own, so a conversation's turns share what
they have in common. A sequence pins the longest kept prefix of its prompt and owns the blocks
behind it. When room is needed, unpinned prefixes are evicted, least recently used first; a parent
always goes after its children, as it is released after them.
"""

from collections import OrderedDict
from collections.abc import Iterable


class KeptPrefix:
    """Is a prompt prefix whose KV is in the cache."""

    __slots__ = ("full_blocks", "hash", "num_blocks", "num_tokens", "parent", "pins")

    def __init__(
        self, prefix_hash: int, num_tokens: int, full_blocks: int, parent: "KeptPrefix | None"
    ) -> None:
        self.hash = prefix_hash
        self.num_tokens = num_tokens  # from the prompt's start
        self.full_blocks = full_blocks  # of these tokens; the rest is in no block of its own
        # These are its own, behind the parent's.
        self.num_blocks = full_blocks if parent is None else full_blocks - parent.full_blocks
        self.parent = parent
        self.pins = 1  # by live sequences, and by pinned children


class KvCache:
    """Counts the blocks of each owner. Blocks have no identity here: only counts cost time.

    At all times `live_blocks + kept_blocks <= num_blocks`.
    """

    def __init__(self, capacity_tokens: int, block_tokens: int, max_kept: int = 65_536) -> None:
        self.block_tokens = block_tokens
        self.num_blocks = capacity_tokens // block_tokens
        self.live_blocks = 0
        self.kept_blocks = 0
        # What a sequence could have, once everything evictable is evicted: neither live nor pinned.
        self.available_blocks = self.num_blocks
        self._max_kept = max_kept  # entries; bounds the memory this bookkeeping takes
        self._kept: dict[int, KeptPrefix] = {}
        self._evictable: OrderedDict[int, KeptPrefix] = OrderedDict()  # least recently used first

    @property
    def pinned_blocks(self) -> int:
        """Returns the blocks that live sequences own or pin."""
        return self.num_blocks - self.available_blocks

    def blocks(self, num_tokens: int, kept: KeptPrefix | None) -> int:
        """Returns the blocks of its own that a sequence needs behind the prefix."""
        num_blocks = -(-num_tokens // self.block_tokens)
        return num_blocks if kept is None else num_blocks - kept.full_blocks

    def reusable_tokens(self, kept: KeptPrefix | None) -> int:
        """Returns the tokens of the prefix that need not be computed: those in full blocks."""
        return 0 if kept is None else kept.full_blocks * self.block_tokens

    def take(self, num_blocks: int) -> None:
        """Allocates blocks to live sequences, evicting kept prefixes as needed."""
        if not num_blocks:
            return
        free_blocks = self.num_blocks - self.live_blocks - self.kept_blocks
        if num_blocks > free_blocks:
            assert num_blocks <= self.available_blocks, "the scheduler asks before it takes"
            while num_blocks > free_blocks:
                free_blocks += self._evict_one()
        self.live_blocks += num_blocks
        self.available_blocks -= num_blocks

    def release(self, num_blocks: int) -> None:
        self.live_blocks -= num_blocks
        self.available_blocks += num_blocks

    def find(self, prefix: Iterable[tuple[int, int]]) -> KeptPrefix | None:
        """Finds the kept prefix of the first entry that has one (pass the longest first)."""
        for prefix_hash, _ in prefix:
            kept = self._kept.get(prefix_hash)
            if kept is not None:
                return kept
        return None

    def available_if_pinned(self, kept: KeptPrefix | None) -> int:
        """Returns the blocks that a sequence could have beside this prefix."""
        num_blocks = self.available_blocks
        while kept is not None and kept.pins == 0:
            num_blocks -= kept.num_blocks
            kept = kept.parent
        return num_blocks

    def pin(self, kept: KeptPrefix | None) -> None:
        """Pins a prefix: it and its parents stay until unpinned."""
        while kept is not None:
            kept.pins += 1
            if kept.pins > 1:
                return
            del self._evictable[kept.hash]
            self.available_blocks -= kept.num_blocks
            kept = kept.parent

    def unpin(self, kept: KeptPrefix | None) -> None:
        """Unpins a prefix; it stays for later sequences until room is needed."""
        while kept is not None:
            kept.pins -= 1
            if kept.pins > 0:
                return
            self._evictable[kept.hash] = kept
            self.available_blocks += kept.num_blocks
            kept = kept.parent

    def keep(
        self, kept: KeptPrefix | None, entries: Iterable[tuple[int, int]], num_tokens: int
    ) -> KeptPrefix | None:
        """Turns a sequence's own blocks, as far as entries cover them, into kept prefixes.

        The sequence's pin moves from `kept` to the returned prefix. Its entries come shortest
        first; those within `kept` are skipped. They are cut to `num_tokens`, whose KV exists.
        """
        shared = 0 if kept is None else kept.full_blocks
        for prefix_hash, entry_tokens in entries:
            if kept is not None and entry_tokens <= kept.num_tokens:
                continue
            known = self._kept.get(prefix_hash)
            if known is not None and known is kept:  # it was kept in part: a warm-up was cut short
                if kept.pins == 1:  # another sequence that pins it owns the blocks behind it
                    self._grow(kept, min(entry_tokens, num_tokens))
                continue
            if known is not None:  # another sequence came first: ours is a duplicate and is freed
                self.pin(known)
                self.unpin(kept)
                kept = known
                continue
            if len(self._kept) >= self._max_kept:
                if not self._evictable:
                    break
                self._evict_one()
            kept = self._add(
                prefix_hash, entry_tokens if entry_tokens < num_tokens else num_tokens, kept
            )
        if kept is not None:
            self.release(kept.full_blocks - shared)
        return kept

    def _add(self, prefix_hash: int, num_tokens: int, parent: KeptPrefix | None) -> KeptPrefix:
        # The sequence's pin on the parent becomes the pinned child's, so no count changes there.
        kept = KeptPrefix(prefix_hash, num_tokens, num_tokens // self.block_tokens, parent)
        self._kept[prefix_hash] = kept
        self.kept_blocks += kept.num_blocks
        self.available_blocks -= kept.num_blocks
        return kept

    def _grow(self, kept: KeptPrefix, num_tokens: int) -> None:
        more = num_tokens // self.block_tokens - kept.full_blocks
        self.kept_blocks += more
        self.available_blocks -= more
        kept.num_blocks += more
        kept.full_blocks += more
        kept.num_tokens = num_tokens

    def _evict_one(self) -> int:
        """Evicts the least recently used prefix; returns the blocks that it had."""
        _, kept = self._evictable.popitem(last=False)
        del self._kept[kept.hash]
        self.kept_blocks -= kept.num_blocks
        return kept.num_blocks
