"""Defines the content blocks of a conversation as they come, and turns them into Responses parts.

Unknown fields are ignored: `cache_control` and `citations` mean nothing to our engines, and newer
clients send more. A block of an unknown type is refused, since its content would be lost.
"""

from typing import Annotated, Any, Literal

import msgspec

from gateway.wire.errors import ProtocolError

Json = dict[str, Any]


class _Tagged(msgspec.Struct, frozen=True, tag_field="type"):
    """Is told apart from others by its `type`."""


class Base64Source(_Tagged, frozen=True, tag="base64"):
    """Holds bytes of an image or a PDF."""

    media_type: str
    data: str


class UrlSource(_Tagged, frozen=True, tag="url"):
    """Names an image or a PDF on the web."""

    url: Annotated[str, msgspec.Meta(min_length=1)]


class TextSource(_Tagged, frozen=True, tag="text"):
    """Holds a document that is plain text."""

    data: str


class FileSource(_Tagged, frozen=True, tag="file"):
    """Names a file that was uploaded, which none here was."""

    file_id: str


class TextBlock(_Tagged, frozen=True, tag="text"):
    """Holds text."""

    text: str


class ImageBlock(_Tagged, frozen=True, tag="image"):
    """Holds an image."""

    source: Base64Source | UrlSource | FileSource


class ContentSource(_Tagged, frozen=True, tag="content"):
    """Holds a document in pieces."""

    content: str | list[TextBlock | ImageBlock]


class DocumentBlock(_Tagged, frozen=True, tag="document"):
    """Holds a document."""

    source: Base64Source | UrlSource | TextSource | ContentSource | FileSource
    title: str | None = None
    context: str | None = None


class SearchResultBlock(_Tagged, frozen=True, tag="search_result"):
    """Holds what a search of the client found."""

    source: str
    title: str
    content: list[TextBlock]


class ToolReferenceBlock(_Tagged, frozen=True, tag="tool_reference"):
    """Names a tool that was deferred and may be called from here on."""

    tool_name: str


class ToolUseBlock(_Tagged, frozen=True, tag="tool_use"):
    """Is a call of one of the client's tools; `input` is a JSON object."""

    id: str
    name: str
    input: msgspec.Raw


ResultBlock = TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock


class ToolResultBlock(_Tagged, frozen=True, tag="tool_result"):
    """Holds what a tool returned."""

    tool_use_id: str
    content: str | list[ResultBlock] | None = None
    is_error: bool | None = None


class ThinkingBlock(_Tagged, frozen=True, tag="thinking"):
    """Holds what a model thought, with an opaque signature."""

    thinking: str
    signature: str = ""


class RedactedThinkingBlock(_Tagged, frozen=True, tag="redacted_thinking"):
    """Holds what another service encrypted, which nobody here can read."""

    data: str


class ChangedTool(msgspec.Struct, frozen=True):
    """Names a tool, or defines one."""

    name: str = ""
    definition: msgspec.Raw = msgspec.Raw(b"null")


class ToolAdditionBlock(_Tagged, frozen=True, tag="tool_addition"):
    """Offers a tool from here on."""

    tool: ChangedTool


class ToolRemovalBlock(_Tagged, frozen=True, tag="tool_removal"):
    """Withdraws a tool from here on."""

    tool: ChangedTool


Block = (
    TextBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | ToolReferenceBlock
    | ToolUseBlock
    | ToolResultBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolAdditionBlock
    | ToolRemovalBlock
)


class MessageParam(msgspec.Struct, frozen=True):
    """Is one message of the conversation; `system` in the middle of it is Claude Code's."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]

    def blocks(self) -> list[Block]:
        """Returns the content as blocks, the empty texts left out."""
        blocks = [TextBlock(self.content)] if isinstance(self.content, str) else self.content
        return [block for block in blocks if not isinstance(block, TextBlock) or block.text]


def part_of(block: Block, json_path: str) -> Json:
    """Turns a block of a user's message or a tool's result into a part.

    Raises `ProtocolError` for one that cannot stand there.
    """
    match block:
        case TextBlock(text):
            return text_part(text)
        case ImageBlock(source):
            url = source.url if isinstance(source, UrlSource) else _data_url(source, json_path)
            return {"type": "input_image", "image_url": url}
        case DocumentBlock():
            return _document_part(block, json_path)
        case SearchResultBlock(source, title, content):
            texts = "\n".join(piece.text for piece in content)
            return text_part(f"{title}\n{source}\n\n{texts}")
        case ToolReferenceBlock(tool_name):
            return text_part(f"Tool now available: {tool_name}")
    kind = block.__struct_config__.tag
    message = f"{json_path}: a block of type '{kind}' cannot stand here."
    raise ProtocolError("invalid_value", message)


def text_part(text: str) -> Json:
    """Makes a part of a text."""
    return {"type": "input_text", "text": text}


def _document_part(block: DocumentBlock, json_path: str) -> Json:
    source = block.source
    if isinstance(source, UrlSource):
        return {"type": "input_file", "file_url": source.url}
    if isinstance(source, TextSource | ContentSource):
        text = source.data if isinstance(source, TextSource) else _content_text(source, json_path)
        return text_part("\n\n".join(filter(None, (block.title, block.context, text))))
    data = _data_url(source, json_path)
    return {"type": "input_file", "filename": block.title or "document.pdf", "file_data": data}


def _content_text(source: ContentSource, json_path: str) -> str:
    if isinstance(source.content, str):
        return source.content
    texts = [piece.text for piece in source.content if isinstance(piece, TextBlock)]
    if len(texts) < len(source.content):
        where = f"{json_path}.source.content"
        message = f"{where}: only text is taken in a document. Send images as blocks of their own."
        raise ProtocolError("unsupported_parameter", message)
    return "\n".join(texts)


def _data_url(source: Base64Source | FileSource, json_path: str) -> str:
    if isinstance(source, FileSource):
        message = (
            f"{json_path}.source.type: expected 'base64' or 'url', got 'file'. Files are not kept "
            "here: send the content."
        )
        raise ProtocolError("unsupported_parameter", message)
    return f"data:{source.media_type};base64,{source.data}"
