"""The content of a compaction item: text folded small, and unfolded where it comes back as input.

Opaque to clients, not secret: it is their own conversation, compressed.
"""

import base64
import zlib

from backends.contract import Compaction, Message, TextPart

MAX_UNFOLDED_BYTES = 1 << 20  # a small item must not unfold into a huge one

_PREFIX = "lw1."  # of content that we folded, against other servers'


def fold(text: str) -> str:
    """Text as a compaction's content."""
    return _PREFIX + base64.b64encode(zlib.compress(text.encode())).decode()


def unfold(item: Compaction) -> Message | Compaction:
    """A compaction of ours as the message it stands for; another server's stays as it is."""
    if not item.encrypted_content.startswith(_PREFIX):
        return item
    try:
        packed = base64.b64decode(item.encrypted_content.removeprefix(_PREFIX), validate=True)
        text = zlib.decompressobj().decompress(packed, MAX_UNFOLDED_BYTES).decode("utf-8", "ignore")
    except (ValueError, zlib.error):  # not base64, not ASCII, or not ours after all
        return item
    return Message("developer", (TextPart(f"Earlier in this conversation:\n{text}"),), id=item.id)
