"""Removes courtesies at both ends of a text: "Could you please" before it, thanks behind it.

They go before all other framing, so that a text with and without them is the same to what follows.
What is asked behind a "please" is the task, and stays.
"""

import re

from router.classify.words import all_words_of

# Thanks that stand apart, and what may follow them.
_THANKS = re.compile(
    r"[,.!?()\n-][ \n]*((?:many thanks|thanks(?! to\b)|thank you|thx|tia|cheers"
    r"|(?:kind |best )?regards|merci(?! de (?!votre|ton\b))|vielen dank|danke|(?:muchas )?gracias"
    r"|obrigad[oa])\b[\w\s,.!?'\u2019]{0,40})$"
    # Behind a task without a full stop; but not the last word of "write a card that says thanks".
    r"|(?<!:)(?<! of)(?<! with)(?<!\bsay)(?<! says)(?<! to)(?<! the)(?<! a) ("
    r"(?:many )?(?:thanks|thank you|thx|cheers|tia)(?: in advance| a lot| so much)?"
    r"[ .!]*(?:, ?\w+[ .!]*)?)$",
    re.IGNORECASE,
)
_THANKS_WORDS = frozenset(
    b"thanks thank thx tia cheers regards merci dank danke gracias obrigado obrigada".split()
)
_THANKS_CHARS = 64
_BEFORE_THANKS = " \t\n,.(-"
_PLEASE = (b"please", b"pls", b"plz")
_BEHIND_PLEASE = " \n.!?"
# "Yeah, that's it": what is said behind a task that is dictated, or typed as one speaks.
_SAID = re.compile(
    r"[\s,.!\u2026]*\b(?:(?:yeah|yep|ok|okay|so|and|um+|i (?:think|guess))[\s,]+)*"
    r"that(?:['\u2019]?s| is)(?: basically| really| about| pretty much)? (?:it|all)"
    r"(?: for now| i guess| i think)?[ .!]*$",
    re.IGNORECASE,
)
_SAID_ENDS = (b"it", b"all", b"now", b"guess", b"think")
# What templates of agents and tests end with, for a model to go on.
_CUE = re.compile(
    r"(?:\[/INST\]|</[\w-]+>|\n\s*(?:A|Answer|Response|Output|Solution):"
    r"|(?:\s*:[a-z][a-z_]{1,23}:)+)$"  # or pictures of a chat: ":pray:"
)
_CUE_ENDS = (":", ">", "]")
_POLITE = re.compile(
    r"(?:\((?:[a-z]+ ){1,5}[a-z]+\)\s+"  # "(transcribed from voice)"
    r"|(?:hi|hello|hey|okay|ok|um+|uh+m?|erm|yeah|alright)\b[\s,.!\u2026]+"
    r"|how(?:['\u2019]s| are| is) (?:you|it|things|everything)\b[^.?!\n]{0,24}[?!.]\s+"
    r"|here['\u2019]?s (?:the thing|the deal)[,:]\s+"
    r"|(?:so|well|right)(?:, |\s+(?=(?:um+|uh|erm|yeah)\b))"
    r"|(?:and |so |ok |now )?(?:please|pls|plz|kindly|bitte|por favor|veuillez)\b[\s,]*"
    r"|(?:could|can|would|will) you\b(?: (?:please|kindly|help(?: me)?|maybe|quickly))*(?: to)?\s+"
    r"|(?:i|we)(?:'d| would| really)? (?:want|need|like|love)(?: for)? you to\s+"
    r"|(?:i|we) (?:want|need|have|would like|'d like) to\s+"
    r"|(?:please )?(?:help|assist) (?:me|us)(?: to| with| in)?\s+"
    r"|(?:your|the|my) (?:task|job|goal|assignment) is to\s+"
    r"|(?:go ahead and|let's|let us)\s+"
    r"|(?:my|our) (?:boss|manager|team|client|customer) (?:wants|asked|needs) (?:me|us|you) to\s+"
    r"|(?:kannst|könntest|können|könnten) (?:du|sie)(?: mir)?(?: bitte)?\s+"
    r"|(?:ich|wir) (?:möchte|brauche|möchten|brauchen)\s+"
    r"|(?:peux-tu|pouvez-vous|pourriez-vous|pourrais-tu|s'il te plaît|s'il vous plaît)[\s,]+"
    r"|(?:puedes|podrías|puede|podría|você pode|você poderia|pode|poderia)\s+"
    r"|请(?:你|您)?(?:帮我|帮忙)?|麻烦(?:你|您)?"
    # Whom it is for, and marks of templates and of commands.
    r"|@[\w/-]{1,40}[,:]?\s+|q:\s+|\[inst\]\s*|/[a-z-]{1,24}(?: [a-z_]{1,24}=\S{1,40})+\s+)+",
    re.IGNORECASE,
)
MAX_POLITE_CHARS = 80
_POLITE_START_CHARS = 10
_POLITE_STARTS = (
    *("hi", "hello", "hey", "please", "pls", "plz", "kindly", "bitte", "por favor", "veuillez"),
    *("@", "q:", "[inst]", "/"),
    *("(", "okay", "ok", "um", "uh", "erm", "yeah", "alright", "so,", "well,", "right,"),
    *("how are you", "how's ", "how is it", "here's the", "heres the"),
    *("and ", "so ", "now ", "could", "can ", "would", "will ", "i ", "i'", "we", "help"),
    *("assist", "your ", "the ", "my ", "our ", "go ", "let", "kann", "könn", "ich ", "wir "),
    *("peux", "pouvez", "pourr", "s'il", "pued", "podr", "você", "pode", "请", "麻烦"),
)


def without_thanks(text: str) -> str:
    """Removes thanks behind a text, and a mark there that asks a model for its answer."""
    text = text.rstrip()
    start = max(0, len(text) - _THANKS_CHARS)
    if text.endswith(_CUE_ENDS):
        cue = _CUE.search(text, start)
        return (text[: cue.start()].rstrip() or text) if cue is not None else text
    tail = text[start:]
    words = all_words_of(tail.encode("utf-8", "replace"))
    if words and words[-1] in _SAID_ENDS:
        said = _SAID.search(text, start)
        return (text[: said.start()].rstrip(_BEFORE_THANKS) or text) if said is not None else text
    if not _THANKS_WORDS.isdisjoint(words):
        thanks = _THANKS.search(text, start)
        if thanks is not None:
            return text[: thanks.start(thanks.lastindex or 0)].rstrip(_BEFORE_THANKS) or text
    if words and words[-1] in _PLEASE:
        bare = text.rstrip(_BEHIND_PLEASE)[: -len(words[-1])].rstrip(_BEFORE_THANKS)
        return bare or text
    return text


def without_please(text: str) -> str:
    """Removes a polite beginning of a request, and the question mark that belongs to it."""
    if not text[:_POLITE_START_CHARS].lower().startswith(_POLITE_STARTS):
        return text
    polite = _POLITE.match(text, 0, MAX_POLITE_CHARS)
    if polite is None or polite.end() == len(text):
        return text
    rest = text[polite.end() :]
    if rest.endswith("?") and " you" in polite[0].lower() and "?" not in rest.rstrip("?"):
        return rest[:-1]
    return rest
