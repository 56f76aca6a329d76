"""Tests that what is read of an object is computed once for it, and anew for a changed copy."""

import msgspec

from router.read_once import ReadOnce


class Asked(msgspec.Struct, frozen=True, dict=True):
    text: str

    @ReadOnce
    def words(self) -> list[str]:
        """Returns the words of the text."""
        return self.text.split()


def test_it_is_computed_once_for_each_object() -> None:
    asked = Asked("two words")
    assert asked.words is asked.words
    assert asked.words == ["two", "words"]
    assert msgspec.structs.replace(asked, text="three of them").words == ["three", "of", "them"]
    assert asked == Asked("two words"), "what was computed is no field"
    assert msgspec.json.encode(asked) == b'{"text":"two words"}'
