"""Splits a text into words: runs of letters and digits; in Chinese and Japanese, characters."""

import re

# Ignored, so that politeness cannot change a decision.
COURTESIES = frozenset(
    b"please pls plz kindly thanks thank thx cheers hi hello hey you could would can advance "
    b"appreciate appreciated bitte danke merci gracias obrigado obrigada favor".split()
)

# A paragraph that begins like this weighs more than the rest of a long text.
OPENERS = frozenset(
    b"add adjust allow analyse analyze answer append apply are audit benchmark bring build bump "
    b"calculate center change check clean compare complete compute convert copy correct count "
    b"create debug define delete derive describe design develop disable do document does draft "
    b"drop enable escape evaluate examine explain export extend extract figure find fix format "
    b"generate get give handle help hide how i implement import improve increase in inline insert "
    b"install integrate introduce investigate is let list log lower make mark merge migrate mock "
    b"modify move now optimise optimize parse patch pin plan port prevent print propose prove "
    b"provide put raise read rebase redesign reduce refactor reformat remove rename reorder "
    b"replace reproduce resolve restructure return revert review rewrite rotate round run set "
    b"shorten should show simplify skip solve sort split summarise summarize support swap tell "
    b"test tighten track translate turn undo unify update upgrade use validate verify wait was "
    b"we what when where which who why work wrap write".split()
)
ASKING_WORDS = OPENERS - frozenset(b"what how why which where who when whose is are do".split())

# Of an ask about what is pasted beside it, "What does this do?", in ten languages: words that ask,
# that say what to tell of it, what to do with it, and that point at it. Of Chinese and Japanese
# these are characters.
_QUESTIONS = frozenset(
    "what whats why how which who where when is are does has "
    "was warum wieso wie welche welcher welches wer wo ist sind "
    "qué que cuál cuáles cómo por quién dónde es son o qual quais como onde é "
    "quel quelle quels quelles quoi comment pourquoi qui où est che cosa quale come perché dove "
    "что чем как какой какая какие почему зачем где кто "
    "什 哪 吗 何 뭐 무엇을 왜 어떻게 무슨".encode().split()
)
_TELLING = frozenset(
    "explain summarize summarise describe tl translate outline paraphrase proofread "
    "erkläre erklär fasse beschreibe übersetze übersetz explica resume resuma describe traduce "
    "explique traduza traduis décris résume spiega riassumi traduci vertaal przetłumacz "
    "объясни опиши перескажи переведи кратко "
    "释 解 总 總 概 译 譯 訳 要 설명해줘 요약해줘 번역해줘".encode().split()
)
# These need nothing that points at a text: "Translate to German" can only mean the one beside it.
_OF_TEXTS = frozenset(
    "summarize summarise tl translate paraphrase proofread fasse übersetze übersetz resume resuma "
    "résume traduce traduza traduis riassumi traduci перескажи переведи 译 譯 訳 概 要 总 總 "
    "요약해줘 번역해줘 vertaal przetłumacz".encode().split()
)
# What is to be done with a paste that points at it: "Find the race condition in this."
_WORKING_ON = frozenset(
    "find spot review check audit analyse analyze optimise optimize refactor restructure port "
    "rewrite redesign simplify verify prove compare critique evaluate profile harden debug test "
    "shorten rename convert turn format sort extract count correct "
    "finde prüfe überprüfe analysiere optimiere refaktoriere schreibe portiere teste korrigiere "
    "korrigier kürze formuliere wandle sortiere "
    "encuentra busca revisa analiza optimiza refactoriza reescribe porta corrige acorta convierte "
    "ordena encontre encontra revise analise otimize refatore reescreva porte corrija encurte "
    "converta ordene "
    "trouve cherche vérifie analyse optimise refactorise réécris relis raccourcis convertis trie "
    "trova cerca rivedi controlla analizza ottimizza rifattorizza riscrivi correggi accorcia "
    "converti ordina "
    "найди проверь проанализируй оптимизируй перепиши исправь сократи преобразуй отсортируй "
    "разбери 找 审 審 优 優 析 探 見 찾아줘 검토해줘 최적화해줘 분석해줘 고쳐줘".encode().split()
)
_POINTING = frozenset(
    "this that these those it below above following here code text snippet "
    "das dies diese dieser dieses diesen diesem hier folgende folgenden folgendes "
    "esto este esta estos estas eso código texto aquí siguiente isto isso aqui seguinte "
    "ceci cela ça ce cette ces ici suivant questo questa qui codice testo seguente "
    "это этот эта эти этом код кода текст здесь deze dit ten tego tym bu bunu "
    "这 這 此 下 码 碼 こ 次 이 코드는 다음".encode().split()
)
# An ask that has one of these leaves to the paste what is to be done: "How do we solve this?"
_LEAVING = frozenset(
    "should shall must we do work solve solved fix fixed handle implement help helps resolve "
    "approach tackle start begin think take done make made improve best better clear ok okay "
    "possible feasible want wants need needs tun machen lösen sollen sollte wir helfen hacer "
    "resolver faire résoudre fare risolvere делать решить 办 決 决 改".encode().split()
)
_SAYING_NOTHING = (
    _LEAVING
    | _POINTING
    | frozenset(
        b"the a an as is are to for me us i be with about in on at of and what how "
        b"task tasks issue issues bug bugs problem problems error errors ticket feature request "
        b"requirement requirements spec specification story change changes description "
        b"described given attached".split()
    )
)
_LAST = frozenset((b"do", b"work"))  # which at the end of a question ask what the paste does
# What lines of code begin with that look like words.
_OPENING_CODE = frozenset(b"package import from using include namespace return".split())
MAX_ASK_WORDS = 16
MAX_TEXT_WORDS = 8  # of an ask for a translation or a summary that points at nothing


