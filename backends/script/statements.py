"""SQL and shell: languages of statements, which `syntax.py`'s functions do not fit."""

from backends.script.chance import Chance
from backends.script.topic import Topic

_COLUMNS = (
    "status text", "amount integer", "region text", "created_at timestamp", "owner_id integer",
    "priority integer", "label text", "weight numeric", "checked boolean", "source text",
)  # fmt: skip
_QUERIES: tuple[str, ...] = (
    "SELECT {c}, count(*) AS number\nFROM {n}s\nGROUP BY {c}\nHAVING count(*) > {k}\n"
    "ORDER BY number DESC;",
    "SELECT id, {c}, {d}\nFROM {n}s\nWHERE {c} IS NOT NULL\nORDER BY {d}\nLIMIT {k};",
    "CREATE INDEX {n}s_{c}_{k}_idx ON {n}s ({c}, id);",
    "WITH ranked AS (\n    SELECT id, {c}, row_number() OVER (PARTITION BY {c} ORDER BY {d}) AS n\n"
    "    FROM {n}s\n)\nSELECT id, {c} FROM ranked WHERE n <= {k};",
    "UPDATE {n}s SET {c} = NULL\nWHERE id IN (SELECT id FROM {n}s ORDER BY id LIMIT {k});",
    "DELETE FROM {n}s\nWHERE {c} IS NULL AND id < {k};",
    "SELECT a.id, b.id AS next_id\nFROM {n}s AS a\nJOIN {n}s AS b ON b.id = a.id + {k}\n"
    "WHERE a.{c} = b.{c};",
)
_COMMANDS: tuple[str, ...] = (
    '{n}_{k}_count() {{\n    local path="${{1:?path}}"\n    grep -c "{w}" "$path" || true\n}}',
    "{n}_{k}_each() {{\n    while read -r line; do\n        printf '%s\\n' \"${{line%%{w}*}}\"\n"
    "    done\n}}",
    "{n}_{k}_retry() {{\n    local attempt\n    for attempt in 1 2 3; do\n"
    '        "$@" && return 0\n'
    '        sleep "$attempt"\n    done\n    return 1\n}}',
    '{n}_{k}_newest() {{\n    find "${{1:-.}}" -name "*{w}*" -type f -printf \'%T@ %p\\n\' |\n'
    "        sort -rn | head -n {k} | cut -d' ' -f2-\n}}",
    '{n}_{k}_check() {{\n    if [[ ! -r "$1" ]]; then\n        echo "cannot read $1" >&2\n'
    "        return {k}\n    fi\n}}",
    "{n}_{k}_sum() {{\n    awk '{{ total += $1 % {k} }} END {{ print total + 0 }}' \"$@\"\n}}",
)


def write_statements(language: str, topic: Topic, chance: Chance, num_tokens: int) -> str:
    """A script of about so many tokens in "sql" or "bash"."""
    noun = "".join(char for char in topic.noun if char.isascii() and char.isalpha()) or "record"
    columns = chance.some(_COLUMNS, 5)
    names = [column.split()[0] for column in columns]
    if language == "sql":
        table = ",\n".join(f"    {column}" for column in columns)
        blocks = [f"CREATE TABLE {noun}s (\n    id integer PRIMARY KEY,\n{table}\n);"]
        patterns = _QUERIES
    else:
        blocks = ["#!/usr/bin/env bash\nset -euo pipefail"]
        patterns = _COMMANDS
    num_chars = len(blocks[0])
    while num_chars < num_tokens * 3:
        text = chance.pick(patterns).format(
            n=noun,
            w=chance.pick(topic.words or (noun,)),
            c=chance.pick(names),
            d=chance.pick(names),
            k=chance.between(2, 99),
        )
        if text not in blocks:
            blocks.append(text)
            num_chars += len(text)
        else:
            num_chars += 20  # ends the search where everything has been said
    return "\n\n".join(blocks)
