"""Holds the classifier's hand-set signals: decisive terms, and the request's hints and context, for
which there is no public training data. Positive log-odds move towards the deep engine.
"""

from collections.abc import Set
from itertools import pairwise

# Each alone makes a task security-sensitive: of 23,000 public texts that are not about security
# 0.2 % have one, of 1,800 that are, 73 %. One word, or two in a row, in lower case.
STRONG_SECURITY_TERMS = frozenset(
    {
        *("access control", "after free", "arbitrary code", "attacker", "attackers"),
        *("auth bypass", "authentication bypass", "authorization bypass", "backdoor"),
        *("botnet", "brute force", "buffer overflow", "code execution", "code injection"),
        *("command injection", "csrf", "ctf", "cve", "cves", "ddos", "denial of", "double free"),
        *("exfiltrate", "exfiltration", "exploitable", "exploited", "flash loan"),
        *("hardcoded credentials", "idor", "jwt", "keylogger", "lateral movement"),
        *("malware", "memory corruption", "mitre", "oauth", "oidc", "open redirect"),
        *("path traversal", "pentest", "phishing", "picoctf", "private key", "private keys"),
        *("privilege escalation", "ransomware", "rce", "reentrancy", "refresh tokens"),
        *("remote code", "reverse shell", "rootkit", "saml", "sandbox escape", "security audit"),
        *("security bug", "security bugs", "security flaw", "security flaws", "security hole"),
        *("security holes", "security issue", "security issues", "security problem"),
        *("security problems", "security review", "security reviewer", "shellcode"),
        *("signature verification", "single sign", "spyware", "sqli", "sql injection", "ssrf"),
        *("sudoers", "threat actor", "threat actors"),
        *("threat intelligence", "threat model", "timing attack", "trojan"),
        *("unsound", "vuln", "vulnerabilities", "vulnerability", "vulnerable"),
        *("vulns", "xss", "xxe", "zero day"),
    }
)
_TERMS = [tuple(term.encode().split()) for term in STRONG_SECURITY_TERMS]
STRONG_FIRST_WORDS = frozenset(term[0] for term in _TERMS)
_WORDS = frozenset(term[0] for term in _TERMS if len(term) == 1)
_PAIRS = sorted(term for term in _TERMS if len(term) == 2)
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


def strong_terms(words: list[bytes], distinct: Set[bytes]) -> list[bytes]:
    """Finds the strong security terms among words, of which `distinct` are the different ones."""
    found = sorted(distinct & _WORDS)
    pairs = [pair for pair in _PAIRS if pair[0] in distinct and pair[1] in distinct]
    if pairs:
        neighbours = {*pairwise(words)}
        found += [b" ".join(pair) for pair in pairs if pair in neighbours]
    return found
