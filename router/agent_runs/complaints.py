"""Recognises a user's complaint about the last answer, in several languages.

Only the beginning of a message is looked at: who complains does so at once. Some words complain
anywhere; others are as common in new asks ("the login does not work offline") and count only where
they are nearly all that is said.
"""

MAX_CHARS = 240  # of a message's beginning
SHORT_CHARS = 80  # a message in which the weaker words count, too

_ANYWHERE = (
    # English
    *("still broken", "still fail", "still not work", "still doesn't", "still does not"),
    *("still wrong", "still get", "still see", "still the same", "same error", "same problem"),
    *("same issue", "didn't work", "did not work", "didn't help", "did not help", "no luck"),
    *("that's wrong", "that is wrong", "wrong again", "failed again", "fails again", "broke again"),
    *("didn't fix", "did not fix", "doesn't fix", "does not fix", "not fixed", "you broke"),
    *("nothing changed", "made it worse"),
    # German
    *("hat nicht funktioniert", "hat nicht geklappt", "hat nicht geholfen", "immer noch nicht"),
    *("immer noch kaputt", "immer noch falsch", "immer noch fehl", "das ist falsch"),
    *("derselbe fehler", "gleiche fehler", "gleicher fehler", "geht noch immer nicht"),
    # French
    *("toujours pas", "n'a pas marché", "n'a pas fonctionné", "n’a pas marché", "même erreur"),
    *("n’a pas fonctionné", "même problème", "c'est faux", "c’est faux", "toujours cassé"),
    # Spanish
    *("sigue sin funcionar", "no funcionó", "no ha funcionado", "sigue fallando", "mismo error"),
    *("sigue roto", "eso está mal", "mismo problema", "todavía no funciona", "aún no funciona"),
    # Portuguese
    *("não funcionou", "continua sem funcionar", "ainda não funciona", "mesmo erro"),
    *(
        "continua falhando",
        "ainda falha",
        "mesmo problema",
        "isso está errado",
        "continua quebrado",
    ),
    # Italian
    *("non ha funzionato", "stesso errore", "ancora non funziona", "continua a fallire"),
    # Russian
    *("не сработало", "не помогло", "та же ошибка", "всё ещё не", "все еще не", "по-прежнему не"),
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
_IF_SHORT = (
    *("doesn't work", "does not work", "not working", "not right", "incorrect", "is wrong"),
    *("funktioniert nicht", "geht nicht", "klappt nicht", "stimmt nicht"),
    *("ne marche pas", "ne fonctionne pas", "no funciona", "está mal", "não funciona"),
    *("está errado", "non funziona", "не работает", "неправильно"),
    *("不行", "不对", "不對", "没用", "沒用", "错了", "錯了", "动かない", "動かない", "動きません"),
    *("違います", "間違って", "작동하지 않", "안 돼", "안돼", "틀렸"),
)


def complains(text: str) -> bool:
    """Returns whether a message complains about what came before it."""
    start = text[:MAX_CHARS].lower()
    if any(words in start for words in _ANYWHERE):
        return True
    return len(text) <= SHORT_CHARS and any(words in start for words in _IF_SHORT)
