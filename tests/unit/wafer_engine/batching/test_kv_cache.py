"""Tests the cache's books: blocks are neither lost nor made, and what is in use stays."""

import random

import pytest

from wafer_engine.batching.kv_cache import KeptPrefix, KvCache


def entries(name: str, *sizes: int) -> tuple[tuple[int, int], ...]:
    """Returns prefix entries of a made-up prompt: (hash, tokens so far)."""
    return tuple((hash((name, size)), size) for size in sizes)


def keep(cache: KvCache, prefix: tuple[tuple[int, int], ...]) -> KeptPrefix | None:
    """Returns what a sequence with this prompt leaves in the cache."""
    kept = cache.find(reversed(prefix))
    num_tokens = prefix[-1][1]
    cache.pin(kept)
    cache.take(cache.blocks(num_tokens, kept))
    kept = cache.keep(kept, prefix, num_tokens)
    cache.release(cache.blocks(num_tokens, kept))
    cache.unpin(kept)
    return kept


def test_only_full_blocks_are_shared() -> None:
    cache = KvCache(160, 16)
    kept = keep(cache, entries("a", 40))
    assert cache.reusable_tokens(kept) == 32
    assert (cache.kept_blocks, cache.live_blocks) == (2, 0)
    assert cache.blocks(50, kept) == 2  # 50 tokens need 4 blocks, 2 are there


def test_the_longest_prefix_is_found() -> None:
    cache = KvCache(1600, 16)
    keep(cache, entries("a", 32, 64))
    found = cache.find(reversed(entries("a", 32, 64, 96)))
    assert found is not None
    assert found.num_tokens == 64
    assert cache.find(reversed(entries("b", 32))) is None


def test_the_least_recently_used_goes_first_and_parents_last() -> None:
    cache = KvCache(160, 16)
    keep(cache, entries("old", 32, 64))
    keep(cache, entries("new", 32))
    cache.take(6)  # 4 are free, so 2 must go: the older prompt's end
    assert cache.find(reversed(entries("old", 32, 64))) is cache.find(entries("old", 32))
    assert cache.find(entries("old", 64)[:1]) is None
    assert cache.find(entries("new", 32)) is not None


def test_a_pinned_prefix_and_what_it_rests_on_stay() -> None:
    cache = KvCache(160, 16)
    kept = keep(cache, entries("a", 32, 64))
    cache.pin(kept)
    assert cache.available_blocks == 6
    cache.take(6)
    with pytest.raises(AssertionError, match="asks before it takes"):
        cache.take(1)
    cache.release(6)
    cache.unpin(kept)
    assert cache.available_blocks == 10


def test_two_who_compute_the_same_prompt_keep_it_once() -> None:
    cache = KvCache(1600, 16)
    prompt = entries("a", 64)
    for _ in range(2):
        cache.take(4)
    first = cache.keep(None, prompt, 64)
    second = cache.keep(None, prompt, 64)
    assert first is second
    assert (cache.live_blocks, cache.kept_blocks) == (0, 4)
    assert cache.pinned_blocks == 4
    cache.unpin(first)
    assert cache.pinned_blocks == 4
    cache.unpin(second)
    assert cache.pinned_blocks == 0


def test_the_number_of_entries_is_bounded() -> None:
    cache = KvCache(16_000, 16, max_kept=3)
    for name in "abcdef":
        keep(cache, entries(name, 32))
    left = [name for name in "abcdef" if cache.find(entries(name, 32)) is not None]
    assert left == ["d", "e", "f"]


def test_entries_that_cannot_be_kept_are_freed() -> None:
    cache = KvCache(1600, 16, max_kept=1)
    cache.take(4)
    kept = cache.keep(None, entries("a", 32, 64), 64)
    assert kept is not None
    assert kept.num_tokens == 32  # the second entry found no room, as the first is in use
    assert (cache.live_blocks, cache.kept_blocks) == (2, 2)


@pytest.mark.parametrize("seed", range(20))
def test_random_use_keeps_the_books(seed: int) -> None:
    chance = random.Random(seed)
    cache = KvCache(chance.randint(20, 60) * 16, 16, max_kept=chance.choice([4, 1000]))
    live: list[tuple[KeptPrefix | None, tuple[tuple[int, int], ...], int]] = []
    for _ in range(400):
        if live and chance.random() < 0.5:
            kept, prefix, num_tokens = live.pop(chance.randrange(len(live)))
            if chance.random() < 0.7:
                kept = cache.keep(kept, prefix, num_tokens)
            cache.release(cache.blocks(num_tokens, kept))
            cache.unpin(kept)
        else:
            sizes = sorted(chance.sample(range(1, 300), chance.randint(1, 4)))
            prefix = entries(chance.choice("ab"), *sizes)
            num_tokens = sizes[-1] + chance.randint(0, 20)
            kept = cache.find(reversed(prefix))
            if cache.blocks(num_tokens, kept) > cache.available_if_pinned(kept):
                continue
            cache.pin(kept)
            cache.take(cache.blocks(num_tokens, kept))
            live.append((kept, prefix, num_tokens))
        assert cache.live_blocks <= cache.pinned_blocks, f"seed {seed}"
        assert cache.pinned_blocks <= cache.live_blocks + cache.kept_blocks, f"seed {seed}"
        assert cache.live_blocks >= 0, f"seed {seed}"
        assert cache.live_blocks + cache.kept_blocks <= cache.num_blocks, f"seed {seed}"
    for kept, _, num_tokens in live:
        cache.release(cache.blocks(num_tokens, kept))
        cache.unpin(kept)
    assert cache.live_blocks == 0, f"seed {seed}"
    assert cache.pinned_blocks == 0, f"seed {seed}"
