"""How programming languages write the few things that generated programs need.

A `Syntax` is a table of format strings. Expressions are plain text in all of them: generated code
keeps to arithmetic, comparisons and calls that these languages spell alike.
"""

import msgspec


class Syntax(msgspec.Struct, frozen=True, kw_only=True):
    """One language. Braces of the language itself are doubled, as in `str.format`."""

    label: str  # the fence's
    title: str  # in prose
    comment: str  # begins a line comment
    indent: str = "    "
    camel: bool = True  # names like camelCase, else snake_case
    header: tuple[str, ...] = ()  # a file's first lines
    footer: tuple[str, ...] = ()
    depth: int = 0  # indentation of functions within header and footer
    function: str  # {name}
    end: str = "}}"
    let: str  # {name} {value}: a number
    set: str  # {name} {value}
    new_list: str  # {name}: a list of integers
    new_map: str  # {name}: integers by integer
    push: str  # {name} {value}
    put: str  # {name} {key} {value}
    get_or_zero: str  # {name} {key}
    length: str  # {name}
    each: str  # {item} {name}
    count_up: str  # {item} {low} {high}
    when: str  # {condition}
    otherwise: str
    loop: str  # {condition}
    give_back: str  # {value}
    fail: str  # {message}
    both: str = "&&"
    call: tuple[str, ...]  # {out} {name} {value}: a call of another generated function
    check: str  # {name} {given} {limit} {expected}: one line of a test
    given: str  # {values}: a list literal
    expected: str  # {values}: a list literal, as a test compares with
    test_open: str  # {name} {case}
    test_end: str = "}}"


PYTHON = Syntax(
    label="python",
    title="Python",
    comment="#",
    camel=False,
    function="def {name}(values: list[int], limit: int) -> list[int]:",
    end="",
    let="{name} = {value}",
    set="{name} = {value}",
    new_list="{name} = []",
    new_map="{name} = {{}}",
    push="{name}.append({value})",
    put="{name}[{key}] = {value}",
    get_or_zero="{name}.get({key}, 0)",
    length="len({name})",
    each="for {item} in {name}:",
    count_up="for {item} in range({low}, {high}):",
    when="if {condition}:",
    otherwise="else:",
    loop="while {condition}:",
    give_back="return {value}",
    fail='raise ValueError("{message}")',
    both="and",
    call=("{out} = {name}({value}, limit)",),
    check="assert {name}({given}, {limit}) == {expected}",
    given="[{values}]",
    expected="[{values}]",
    test_open="def test_{name}_{case}() -> None:",
    test_end="",
)

TYPESCRIPT = Syntax(
    label="typescript",
    title="TypeScript",
    comment="//",
    indent="  ",
    function="export function {name}(values: number[], limit: number): number[] {{",
    let="let {name} = {value};",
    set="{name} = {value};",
    new_list="const {name}: number[] = [];",
    new_map="const {name} = new Map<number, number>();",
    push="{name}.push({value});",
    put="{name}.set({key}, {value});",
    get_or_zero="({name}.get({key}) ?? 0)",
    length="{name}.length",
    each="for (const {item} of {name}) {{",
    count_up="for (let {item} = {low}; {item} < {high}; {item}++) {{",
    when="if ({condition}) {{",
    otherwise="}} else {{",
    loop="while ({condition}) {{",
    give_back="return {value};",
    fail='throw new Error("{message}");',
    call=("const {out} = {name}({value}, limit);",),
    check="expect({name}({given}, {limit})).toEqual({expected});",
    given="[{values}]",
    expected="[{values}]",
    test_open='test("{name}: {case}", () => {{',
    test_end="}});",
)

JAVASCRIPT = msgspec.structs.replace(
    TYPESCRIPT,
    label="javascript",
    title="JavaScript",
    function="export function {name}(values, limit) {{",
    new_list="const {name} = [];",
    new_map="const {name} = new Map();",
)

GO = Syntax(
    label="go",
    title="Go",
    comment="//",
    indent="\t",
    header=("package solution", "", 'import "errors"', ""),
    function="func {name}(values []int, limit int) ([]int, error) {{",
    let="{name} := {value}",
    set="{name} = {value}",
    new_list="{name} := []int{{}}",
    new_map="{name} := map[int]int{{}}",
    push="{name} = append({name}, {value})",
    put="{name}[{key}] = {value}",
    get_or_zero="{name}[{key}]",
    length="len({name})",
    each="for _, {item} := range {name} {{",
    count_up="for {item} := {low}; {item} < {high}; {item}++ {{",
    when="if {condition} {{",
    otherwise="}} else {{",
    loop="for {condition} {{",
    give_back="return {value}, nil",
    fail='return nil, errors.New("{message}")',
    call=("{out}, err := {name}({value}, limit)", "if err != nil {{", "\treturn nil, err", "}}"),
    check="if got, _ := {name}({given}, {limit}); !slices.Equal(got, {expected}) "
    "{{ t.Error(got) }}",
    given="[]int{{{values}}}",
    expected="[]int{{{values}}}",
    test_open="func Test_{name}_{case}(t *testing.T) {{",
)

