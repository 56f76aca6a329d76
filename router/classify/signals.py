"""Holds the classifier's hand-set signals: decisive terms, and the request's hints and context, for
which there is no public training data. Positive log-odds move towards the deep engine.
"""

from collections.abc import Set

from router.classify.words import all_words_of


def _forms(stem: str, endings: str) -> list[str]:
    """Returns a term with each of its endings: "-" is none, and "~" a space within one."""
    return [stem + ending.strip("-").replace("~", " ") for ending in endings.split()]


# Those of other languages, for which training has few asks on security or none.
_IN_OTHER_LANGUAGES = frozenset(
    {
        # German
        *("sicherheitslücke", "sicherheitslücken", "sicherheitsaudit", "sicherheitsaudits"),
        *("sicherheitsloch", "schadsoftware", "schadcode", "pufferüberlauf", "pufferüberläufe"),
        *("rechteausweitung", "verschlüsselungstrojaner", "erpressungstrojaner", "cyberangriff"),
        *("cyberangriffe", "wurde gehackt", "wurden gehackt", "gehackt worden"),
        *("private schlüssel", "privaten schlüssel", "privater schlüssel", "angreifer kann"),
        *("angreifer könnte", "bedrohungsmodell"),
        *("sicherheitsproblem", "sicherheitsprobleme", "sicherheitsprüfung"),
        # Spanish
        *("vulnerabilidad", "vulnerabilidades", "ciberataque", "ciberataques", "ciberseguridad"),
        *("inyección sql", "inyección de sql", "inyección de código", "inyección de comandos"),
        *("fallo de seguridad", "fallos de seguridad", "agujero de seguridad"),
        *("brecha de seguridad", "auditoría de seguridad", "escalada de privilegios"),
        *("desbordamiento de búfer", "ejecución remota de código", "clave privada"),
        *("claves privadas", "robo de credenciales", "atacante puede", "atacante podría"),
        *("modelo de amenazas", "modelos de amenazas", "problema de seguridad"),
        *("problemas de seguridad", "revisión de seguridad"),
        # Portuguese
        *(
            "vulnerabilidade",
            "cibersegurança",
            "injeção sql",
            "injeção de sql",
            "injeção de código",
        ),
        *("falha de segurança", "falhas de segurança", "brecha de segurança"),
        *("auditoria de segurança", "escalonamento de privilégios", "execução remota de código"),
        *("chave privada", "chaves privadas", "atacante pode", "atacante consegue"),
        *("modelo de ameaças", "problema de segurança", "problemas de segurança"),
        # French
        *("vulnérabilité", "vulnérabilités", "cyberattaque", "cyberattaques", "cybersécurité"),
        *("injection sql", "injection de code", "faille de sécurité", "failles de sécurité"),
        *("audit de sécurité", "élévation de privilèges", "dépassement de tampon", "hameçonnage"),
        *("logiciel malveillant", "logiciels malveillants", "rançongiciel", "rançongiciels"),
        *("clé privée", "clés privées", "attaquant peut", "attaquant pourrait"),
        *("modèle de menaces", "problème de sécurité", "problèmes de sécurité"),
        # Italian
        *("vulnerabilità", "falla di sicurezza", "falle di sicurezza", "audit di sicurezza"),
        *("chiave privata", "chiavi private", "furto di credenziali", "attaccante può"),
        *("problema di sicurezza", "problemi di sicurezza"),
        # Russian
        *_forms("уязвимост", "ь и ей ям ями ях ью"),
        *_forms("sql инъекци", "я и ю й ей ям ями ях"),
        *_forms("эксплойт", "- а ы ов у ом"),
        *_forms("вредонос", "- а ы ов ное ного ная ной ную ные ных ный"),
        *_forms("шифровальщик", "- а и ов у ом"),
        *_forms("злоумышленник", "- а и ов у ом ам ами"),
        *_forms("взлом", "- а е у ом ать али ал ан ана аны"),
        *_forms("фишинг", "- а у ом овое овый овая овые овых овую ового"),
        *_forms("кибератак", "а и у е"),
        *_forms("бэкдор", "- а ы ов"),
        *_forms("переполнени", "е~буфера я~буфера"),
        *_forms("дыр", "а~в~безопасности у~в~безопасности ы~в~безопасности"),
        *_forms("закрыт", "ый~ключ ые~ключи ого~ключа ых~ключей"),
        *_forms("приватн", "ый~ключ ые~ключи ого~ключа ых~ключей"),
        *_forms("утечк", "а~данных и~данных у~данных е~данных"),
        *_forms("повышени", "е~привилегий я~привилегий"),
        *_forms("удалённо", "е~выполнение го~выполнения"),
        *_forms("аудит", "~безопасности а~безопасности"),
        *_forms("об", "ход~аутентификации ойти~аутентификацию ход~авторизации ойти~авторизацию"),
        *("украл пароли", "украли пароли", "кража паролей", "информационной безопасности"),
        *("учётные данные", "учетные данные", "хранить пароли", "хэшировать пароли"),
        *("модель угроз", "модели угроз", "двухфакторную аутентификацию"),
        *_forms("троян", "- а ы ов"),
        *("проблемы безопасности", "проблем безопасности"),
        # Chinese
        *(
            "漏洞",
            "sql注入",
            "命令注入",
            "代码注入",
            "恶意软件",
            "恶意代码",
            "惡意軟體",
            "勒索软件",
        ),
        *("勒索病毒", "越权访问", "权限提升", "私钥", "私鑰", "密钥泄露", "密码泄露", "数据泄露"),
        *("凭据", "渗透测试", "钓鱼邮件", "钓鱼网站", "缓冲区溢出", "暴力破解", "远程代码执行"),
        *("安全审计", "绕过身份验证", "绕过认证", "跨站脚本", "网络攻击", "黑客攻击", "被黑了"),
        *("威胁模型", "威胁建模", "双因素认证", "安全问题", "安全隐患"),
        # Japanese
        *("脆弱性", "sqlインジェクション", "マルウェア", "ランサムウェア", "不正アクセス"),
        *("セキュリティホール", "セキュリティ監査", "セキュリティ診断", "秘密鍵", "権限昇格"),
        *("セキュリティ上の問題",),
        *("フィッシングメール", "バッファオーバーフロー", "情報漏洩", "脅威モデル"),
        # Korean
        *_forms("취약점", "- 을 이 은 의 에 과 도"),
        *_forms("해킹", "- 을 이 은 의 에 당했어요 당했습니다"),
        *_forms("해커", "- 가 는 를 의 에게"),
        *_forms("악성코드", "- 를 가 는 의 에"),
        *_forms("랜섬웨어", "- 를 가 는 의 에"),
        *_forms("인젝션", "- 을 이 은 의"),
        *_forms("보안 감사", "- 를 가"),
        *_forms("보안 문제", "- 를 가"),
    }
)

