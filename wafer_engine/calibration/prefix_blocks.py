"""Reads the blocks that prompts of a public trace share, as the prefixes that caches know.

Mooncake's traces name the blocks of 512 tokens of each prompt (`hash_ids`). An id stands for a
block and all before it.
"""

BLOCK_TOKENS = 512  # of Mooncake's hash ids
MAX_IDS = 4_096  # of one prompt: two million tokens

Prefix = tuple[tuple[int, int], ...]  # (hash of the prompt so far, its tokens), shortest first


def prefix_of(hash_ids: str, prompt_tokens: int) -> Prefix:
    """Reads ids like `0-78 151 160-197`; the last block ends with the prompt.

    Raises ValueError for other texts.
    """
    ids: list[int] = []
    for part in hash_ids.replace(";", " ").split():
        first, dash, last = part.partition("-")
        try:
            least, most = int(first), int(last if dash else first)
        except ValueError:
            raise ValueError(f"hash_ids has {part!r}: expected ids like `0-78 151`") from None
        if most - least >= MAX_IDS or len(ids) + most - least >= MAX_IDS:
            raise ValueError(f"hash_ids has more than {MAX_IDS} blocks")
        ids += range(least, most + 1)
    return tuple(
        (each, min(prompt_tokens, (number + 1) * BLOCK_TOKENS))
        for number, each in enumerate(ids)
        if number * BLOCK_TOKENS < prompt_tokens
    )
