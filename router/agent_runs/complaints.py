"""Recognises a user's complaint about the last answer, in several languages.

Only the beginning of a message is looked at: who complains does so at once. Some words complain
anywhere; some only where a message begins with them or nearly so, since further on they are quoted
or told of others ("a customer says that this isn't what I asked for"). Others are as common in new
asks ("the login does not work offline") and count only where they are nearly all that is said, or
all of it: "Nope." A plain no is a complaint only if it answers no question.

What is merely asked about is no complaint: "What is wrong with this code?", "Solve the same problem
in Rust". So words that new asks share do not count in a clause that begins by asking for something.
"""

import re

MAX_CHARS = 240  # of a message's beginning
EARLY_CHARS = 32  # within which a complaint begins that may be told of others further on
SHORT_CHARS = 80  # a message in which the weaker words count, too
BARE_CHARS = 40  # a message that may be nothing but a no
ASKING_CHARS = 240  # of an answer's end, which may ask or offer something

_ANYWHERE = (
    # English
    *("still broken", "still fail", "still not work", "still doesn't", "still does not"),
    *("still wrong", "still the same", "no luck"),
    *("that's wrong", "that is wrong", "wrong again", "failed again", "fails again", "broke again"),
    *("didn't fix", "did not fix", "doesn't fix", "does not fix", "not fixed", "you broke"),
    *("nothing changed", "made it worse"),
    # German
    *("hat nicht funktioniert", "hat nicht geklappt", "hat nicht geholfen", "immer noch nicht"),
    *("immer noch kaputt", "immer noch falsch", "immer noch fehl", "das ist falsch"),
    "geht noch immer nicht",
    # French
    *("toujours pas", "n'a pas marché", "n'a pas fonctionné", "c'est faux", "toujours cassé"),
    # Spanish
    *("sigue sin funcionar", "no funcionó", "no ha funcionado", "sigue fallando"),
    *("sigue roto", "eso está mal", "todavía no funciona", "aún no funciona"),
    # Portuguese
    *("não funcionou", "continua sem funcionar", "ainda não funciona"),
    *("continua falhando", "ainda falha", "isso está errado", "continua quebrado"),
    # Italian
    *("non ha funzionato", "ancora non funziona", "continua a fallire"),
    # Russian
    *("не сработало", "не помогло", "всё ещё не", "все еще не", "по-прежнему не"),
    # Chinese
    *(
        "还是不行",
        "還是不行",
        "还是报错",
        "還是報錯",
        "还是失败",
        "還是失敗",
        "还是不对",
        "還是不對",
    ),
    *(
        "没有用",
        "沒有用",
        "没有解决",
        "沒有解決",
        "同样的错误",
        "同樣的錯誤",
        "一样的错误",
        "仍然失败",
    ),
    # Japanese
    *(
        "まだ動か",
        "まだ失敗",
        "まだ直って",
        "直っていない",
        "直っていません",
        "直りません",
        "同じエラー",
    ),
    *(
        "うまくいきません",
        "うまくいかな",
        "動きませんでした",
        "動かなかった",
        "だめでした",
        "ダメでした",
    ),
    # Korean
    *("여전히 안", "여전히 실패", "같은 오류", "같은 에러", "아직도 안"),
)
# "I still see it" complains; "users should still see it" asks, as does "solve the same problem".
_WHO = ("i", "i can", "i'm", "we", "we're", "but")
_BEFORE_SAME = (
    *("have the", "having the", "has the", "got the", "get the", "getting the", "see the"),
    *("seeing the", "it's the", "run into the", ",", ".", "but", "but the", "and"),
)
# Anywhere, too, but not where they are asked about.
_UNLESS_ASKED = (
    *(f"{who} still {verb}" for who in _WHO for verb in ("get", "see")),
    *(f"{before} same {what}" for before in _BEFORE_SAME for what in ("problem", "issue")),
    *("and still get", "same problem again", "same issue again", "same error"),
    *("didn't work", "did not work", "didn't help", "did not help"),
    *("derselbe fehler", "gleiche fehler", "gleicher fehler", "même erreur"),
    *("encore le même problème", "toujours le même problème"),
    *("mismo error", "sigo con el mismo problema", "tengo el mismo problema"),
    *("mesmo erro", "continuo com o mesmo problema", "tenho o mesmo problema"),
    *("stesso errore", "та же ошибка"),
)
# The first words of a message: further on they belong to new asks, too.
_AT_START = (
    *("same problem", "the same problem", "same issue", "the same issue", "still get", "still see"),
    *("même problème", "le même problème"),
    *("mismo problema", "el mismo problema", "mesmo problema", "o mesmo problema"),
)
_EARLY = (
    # English
    *(f"{no} what i {verb}" for no in ("n't", "not") for verb in ("asked", "wanted", "meant")),
    *("i told you not", "i told you to", "i said not to", "i said don't", "i never asked for"),
    *("i never asked you", "i didn't ask for", "i didn't ask you", "i did not ask for"),
    *(f"why did you {verb} my" for verb in ("delete", "remove", "change", "break", "overwrite")),
    *("why did you ignore my", "what have you done to", "you deleted my", "you removed my"),
    *("you overwrote my", "you ignored my", "you misunderstood"),
    # German
    *("das wollte ich nicht", "nicht das, was ich", "nicht was ich wollte"),
    *("danach habe ich nicht", "ich habe doch gesagt", "warum hast du meine"),
    # French
    *("ce n'est pas ce que j", "c'est pas ce que j", "je t'avais dit"),
    *("pourquoi as-tu supprimé", "pourquoi tu as supprimé", "tu as supprimé m"),
    # Spanish and Portuguese
    *("no es lo que ped", "no es lo que quer", "te dije que no", "por qué borraste"),
    *("não foi isso que", "não é o que ped", "não é isso que", "eu disse para não"),
    *("por que você apagou",),
    # Italian and Russian
    *("non è quello che ho chiesto", "non è quello che volevo", "ti avevo detto"),
    *("это не то, что", "я же сказал", "я же просил", "зачем ты удалил"),
    # Chinese, Japanese and Korean
    *(
        "这不是我要的",
        "這不是我要的",
        "不是我想要的",
        "我说过不要",
        "我說過不要",
        "为什么删",
        "為什麼刪",
    ),
    *("頼んだものと違", "頼んだのと違", "言ったのに", "なぜ消し", "なんで消し"),
    *("제가 요청한 게 아", "원한 게 아니", "왜 지웠", "왜 삭제했"),
)
# All that is said: that it is wrong, or to be done once more.
_AGAIN = frozenset(
    {
        *(
            "try again",
            "please try again",
            "try again please",
            "try that again",
            "try it again",
            "do it again",
            "wrong",
        ),
        *("redo it", "not good", "no good", "that's not it", "not it", "that's not right"),
        *("falsch", "versuch es nochmal", "stimmt nicht"),
        *("réessaie", "réessayez", "essaie encore", "faux", "c'est pas ça"),
        *("inténtalo de nuevo", "prueba otra vez", "así no", "tente de novo"),
        *("tenta de novo", "errado", "riprova", "sbagliato", "попробуй ещё раз"),
        *("попробуй еще раз", "неверно", "再试一次", "再試一次", "重来", "重來", "不是"),
        *("もう一度", "もう一回", "やり直して", "違う", "ちがう", "다시 해봐", "다시 해줘"),
    }
)
_NO = frozenset(
    {
        *("no", "nope", "nah", "no no", "nein", "nö", "non", "não", "нет", "不", "不是这样"),
        *("いいえ", "いや", "아니", "아니요"),
    }
)
_OFFERS = (
    "?",
    "？",
    "let me know",
    "if you",
    "would you like",
    "sag bescheid",
    "wenn du",
    "falls du",
)
# How a clause begins that asks for something.
_ASKING = re.compile(
    r"\W*(?:(?:now|and|then|so|ok|okay|but|also|please|jetzt|und|dann|bitte|et|y|e|а|и)\W+)*"
    # English: questions, conditions and what one may be told to do
    r"(?:(?:what|which|who|why|where|when|how|whether|if|is|are|do|does|did|can|could|should|would"
    r"|add|answer|check|compare|convert|create|debug|describe|detect|draft|explain|explore|find|fix"
    r"|generate|give|handle|help|highlight|identify|implement|improve|investigate|let|list|log|make"
    r"|mark|name|print|raise|reject|report|reproduce|return|review|rewrite|say|show|simulate|solve"
    r"|state|suggest|summari[sz]e|tell|throw|translate|use|validate|verify|write"
    # German, French, Spanish, Portuguese, Italian and Russian
    r"|was|welch\w*|wer|wie|warum|wieso|wo|wann|wenn|falls|ob|erkläre?|zeige?|finde|löse|schreibe?"
    r"|que|qui|quoi|quel\w*|où|pourquoi|comment|quand|si|explique|montre|trouve|résous|écris"
    r"|qué|quién|cuál\w*|dónde|por qué|cómo|explica|muestra|encuentra|resuelve|escribe"
    r"|o que|quem|qual|quais|onde|por que|como|mostre|encontre|resolva|escreva"
    r"|che|cosa|chi|quale|dove|perché|come|spiega|mostra|trova|risolvi|scrivi"
    r"|что|кто|как\w*|где|почему|зачем|если|объясни|покажи|найди|реши|напиши)(?!\w)"
    r"|qu'|.*(?:什么|什麼|哪|怎么|怎麼|为何|為何|如果|何が|なに|どこ|どの|なぜ|もし|뭐|무엇|어디|왜|어느))"
)
_CLAUSE_END = re.compile(r"[.,;:!?…\n。、，！？：；]")
_STOPS = re.compile(r"[\s.,!…;。、，！]*[.,!…;。、，！\n][\s.,!…;。、，！]*")
_IF_SHORT = (
    *("doesn't work", "does not work", "not working", "not right", "incorrect"),
    *("is wrong", "it's wrong"),
    *("funktioniert nicht", "geht nicht", "klappt nicht", "stimmt nicht"),
    *("ne marche pas", "ne fonctionne pas", "no funciona", "está mal", "não funciona"),
    *("está errado", "non funziona", "не работает", "неправильно"),
    *("不行", "不对", "不對", "没用", "沒用", "错了", "錯了", "动かない", "動かない", "動きません"),
    *("違います", "間違って", "작동하지 않", "안 돼", "안돼", "틀렸"),
)


