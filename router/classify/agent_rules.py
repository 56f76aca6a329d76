"""Drops from instructions the sentences that only bound what an agent may do.

Agents come with kilobytes of general rules: "never commit secrets", "commands run in a sandbox",
"avoid SQL injection". They name security and are no task about it, so an everyday ask would count
as security-sensitive in every such agent. What an agent is for ("you review code for path
traversal") is said plainly, and stays.
"""

import re

MAX_HEAD_CHARS, MAX_TAIL_CHARS = 6_144, 2_048  # of longer instructions, that are looked at
MIN_WORDS_BEFORE = 3  # of a sentence, for what it says before its rule to stay

# A line break between words is none of a sentence where the line is so long that it was wrapped.
_WRAPPED = re.compile(r"(?<=[^\n]{60})\n(?=\w)")
_SENTENCE = re.compile(
    r"[^\n.!?;。！？；]*+(?:[.!?;](?!\s)[^\n.!?;。！？；]*+)*+(?:[.!?;。！？；]|\n|$)\s*"
)
# All of such a sentence is a rule.
_RULE = re.compile(
    r"\b(?:is|are) (?:not )?(?:allowed|permitted)\b"
    r"|^(?:\W*\w+:)?\W*(?:allow|treat|warn|refuse|decline)\b"
    r"|\brefuse\W*$|\bonly\W*$|\bbe careful\b|\bbest (?:\w+ )?practices?\b"
    r"|\bsandbox(?!.{0,40}escap)|sandbox_|approval_|\bapproved by\b"
    r"|\bescalated privileges\b|permissions instructions"
    r"|\b(?:requir|request|need|without|ask|seek|explicit|prior)\w*(?: \w+){0,2} approval\b"
    r"|\bassist\w* with authori[sz]ed\b"
    r"|\buntrusted (?:data|values?|content|input)\b|\bdoes not (?:itself )?authori[sz]e\b"
    r"|\brequires? (?:clear|explicit|prior|written) authori[sz]ation\b"
    r"|^[-*] /?[a-z0-9]+(?:-[a-z0-9]+)+: "  # one of the skills that it lists, such as "code-review"
    r"|\b(?:erlaubt|gestattet|verboten|autorisé|interdit|permitid[oa]|prohibid[oa]|proibid[oa])\b"
    r"|しない|禁止|不要|绝不|絕不|切勿|避免|不得",
    re.IGNORECASE,
)
# From here on a sentence is a rule.
_FROM_HERE = re.compile(
    r"(?:^|[^\w\s]\s*|\b(?:and|but|you|must|should|please|also)\s)never\b"
    r"|\b(?:do not|don['’]t|(?:you|we) (?:must|should|may|can) ?not)\b|(?<!\bto )\bavoid\b"
    r"|\b(?:niemals|keine[nr]?|vermeide|jamais|évite[rz]?|nunca|evit[ae]r?)\b",
    re.IGNORECASE,
)


def without_rules(text: str) -> str:
    """Returns instructions without their general rules; of long ones head and tail."""
    if len(text) > MAX_HEAD_CHARS + MAX_TAIL_CHARS:
        text = f"{text[:MAX_HEAD_CHARS]}\n{text[-MAX_TAIL_CHARS:]}"
    text = _WRAPPED.sub(" ", text)
    return "".join([_plain(found.group()) for found in _SENTENCE.finditer(text)])


def _plain(sentence: str) -> str:
    if _RULE.search(sentence):
        return ""
    rule = _FROM_HERE.search(sentence)
    if rule is None:
        return sentence
    before = sentence[: rule.start()]
    return f"{before}. " if len(before.split()) >= MIN_WORDS_BEFORE else ""