RUST = Syntax(
    label="rust",
    title="Rust",
    comment="//",
    camel=False,
    header=("use std::collections::HashMap;", ""),
    function="pub fn {name}(values: &[i64], limit: i64) -> Result<Vec<i64>, String> {{",
    let="let mut {name} = {value};",
    set="{name} = {value};",
    new_list="let mut {name}: Vec<i64> = Vec::new();",
    new_map="let mut {name}: HashMap<i64, i64> = HashMap::new();",
    push="{name}.push({value});",
    put="{name}.insert({key}, {value});",
    get_or_zero="{name}.get(&{key}).copied().unwrap_or(0)",
    length="({name}.len() as i64)",
    each="for &{item} in {name}.iter() {{",
    count_up="for {item} in {low}..{high} {{",
    when="if {condition} {{",
    otherwise="}} else {{",
    loop="while {condition} {{",
    give_back="Ok({value}.to_vec())",
    fail='return Err("{message}".to_string());',
    call=("let mut {out} = {name}(&{value}, limit)?;",),
    check="assert_eq!({name}(&{given}, {limit}), Ok({expected}));",
    given="[{values}]",
    expected="vec![{values}]",
    test_open="#[test] fn {name}_{case}() {{",
)

JAVA = Syntax(
    label="java",
    title="Java",
    comment="//",
    header=("import java.util.*;", "", "public final class Solution {"),
    footer=("}",),
    depth=1,
    function="public static List<Integer> {name}(List<Integer> values, int limit) {{",
    let="int {name} = {value};",
    set="{name} = {value};",
    new_list="List<Integer> {name} = new ArrayList<>();",
    new_map="Map<Integer, Integer> {name} = new HashMap<>();",
    push="{name}.add({value});",
    put="{name}.put({key}, {value});",
    get_or_zero="{name}.getOrDefault({key}, 0)",
    length="{name}.size()",
    each="for (int {item} : {name}) {{",
    count_up="for (int {item} = {low}; {item} < {high}; {item}++) {{",
    when="if ({condition}) {{",
    otherwise="}} else {{",
    loop="while ({condition}) {{",
    give_back="return {value};",
    fail='throw new IllegalArgumentException("{message}");',
    call=("List<Integer> {out} = {name}({value}, limit);",),
    check="assertEquals({expected}, {name}({given}, {limit}));",
    given="List.of({values})",
    expected="List.of({values})",
    test_open="@Test void {name}_{case}() {{",
)

CPP = Syntax(
    label="cpp",
    title="C++",
    comment="//",
    camel=False,
    header=(
        "#include <stdexcept>",
        "#include <unordered_map>",
        "#include <vector>",
        "",
    ),
    function="std::vector<int> {name}(const std::vector<int>& values, int limit) {{",
    let="int {name} = {value};",
    set="{name} = {value};",
    new_list="std::vector<int> {name};",
    new_map="std::unordered_map<int, int> {name};",
    push="{name}.push_back({value});",
    put="{name}[{key}] = {value};",
    get_or_zero="{name}[{key}]",
    length="static_cast<int>({name}.size())",
    each="for (int {item} : {name}) {{",
    count_up="for (int {item} = {low}; {item} < {high}; ++{item}) {{",
    when="if ({condition}) {{",
    otherwise="}} else {{",
    loop="while ({condition}) {{",
    give_back="return {value};",
    fail='throw std::invalid_argument("{message}");',
    call=("std::vector<int> {out} = {name}({value}, limit);",),
    check="assert(({name}({given}, {limit}) == std::vector<int>{expected}));",
    given="{{{values}}}",
    expected="{{{values}}}",
    test_open="void test_{name}_{case}() {{",
)

CSHARP = msgspec.structs.replace(
    JAVA,
    label="csharp",
    title="C#",
    header=(
        "using System;",
        "using System.Collections.Generic;",
        "",
        "public static class Solution",
        "{",
    ),
    function="public static List<int> {name}(List<int> values, int limit) {{",
    new_list="var {name} = new List<int>();",
    new_map="var {name} = new Dictionary<int, int>();",
    push="{name}.Add({value});",
    put="{name}[{key}] = {value};",
    get_or_zero="{name}.GetValueOrDefault({key})",
    length="{name}.Count",
    each="foreach (int {item} in {name}) {{",
    fail='throw new ArgumentException("{message}");',
    call=("var {out} = {name}({value}, limit);",),
    check="Assert.Equal({expected}, {name}({given}, {limit}));",
    given="new List<int> {{ {values} }}",
    expected="new List<int> {{ {values} }}",
    test_open="[Fact] public void {name}_{case}() {{",
)

SYNTAXES = {
    syntax.label: syntax for syntax in (PYTHON, TYPESCRIPT, JAVASCRIPT, GO, RUST, JAVA, CPP, CSHARP)
}
