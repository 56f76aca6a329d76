"""Scores prompts as LiteLLM's complexity router does by default: rules, without a model.

Source: github.com/BerriAI/litellm, `litellm/router_strategy/complexity_router`, MIT licence; its
default weights, boundaries and words, read 2026-11. A word counts at word boundaries, a phrase
anywhere. Its patterns for several steps, of weight 0.03, are told in our words.
"""

import re

SIMPLE_BELOW = 0.15  # a higher score is a tier above SIMPLE, so not for the smallest model

_SHORT_TOKENS, _LONG_TOKENS = 15, 400
_CHARS_PER_TOKEN = 4

_CODE = """function class def const let var import export return async await try catch exception
error debug api endpoint request response database sql query schema algorithm implement refactor
optimize python javascript typescript java rust golang react vue angular node docker kubernetes
git commit merge branch pull_request"""
_REASONING = """step_by_step think_through let's_think reason_through analyze_this break_down
explain_your_reasoning show_your_work chain_of_thought think_carefully consider_all evaluate
pros_and_cons compare_and_contrast weigh_the_options logical deduce infer conclude"""
_TECHNICAL = """architecture distributed scalable microservice machine_learning neural_network
deep_learning encryption authentication authorization performance latency throughput benchmark
concurrency parallel threading memory cpu gpu optimization protocol tcp http grpc websocket
container orchestration"""
_SIMPLE = """what_is what's define definition_of who_is who_was when_did when_was where_is
where_was how_many how_much yes_or_no true_or_false simple brief short quick hello hi hey thanks
thank_you goodbye bye okay"""
_STEPS = re.compile(r"first\b.*\bthen\b|\bstep \d|^\s*\d+[.)] ", re.MULTILINE)


def _patterns(words: str) -> list[re.Pattern[str]]:
    phrases = [word.replace("_", " ") for word in words.split()]
    return [
        re.compile(re.escape(phrase) if " " in phrase else rf"\b{re.escape(phrase)}\b")
        for phrase in phrases
    ]


# Words, how many are some and how many are many, the scores of some and of many, and the weight.
_DIMENSIONS = (
    (_patterns(_CODE), (1, 2), (0.5, 1.0), 0.30),
    (_patterns(_REASONING), (1, 2), (0.7, 1.0), 0.25),
    (_patterns(_TECHNICAL), (2, 4), (0.5, 1.0), 0.25),
    (_patterns(_SIMPLE), (1, 2), (-1.0, -1.0), 0.05),
)


def rule_score(prompt: str) -> float:
    """Returns the weighted score of a prompt; two words of reasoning outweigh all else."""
    text = prompt.lower()
    num_tokens = len(prompt) // _CHARS_PER_TOKEN
    score = 0.10 * ((num_tokens > _LONG_TOKENS) - (num_tokens < _SHORT_TOKENS))
    score += 0.03 * 0.5 * (_STEPS.search(text) is not None)
    score += 0.02 * 0.5 * (prompt.count("?") > 3)
    counts = [sum(p.search(text) is not None for p in words) for words, *_ in _DIMENSIONS]
    for count, (_, (some, many), scores, weight) in zip(counts, _DIMENSIONS, strict=True):
        score += weight * (scores[1] if count >= many else scores[0] if count >= some else 0.0)
    return score + (1.0 if counts[1] >= _DIMENSIONS[1][1][1] else 0.0)
