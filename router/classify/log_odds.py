"""Converts probabilities to log-odds, in which independent evidence adds up."""

import math


def log_odds(probability: float, margin: float) -> float:
    """Returns the log-odds of a probability that is kept `margin` away from 0 and 1."""
    bounded = probability
    if probability < margin:
        bounded = margin
    elif probability > 1 - margin:
        bounded = 1 - margin
    return math.log(bounded / (1 - bounded))


def probability(log_odds: float) -> float:
    """Returns the probability of these log-odds."""
    return 1 / (1 + math.exp(min(700.0, -log_odds)))  # beyond, a float ends


def shifted(probability: float, shift: float) -> float:
    """Returns the probability whose log-odds are `shift` higher."""
    return 1 / (1 + math.exp(-log_odds(probability, 1e-6) - shift))