# Each alone makes a task security-sensitive. One word, or several in a row, in lower case.
STRONG_SECURITY_TERMS = _IN_OTHER_LANGUAGES | frozenset(
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
        *("attacker", "attackers", "backdoor", "brute force", "capture the flag"),
        *("code execution", "ctf"),
        *("cves", "denial of", "exploited", "mitre", "phishing", "remote code", "trojan"),
        *("unsound", "vulnerable", "zero day"),
        # German, Spanish, Portuguese, French, Italian, Chinese and Japanese
        *("angreifer", "gehackt", "schwachstelle", "schwachstellen", "hackeado", "hackeada"),
        *("hackearon", "puerta trasera", "foi invadido", "攻击者", "攻擊者", "恶意", "惡意"),
        *("黑客", "駭客", "木马", "后门", "越权", "提权", "攻撃者"),
    }
)
# By their words as the reader finds them: in Chinese and Japanese each character is one.
_TERMS = {
    tuple(all_words_of(term.encode())): term for term in STRONG_SECURITY_TERMS | AMBIGUOUS_TERMS
}
SECURITY_FIRST_WORDS = frozenset(words[0] for words in _TERMS)
_WORDS = {words[0]: term for words, term in _TERMS.items() if len(words) == 1}
# First word -> those of several words: the second one, all of them as said, and the term.
_SEVERAL: dict[bytes, list[tuple[bytes, bytes, str]]] = {}
for _words, _term in sorted(_TERMS.items()):
    if len(_words) > 1:
        _spaced = b" %b " % b" ".join(_words)
        _SEVERAL.setdefault(_words[0], []).append((_words[1], _spaced, _term))
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


def security_terms(words: list[bytes], distinct: Set[bytes]) -> list[str]:
    """Finds the terms among words, of which `distinct` are the different ones.

    Where one is a part of another the longer one counts alone.
    """
    found = {b" %b " % word: _WORDS[word] for word in sorted(distinct & _WORDS.keys())}
    several = [
        (spaced, term)
        for first in sorted(distinct & _SEVERAL.keys())
        for second, spaced, term in _SEVERAL[first]
        if second in distinct
    ]
    if several:
        said = b" %b " % b" ".join(words)
        found |= {spaced: term for spaced, term in several if spaced in said}
        whole = [*found]
        for part in whole:
            if any(part in other and part != other for other in whole):
                del found[part]
    return [*found.values()]