def leaves_to_paste(words: list[bytes]) -> bool:
    """Returns whether a sentence only asks to do what a paste beside it says: "Fix this bug:"."""
    if not words or words[-1] in _LAST:
        return False
    if _POINTING.isdisjoint(words) or _LEAVING.isdisjoint(words):
        return False
    return _SAYING_NOTHING.issuperset(words)


def asks_about(words: list[bytes], mark: str) -> bool:
    """Returns whether a sentence, with a mark at its end, is an ask about a paste beside it."""
    if not 0 < len(words) <= MAX_ASK_WORDS:
        return False
    if not _LEAVING.isdisjoint(words[:-1] if words[-1] in _LAST else words):
        return False
    points = not _POINTING.isdisjoint(words)
    if not _TELLING.isdisjoint(words):
        if points or mark in ":：?？":
            return True
        return len(words) <= MAX_TEXT_WORDS and not _OF_TEXTS.isdisjoint(words[:2] + words[-2:])
    if points and not _WORKING_ON.isdisjoint(words):
        return True
    return points and mark in "?？" and not _QUESTIONS.isdisjoint(words)


def asks_beside_code(words: list[bytes], line: str) -> bool:
    """Returns whether a line of words beside code asks something, and is no heading of the code.

    Of a language that we have no words of, its alphabet or a question mark shows that.
    """
    if len(words) < 2 or words[0] in _OPENING_CODE or _SAYING_NOTHING.issuperset(words):
        return False
    if words[0] in OPENERS or line[-1] in "?？":
        return True
    return line[-1] not in ":：" and not (line.isascii() and _POINTING.isdisjoint(words))


# Byte -> itself in lower case if it belongs to a word, else a space. Multi-byte characters belong
# to words, so any script has words, if unknown ones.
_WORD_TABLE = bytes(
    ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else byte if byte >= 128 else 32
    for byte in range(256)
)

# Chinese and Japanese do not separate words: each character is one, and pairs of them are terms.
# In UTF-8 kana and ideographs begin with e3 81 to e9, full stops and brackets are e3 80 and ef bc.
_CHARACTER = re.compile(rb"[\xe4-\xe9][\x80-\xbf]{2}|\xe3[\x81-\xbf][\x80-\xbf]")
# Typographic punctuation of several bytes, which would otherwise belong to words.
_PUNCTUATION = tuple(
    mark.encode() for mark in "‘’“”„«»…–—·•¿¡、。，！？：；（）「」『』《》\u00a0\u3000"
)
_ASCII = bytes(range(0x80))
_BELOW_CHARACTERS = bytes(range(0xE3))


def words_of(text: bytes) -> list[bytes]:
    """Returns the words of a UTF-8 text, in lower case and in order, without courtesies."""
    return without_courtesies(all_words_of(text))


def without_courtesies(words: list[bytes]) -> list[bytes]:
    """Removes the words that only are polite."""
    if COURTESIES.isdisjoint(words):
        return words
    if b"advance" in words and words[words.index(b"advance") - 1] == b"in":
        del words[words.index(b"advance") - 1]
    return [word for word in words if word not in COURTESIES]


def asks(words: list[bytes]) -> bool:
    """Returns whether one of the words asks for work, wherever it stands."""
    return not ASKING_WORDS.isdisjoint(words)


def all_words_of(text: bytes) -> list[bytes]:
    """Returns the words of a UTF-8 text, in lower case and in order."""
    if not text.isascii():
        others = text.translate(None, _ASCII)
        written = others.decode("utf-8", "ignore")
        if written.lower() != written:
            text = text.decode("utf-8", "ignore").lower().encode()
        for mark in _PUNCTUATION:
            if mark in others:
                text = text.replace(mark, b" ")
        if others.translate(None, _BELOW_CHARACTERS):
            text = _CHARACTER.sub(rb" \g<0> ", text)
    return text.translate(_WORD_TABLE).split()