def complains(text: str, *, is_asked: bool = False) -> bool:
    """Returns whether a message complains about what came before it.

    `is_asked`: that ended with a question or an offer, to which a no is a reply.
    """
    start = text[:MAX_CHARS].lower().replace("’", "'")
    if any(words in start for words in _ANYWHERE):
        return True
    if _tells(start, _UNLESS_ASKED):
        return True
    early = start.lstrip()
    if early.startswith(_AT_START):
        return True
    if any(0 <= early.find(words) <= EARLY_CHARS for words in _EARLY):
        return True
    if len(text) <= SHORT_CHARS and _tells(start, _IF_SHORT):
        return True
    if len(text) > BARE_CHARS:
        return False
    said = {part for part in _STOPS.split(f"{start.strip()}.") if part}
    if not said <= _AGAIN | _NO:
        return False
    return bool(said & _AGAIN) or (bool(said) and not is_asked)


def _tells(start: str, several: tuple[str, ...]) -> bool:
    """Returns whether a message says one of several words, and does not merely ask about them."""
    for words in several:
        at = start.find(words)
        if at >= 0 and not _ASKING.match(_CLAUSE_END.split(start[:at])[-1]):
            return True
    return False


def asks_back(text: str) -> bool:
    """Returns whether an answer ends with a question or an offer."""
    end = text[-ASKING_CHARS:].lower()
    return any(words in end for words in _OFFERS)
