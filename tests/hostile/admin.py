"""Makes requests to the admin API that no admin means."""

import json

from tests.hostile.bodies import ODD_VALUES

_POLICY = 'version = "v"\n'

# (method, path, a body with `?` for the odd value)
_TEMPLATES = {
    "a policy": ("POST", "/admin/policies", '{"document":?}'),
    "a checked policy": ("POST", "/admin/policies/check", '{"document":?,"name":"\\u0000"}'),
    "a name": ("POST", "/admin/policies/check", '{"document":"","name":?}'),
    "a diff": ("POST", "/admin/policies/diff", '{"version":?}'),
    "a diff against": ("POST", "/admin/policies/diff", '{"document":"","against":?}'),
    "an activation": ("POST", "/admin/policies/1/activate", '{"expected":?}'),
    "a rollback": ("POST", "/admin/policies/rollback", '{"expected":?}'),
    "a comment": ("POST", "/admin/policies/rollback", '{"comment":?}'),
    "a shadow": ("POST", "/admin/policies/shadow", '{"version":?}'),
    **{
        f"a question's {field}": ("POST", "/admin/explain", f'{{"prompt":"x","{field}":?}}')
        for field in (
            *("prompt", "tenant", "model", "metadata", "reasoning_effort", "service_tier"),
            *("prompt_cache_key", "at", "document", "name", "version"),
        )
    },
    "a key": ("POST", "/admin/keys", '{"tenant":?}'),
    "a key's name": ("POST", "/admin/keys", '{"tenant":"dev","name":?}'),
    "a key's life": ("POST", "/admin/keys", '{"tenant":"dev","expires_in_s":?}'),
    "a rotation": ("POST", "/admin/keys/x/rotate", '{"overlap_s":?}'),
    "a tenant": ("POST", "/admin/tenants", '{"id":?,"tier":"free"}'),
    "a tenant's tier": ("POST", "/admin/tenants", '{"id":"odd","tier":?}'),
    "a tenant's limits": ("POST", "/admin/tenants", '{"id":"odd","tier":"free","limits":?}'),
    "a tenant's limit": (
        "POST",
        "/admin/tenants",
        '{"id":"odd","tier":"free","limits":{"fast":{"requests_per_min":?}}}',
    ),
    "a tenant's access": ("POST", "/admin/tenants", '{"id":"odd","tier":"free","access":?}'),
    "a tenant's weight": ("POST", "/admin/tenants", '{"id":"odd","tier":"free","weight":?}'),
    "a change": ("PATCH", "/admin/tenants/odd", '{"limits":?}'),
    "a change of a limit": ("PATCH", "/admin/tenants/odd", '{"limits":{"deep":?}}'),
    "a tier": ("PUT", "/admin/tiers/odd", "?"),
    "a tier's limits": ("PUT", "/admin/tiers/odd", '{"limits":?}'),
    "a tier's limit": ("PUT", "/admin/tiers/odd", '{"limits":{"fast":{"tokens_per_day":?}}}'),
}

_PATHS = (
    *(
        "/admin/policies/0",
        "/admin/policies/-1",
        f"/admin/policies/{10**40}",
        "/admin/policies/1e3",
    ),
    *("/admin/policies/%F0%9F%98%80", "/admin/policies/audit?limit=0", "/admin/audit?limit=0"),
    *("/admin/audit?limit=-5", f"/admin/audit?limit={10**40}", "/admin/audit?limit=nan"),
    *("/admin/audit?limit=1&limit=2", "/admin/audit?limit=", "/admin/decisions?limit=-1"),
    *("/admin/decisions?tenant=%00", "/admin/decisions?limit=1.5", "/admin/keys?tenant=%ff"),
    *(
        "/admin/keys/%00",
        "/admin/keys/../tenants",
        "/admin/pools/%0d%0a",
        "/admin/pools/" + "p" * 3000,
    ),
    *("/admin/tenants/%7Bdev%7D", "/admin/tenants/" + "t" * 5000, "/admin/tenants/é"),
    *("/admin/learning/%00", "/admin/learning/" + "l" * 5000, "/admin/learning/*", "/admin/tiers/"),
    *(
        "/admin/learning/x/reset",
        "/admin/learning/%ff/restore",
        "/admin/backends/x",
        "/admin/health/",
    ),
    *(
        "/admin/tiers/" + "t" * 5000,
        "/admin/tiers/%00",
        "/admin/keys/x/revoke",
        "/admin/keys/x/rotate",
    ),
    *(
        "/admin/policies/-1/activate",
        f"/admin/policies/{10**40}/activate",
        "/admin/policies/x/activate",
    ),
)

DOCUMENTS = {
    "of half a line": 'version = "',
    "of NULs": "\x00" * 100,
    "nested without end": "a = " + "[" * 5_000,
    "of JSON without end": '{"rules":' * 3_000,
    "with tables without end": ".".join("[a" for _ in range(3_000)),
    "with a dotted key of depth": ".".join("a" * 3_000) + " = 1",
    "of huge numbers": "band = { low = 1e400, high = -1e400 }",
    "of nan": "band = { low = nan, high = nan }",
    "of a 5,000-digit integer": "wait_ms = { fast = " + "9" * 5_000 + " }",
    "of an infinite percent": '[[rules]]\nname = "a"\nroute = "fast"\npercent = inf',
    "of a date": "version = 1979-05-27T07:32:00Z",
    "of a date that is none": "version = 9999-99-99",
    "of a surrogate": '{"version":"\\ud800"}',
    "of control characters": '{"version":"a\\r\\nset-cookie: b"}',
    "of a pattern that backtracks": (
        '[[rules]]\nname = "a"\nroute = "fast"\nwhen = { text_matches = "^(a+)+$" }'
    ),
    "of conditions without end": '[[rules]]\nname = "a"\nroute = "fast"\nwhen = '
    + "{ not = " * 500
    + "{}"
    + " }" * 500,
    "of a zone that is none": (
        '[[rules]]\nname = "a"\nroute = "fast"\nwhen = { time = { zone = "../../etc/passwd" } }'
    ),
    "of 300 rules": "\n".join(f'[[rules]]\nname = "r{n}"\nroute = "fast"' for n in range(300)),
    "of 5,000 tenants": "\n".join(f"[tenants.t{n}]" for n in range(5_000)),
    "of an alias of auto": '[aliases.auto]\nroute = "fast"',
    "of one key twice": _POLICY * 2,
    "of a megabyte": "# " + "x" * (1 << 20),
    "of line ends": "\r" * 10_000,
}

ADMIN: dict[str, tuple[str, str, str]] = {
    **{
        f"{what}: {odd}": (method, path, template.replace("?", value))
        for what, (method, path, template) in _TEMPLATES.items()
        for odd, value in ODD_VALUES.items()
    },
    **{
        f"{method} {path[:60]}": (method, path, text)
        for path in _PATHS
        for method, text in (("GET", ""), ("POST", "{}"), ("DELETE", ""), ("PUT", "[]"))
    },
    **{
        f"a document {name}, {path[7:]}": ("POST", path, json.dumps({**more, "document": document}))
        for name, document in DOCUMENTS.items()
        for path, more in (
            ("/admin/policies/check", {}),
            ("/admin/policies", {}),
            ("/admin/policies/diff", {}),
            ("/admin/explain", {"prompt": "x"}),
        )
    },
}
