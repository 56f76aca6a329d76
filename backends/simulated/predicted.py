"""Compares a request's prediction with the answer that a simulated engine gives.

By default they are compared word for word. A fixed share of accepted tokens, drawn for each token,
stands for engines that agree as far as was measured; then only the prediction's length counts.
"""

from backends.contract import GenerateRequest
from backends.prompt import unsalted_hash
from backends.script.chance import Chance
from backends.script.work import MAX_CHARS
from backends.simulated.playback import Playback
from backends.tokenizer import split
from wafer_engine.batching.predicted_text import PredictedText

_PARTS = 1_000_000
_NO_TOKEN = "\0"  # unlike any token of an answer


def prediction_of(
    request: GenerateRequest, playback: Playback, acceptance: float | None, seed: int
) -> PredictedText | None:
    """Returns the prediction of this answer's tokens; None without one.

    `acceptance` is the chance that a predicted token is right; None: where it is what the answer
    says. A prediction is read as far as an answer may be long to write.
    """
    if not request.prediction:
        return None
    answer, start = playback.tokens(), playback.num_before_text
    predicted = split(request.prediction[:MAX_CHARS])
    if acceptance is not None:
        chance = Chance(seed, "prediction", unsalted_hash(request))
        likely = round(acceptance * _PARTS)
        predicted = [
            token if chance.below(_PARTS) < likely else _NO_TOKEN
            for token in answer[start : start + len(predicted)]
        ]
    return PredictedText(answer, predicted, start)
