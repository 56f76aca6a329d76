"""Words: lists of them, and when two count as the same."""


def word_set(text: str) -> frozenset[str]:
    """The words of a text as a set; lists of words read best as text."""
    return frozenset(text.split())


def fold(word: str) -> str:
    """A word without case, spelling variant or plural."""
    word = word.lower().replace("colour", "color").replace("favourite", "favorite")
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
