"""Holds the classifier's hand-set signals: decisive terms, and the request's hints and context, for
which there is no public training data. Positive log-odds move towards the deep engine.
"""

from collections.abc import Set
from itertools import pairwise

# Each alone makes a task security-sensitive. One word, or two in a row, in lower case.
STRONG_SECURITY_TERMS = frozenset(
    {
        *("access control", "after free", "arbitrary code", "auth bypass"),
        *("authentication bypass", "authorization bypass", "botnet", "buffer overflow"),
        *("code injection", "command injection", "csrf", "cve", "ddos"),
        *("double free", "exfiltrate", "exfiltration", "exploitable", "flash loan"),
        *("hardcoded credentials", "idor", "jwt", "keylogger", "lateral movement", "malware"),
        *("memory corruption", "oauth", "oidc", "open redirect", "path traversal", "pentest"),
        *("picoctf", "private key", "private keys", "privilege escalation", "ransomware", "rce"),
        *("reentrancy", "refresh tokens", "reverse shell", "rootkit", "saml", "sandbox escape"),
        *("security audit", "security bug", "security bugs", "security flaw", "security flaws"),
        *("security hole", "security holes", "security issue", "security issues"),
        *("security problem", "security problems", "security review", "security reviewer"),
        *("shellcode", "signature verification", "single sign", "spyware", "sql injection"),
        *("sql injectable", "sqli", "ssrf", "sudoers"),
        *("threat actor", "threat actors", "threat intelligence"),
        *("threat model", "timing attack", "vuln", "vulnerabilities", "vulnerability", "vulns"),
        *("xss", "xxe"),
    }
)
# These have other meanings, too (in games, carpentry, jokes), or stand in texts that are no work on
# security more often than in such: they count only where the other words do not say the contrary.
# A sentence that has one is still never taken for one that only hands a task over.
AMBIGUOUS_TERMS = frozenset(
    {
        *(b"attacker", b"attackers", b"backdoor", b"brute force", b"code execution", b"ctf"),
        *(b"cves", b"denial of", b"exploited", b"mitre", b"phishing", b"remote code", b"trojan"),
        *(b"unsound", b"vulnerable", b"zero day"),
    }
)
_TERMS = [tuple(term.encode().split()) for term in STRONG_SECURITY_TERMS]
_TERMS += [tuple(term.split()) for term in AMBIGUOUS_TERMS]
SECURITY_FIRST_WORDS = frozenset(term[0] for term in _TERMS)
_WORDS = frozenset(term[0] for term in _TERMS if len(term) == 1)
_PAIRS = sorted(term for term in _TERMS if len(term) == 2)
DOUBTFUL_SECURITY = 0.003  # by the other words, from which on an ambiguous term is a strong one
STRONG_SECURITY = 0.9  # `p_security` is at least this with such a term

LONG_CONTEXT_TOKENS = 16_384
PER_CONTEXT_DOUBLING = 0.3  # of the whole prompt beyond `LONG_CONTEXT_TOKENS`
MAX_CONTEXT = 1.5

REASONING_EFFORT: dict[str, float] = {
    "none": -1.5,
    "minimal": -1.5,
    "low": -0.7,
    "medium": 0.0,
    "high": 1.2,
    "xhigh": 1.8,
    "max": 1.8,
}
SERVICE_TIER: dict[str, float] = {"priority": -0.7, "flex": 0.7}

# Expected output, geometric between small and deep work (aider turns: median about 350 tokens).
SMALL_OUTPUT_TOKENS = 300
DEEP_OUTPUT_TOKENS = 2_000
TYPICAL_OUTPUT_TOKENS = 150  # the model's estimate for an average prompt
OUTPUT_TRUST = 0.7  # in the model's ratio to that, as an exponent: lengths transfer badly
BRIEF_WORDS = frozenset(
    {"brief", "briefly", "liner", "short", "sentence", "summarise", "summarize"}
)
REASONING_OUTPUT: dict[str, float] = {"none": 0.7, "minimal": 0.7, "high": 1.5, "xhigh": 2.0}


def security_terms(words: list[bytes], distinct: Set[bytes]) -> list[bytes]:
    """Finds the terms among words, of which `distinct` are the different ones."""
    found = sorted(distinct & _WORDS)
    pairs = [pair for pair in _PAIRS if pair[0] in distinct and pair[1] in distinct]
    if pairs:
        neighbours = {*pairwise(words)}
        found += [b" ".join(pair) for pair in pairs if pair in neighbours]
    return found
