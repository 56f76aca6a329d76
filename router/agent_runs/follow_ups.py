"""Recognises what is said to an answer without a task of its own: that it may go on, or thanks.

Such a message says nothing of the work, in whatever language: its words are those of any other, and
a classifier guesses. So it counts only where nothing else is said: "continue with step 2" asks for
more, "continue the migration in the billing service" is a task.
"""

import re
from typing import Literal

from backends.contract import Item, Message, TextPart
from backends.prompt import parts_text

FollowUp = Literal["more", "thanks"]

MAX_CHARS = 64  # of a message that is looked at: a longer one says more

# What may stand before either.
_LEAD = (
    r"yes|yeah|yep|sure|ok|okay|fine|good|great|nice|perfect|awesome|cool|excellent|please|pls|and"
    r"|so|now|then|just|ja|gut|super|bitte|und|dann|jetzt|s[ií]|vale|bien|por favor|ahora|y"
    r"|oui|d'accord|parfait|alors|maintenant|s'il (?:te|vous) pla[iî]t|sim|certo|agora|va bene"
    r"|perfetto|ora|да|хорошо|отлично|пожалуйста|ну|а|и|теперь|тогда"
    r"|好|好的|行|可以|嗯|那|はい|では|じゃあ|네|좋아요?|그럼"
)
_MORE = (
    r"continue|go on|go ahead|carry on|keep (?:going|on|writing)|proceed|more|next(?: one)?"
    r"|(?:(?:mache?|schreibe?|rede?|machen sie) )?(?:bitte )?weiter(?:machen|schreiben)?"
    r"|fahre? fort|fahren sie fort|nur zu|mehr"
    r"|sigue|siga|contin[uú]a|contin[uú]e|contin[uú]en|prosigue|prosiga|adelante|m[aá]s"
    r"|continuez|poursuis|poursuivez|vas[- ]y|la suite|encore"
    r"|continua|prossiga|prossegue|segue|pode continuar|mais|vai avanti|avanti|prosegui|ancora"
    r"|ga (?:door|verder)|verder|kontynuuj|dalej|devam(?: et)?"
    r"|(?:давай )?(?:продолжай|продолжайте|дальше|далее)|ещё|еще|продовжуй(?:те)?"
    r"|(?:请|請)?(?:继续|繼續|接着|接著)(?:吧|写|寫|说|說|讲|做|往下|下去|输出|生成|完成)*|下一步|下一个"
    r"|続けて(?:ください|下さい)?|続き(?:を)?(?:お願いします)?|続行|次(?:へ|に|を)?(?:お願いします)?"
    r"|계속(?:해|해줘|해주세요|하세요|하십시오)?|다음"
)
# What may follow that and names nothing new.
_REST = (
    r"with|the|next|following|remaining|rest|last|other|steps?|parts?|points?|sections?|chapters?"
    r"|pages?|ones?|items?|from|where|you|we|i|it|that|this|there|your|stopped|left|off|were|was"
    r"|please|pls|then|now|and|to|in|of|on|as|writing|working|answer|list|plan|until|done|finished"
    r"|\d{1,3}|bitte|so|damit|mit|dem|der|den|das|nächsten|schritt|punkt|teil|wo|du|aufgehört|hast"
    r"|con|el|la|lo|los|las|siguiente|paso|parte|por|favor|donde|dejaste|así"
    r"|avec|le|les|suivante?|étape|partie|s'il|te|vous|plaît|plait|o|a|com|próximo|passo"
    r"|пожалуйста|со|с|следующ\w+|шаг\w*|част\w+|писать|请|吧|please"
)
_THANKS = (
    r"thanks|thank you|thank u|thx|ty|tysm|cheers|(?:much )?appreciated|danke(?:schön)?|vielen dank"
    r"|besten dank|merci|(?:muchas |mil )?gracias|obrigad[oa]|grazie(?: mille)?|bedankt"
    r"|dank (?:je|u)(?: wel)?|dzięki|dziękuję|teşekkürler|teşekkür ederim|спасибо|благодарю|дякую"
    r"|谢谢|謝謝|多谢|多謝|(?:非常|十分)?感[谢謝]|ありがとう(?:ございます|ございました)?|감사합니다|고마워요?"
)
# What may stand around thanks; "no" declines what was offered.
_AROUND = (
    r"no|nope|nein|non|não|нет|不用了?|a lot|lots|a bunch|a million|very much|so much|much|again"
    r"|in advance|for|the|your|that(?:'s)?|this|it|all|is|was|everything|help|answer|explanation"
    r"|works?|helps?|helped|looks|very|really|many|dir|ihnen|sehr|schön|das|war|alles|für|die|hilfe"
    r"|beaucoup|infiniment|pour|tout|ton|votre|aide|por|todo|la|tu|ayuda|muito|pela|ajuda"
    r"|большое|огромное|за|помощь|вам|тебе|你|您|了|大家"
)
_BETWEEN = r"[\s.,;:!?¡…·~、。，！？-]"
# A word is read once (`(?>`): some are in two lists, and two ways of reading each of many would be
# tried for milliseconds.
_IS_MORE = re.compile(
    rf"{_BETWEEN}*+(?>(?:{_LEAD}|{_THANKS}){_BETWEEN}++)*+(?:{_MORE})"
    rf"(?>{_BETWEEN}++(?:{_REST})(?!\w))*+{_BETWEEN}*+"
)
_IS_THANKS = re.compile(
    rf"{_BETWEEN}*+(?>(?:{_LEAD}|{_AROUND}){_BETWEEN}++)*+(?:{_THANKS})"
    rf"(?>{_BETWEEN}*+(?:{_LEAD}|{_AROUND}|{_THANKS})(?!\w))*+{_BETWEEN}*+"
)
_IS_PLEA = re.compile(rf"{_BETWEEN}*+(?>(?:{_LEAD})(?:{_BETWEEN}++|$))*+")


def asks_nothing(item: Item) -> bool:
    """Returns whether a message right behind another is mere courtesy: thanks, please, nothing."""
    if not isinstance(item, Message) or not all(isinstance(p, TextPart) for p in item.content):
        return False
    text = parts_text(item.content)
    if len(text) > MAX_CHARS:
        return False
    return follow_up_of(text) == "thanks" or _IS_PLEA.fullmatch(text.lower()) is not None


def follow_up_of(text: str) -> FollowUp | None:
    """Returns what a message says to the answer before it, if it says nothing else."""
    if len(text) > MAX_CHARS:
        return None
    said = text.lower().replace("’", "'")
    if _IS_MORE.fullmatch(said):
        return "more"
    return "thanks" if _IS_THANKS.fullmatch(said) else None
