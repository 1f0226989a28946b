#!/usr/bin/env python3
"""Writes the golden values of tests/chat: what transformers' apply_chat_template gives.

usage: golden_chat.py [OUT_DIR] [--templates DIR] [--only expressions|conversations]   (OUT_DIR: by default tests/golden/chat)

expressions.json holds templates over one context with their text, or "error" where Jinja fails, or "raised" with the message of
raise_exception. conversations.json holds conversations with the text of each built-in template, from the formats written here
in Python. With --templates DIR, the formats are compared with the models' own templates in DIR (llama3.jinja, qwen.jinja, …).
With --only, only that file is written.
Needs transformers and Jinja2; the tests do not.
"""
import copy
import datetime
import json
import pathlib

import jinja2
import transformers.utils.chat_template_utils as chat_template_utils

from golden import GOLDEN, parser


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 15, 4, 5, 123456)


chat_template_utils.datetime = FixedTime

CONTEXT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  Wie groß? \n"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "size", "arguments": {"of": "π", "n": 2}}}]},
        {"role": "tool", "content": "3.14"},
    ],
    "text": "Hello, World",
    "spaces": " \t a  b\nc \u00a0",
    "unicode": "Straße ΑΣ ﬁ 日本 🎉",
    "html": "<b a='1'>\"&\"</b>",
    "lines": "one\n\ntwo\r\n  three\n",
    "empty": "",
    "digits": "042",
    "numbers": [3, 1, 2],
    "mixed": [1, 2.5, None, True, "x", [], {}],
    "words": ["b", "A", "c", "a"],
    "people": [{"name": "Zoe", "age": 3, "a": {"b": 1}}, {"name": "adam", "age": 20}, {"name": "Bob", "age": 3, "a": {"b": 0}}],
    "mapping": {"b": 1, "a": [1, {"c": None}], "items": "own", "C": 0.1},
    "i": 7, "f": 2.5, "yes": True, "no": False, "nothing": None,
}

OPERANDS = ["1", "-7", "2.5", "'a'", "'%s-%s'", "[1, 'b']", "(1, 2)", "{'a': 1}", "true", "none", "missing", "text", "numbers"]
STRINGS = ["text", "spaces", "unicode", "html", "lines", "empty", "digits", "'it\\'s \"q\"'", "'a,b,,c'"]
PLAIN_FILTERS = ["trim", "upper", "lower", "capitalize", "title", "string", "length", "first", "last", "reverse", "list", "int", "float",
                 "wordcount", "escape", "urlencode", "tojson", "indent", "center(20)", "safe", "forceescape", "unique|list", "sort",
                 "min", "max", "abs", "sum", "join('-')", "items|list", "dictsort", "batch(2)|list", "slice(2)|list", "round",
                 "default('d')", "default('d', true)", "filesizeformat", "count", "map('upper')|list", "select|list", "reject|list"]
VALUES = ["text", "unicode", "digits", "numbers", "mixed", "words", "mapping", "i", "f", "yes", "nothing", "missing", "range(4)", "(1, 'x')"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true",
         "false", "odd", "even", "lower", "upper", "callable", "divisibleby 2", "in numbers", "eq 7", "ne 7", "lt 3", "ge 2", "sameas none",
         "equalto 'x'"]
METHODS = ["split()", "split(',')", "split('l', 1)", "rsplit(None, 1)", "rsplit('l', 1)", "split(maxsplit=1)", "strip()", "lstrip()", "rstrip()",
           "strip('H d')", "lstrip('He')", "rstrip('dl')", "startswith('He')", "startswith(('x', 'He'))", "endswith('ld')", "endswith('')",
           "replace('l', 'L')", "replace('l', '', 1)", "replace('', '-')", "upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()",
           "find('l')", "find('l', 5)", "rfind('l')", "index('o')", "rindex('o')", "count('l')", "count('')", "splitlines()", "splitlines(true)",
           "isdigit()", "isdecimal()", "isnumeric()", "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()", "istitle()", "isascii()",
           "isidentifier()", "isprintable()", "partition(' ')", "rpartition('l')", "removeprefix('He')", "removesuffix('ld')", "center(20, '*')",
           "ljust(15)", "rjust(15, '.')", "zfill(15)", "expandtabs(4)", "join(words)", "nosuch()"]
SPECIFIC = """
{{ 1 + 2 * 3 ** 2 }}|{{ -2 ** 2 }}|{{ 2 ** -1 }}|{{ 7 // -2 }}|{{ -7 % 3 }}|{{ 7.5 // 2 }}|{{ -7.5 % 2 }}|{{ 1 / 2 }}|{{ 4 / 2 }}|{{ 1 // 0 }}|{{ 10 ** 15 * 1.0 }}|{{ 1e16 }}|{{ 1e-5 }}|{{ 0.1 + 0.2 }}
{{ 1_000 }}|{{ 1.5e3 }}|{{ 'a' 'b' }}|{{ 'a' ~ 1 ~ none ~ missing ~ [1] }}|{{ 'ab' * 3 }}|{{ 3 * [1] }}|{{ 'x' * -1 }}|{{ [1] + [2] }}|{{ (1,) + (2,) }}|{{ [1] + (2,) }}
{{ 1 < 2 < 3 }}|{{ 1 < 3 < 2 }}|{{ 1 == 1.0 == true }}|{{ 'a' < 'B' }}|{{ [1, 2] < [1, 3] }}|{{ none < 1 }}|{{ 'a' in 'cat' }}|{{ 1 in [1.0] }}|{{ 'a' not in mapping }}|{{ 1 in 'a' }}|{{ 'x' in missing }}|{{ 'x' in none }}
{{ not 1 }}|{{ 0 or 'x' }}|{{ 1 and '' }}|{{ none or missing }}|{{ 'a' if yes else 'b' }}|{{ 'a' if no }}|{{ ('a' if no).b }}|{{ not yes is defined }}|{{ yes is not none }}|{{ (missing is defined) and missing.x }}
{{ text[0] }}|{{ text[-1] }}|{{ text[99] }}|{{ text[1:5] }}|{{ text[::-1] }}|{{ unicode[2:9] }}|{{ unicode[::-2] }}|{{ numbers[5:1:-1] }}|{{ numbers[:-1] }}|{{ numbers[::0] }}|{{ numbers[-2:] }}|{{ numbers['a'] }}|{{ none[0] }}|{{ nothing[1:] }}|{{ numbers['a':] }}|{{ mapping[1:] }}|{{ missing[1:] }}|{{ i[:2] }}|{{ words | truncate }}|{{ missing[0] }}
{{ mapping.a }}|{{ mapping['items'] }}|{{ mapping.items() | list }}|{{ mapping.nosuch }}|{{ mapping.nosuch.deeper }}|{{ mapping.get('b') }}|{{ mapping.get('z', 5) }}|{{ mapping.keys() | list }}|{{ mapping.values() }}|{{ mapping.items() }}|{{ mapping.items() | length }}|{{ 'a' in mapping.keys() }}|{{ mapping.pop('a') }}|{{ numbers.append(1) }}|{{ numbers.append }}|{{ numbers.count(1) }}|{{ numbers.index(2) }}|{{ numbers.index(9) }}|{{ messages.0.role }}|{{ text.__class__ }}|{{ text.__class__.x }}
{{ mixed }}|{{ mapping }}|{{ people[0] }}|{{ (1,) }}|{{ () }}|{{ [html] }}|{{ [unicode, '\\x00\\u200b'] }}|{{ [1.0, 1e100, -0.0] }}|{{ {1: 2, 'a': none, true: 3} }}|{{ range(3) }}|{{ range(5, 0, -2) | list }}|{{ range(100001) }}|{{ range(1, 2, 0) }}|{{ range(10)[2:8:3] }}|{{ range(10)[-1] }}|{{ 3 in range(5) }}
{{ mapping | tojson }}|{{ mapping | tojson(indent=2) }}|{{ unicode | tojson }}|{{ unicode | tojson(ensure_ascii=true) }}|{{ mapping | tojson(sort_keys=true) }}|{{ mapping | tojson(separators=(',', ':')) }}|{{ [] | tojson(indent=4) }}|{{ missing | tojson }}|{{ html | tojson }}|{{ {1: 2.0, none: true} | tojson }}|{{ (1, 'a') | tojson }}|{{ '\\n\\t\\x7f\\\\' | tojson }}|{{ numbers | map('string') | tojson }}|{{ mapping | tojson(4) }}|{{ mapping | tojson(indent='--') }}
{{ '%s is %d' % ('a', 3) }}|{{ '%5.2f|%-5s|%05d|%+d|%x' % (3.14159, 'ab', 42, 7, 255) }}|{{ '%(a)s' % {'a': 1} }}|{{ '%s' % [1] }}|{{ '%d' % 'a' }}|{{ '%s %s' % 'a' }}|{{ '100%%' % () }}|{{ '%r' % 'a' }}|{{ '%e' % 12345.678 }}|{{ '%g' % 0.00001 }}|{{ '%s' | format(1) }}
{{ '{} {}'.format(1, 'a') }}|{{ '{0}{1}{0}'.format('a', 'b') }}|{{ '{x:>5}|{y:.2f}'.format(x='a', y=1.005) }}|{{ '{:,}'.format(1234567) }}|{{ '{:05d}'.format(-42) }}|{{ '{:^9}'.format('mid') }}|{{ '{a[b]} {c.role}'.format(a={'b': 1}, c=messages[0]) }}|{{ '{{}}'.format() }}|{{ '{!r}'.format('q') }}|{{ '{}'.format() }}|{{ '{:%}'.format(0.25) }}|{{ '{:x}'.format(255) }}
{{ people | map(attribute='name') | join(', ') }}|{{ people | map(attribute='a.b', default='-') | list }}|{{ people | selectattr('age', 'gt', 5) | map(attribute='name') | list }}|{{ people | selectattr('a') | list | length }}|{{ people | rejectattr('age', 'equalto', 3) | first }}|{{ people | sort(attribute='age,name') | map(attribute='name') | list }}|{{ people | sort(attribute='name') | map(attribute='name') | list }}|{{ people | groupby('age') | list }}|{{ people | sum(attribute='age') }}|{{ people | map(attribute='nosuch') | list }}|{{ people | max(attribute='age') }}|{{ people | unique(attribute='age') | list | length }}|{{ people | join('/', attribute='name') }}
{{ words | sort }}|{{ words | sort(case_sensitive=true) }}|{{ words | sort(reverse=true) }}|{{ words | unique | list }}|{{ words | map('upper') | join }}|{{ words | select('in', ['a', 'b']) | list }}|{{ words | map('nosuch') }}|{{ words | map('nosuch') | list }}|{{ mixed | select('string') | list }}|{{ mixed | sort }}|{{ numbers | select('odd') | list | length }}|{{ numbers | select('odd') | length }}|{{ none | map('upper') | list }}|{{ numbers | map | list }}|{{ numbers | reverse | list }}|{{ numbers | reverse | first }}|{{ numbers | batch(2, 'x') | list }}|{{ numbers | slice(2, 'x') | list }}|{{ [] | first }}|{{ [] | last }}|{{ [] | max }}|{{ [[1], [2]] | sum(start=[]) }}
{{ lines | indent }}|{{ lines | indent(2, true) }}|{{ lines | indent('> ', blank=true) }}|{{ text | replace('l', 'L', 2) }}|{{ 12 | replace(1, 'x') }}|{{ text | truncate(5) }}|{{ 'abcdefghijklmnop qrst' | truncate(10) }}|{{ 'abcdefghijklmnop qrst' | truncate(10, true, '~') }}|{{ 'ff' | int(base=16) }}|{{ '0x1f' | int(base=16) }}|{{ 'z' | int(-1) }}|{{ '4.9' | int }}|{{ ' 12 ' | int }}|{{ '1_0' | int }}|{{ '1e3' | float }}|{{ 'x' | float(1) }}|{{ 2.675 | round(2) }}|{{ 2.5 | round }}|{{ 3.5 | round | int }}|{{ 42.55 | round(1, 'floor') }}|{{ 5 | round(-1) }}|{{ 1234 | round(-2) }}|{{ -3 | abs }}|{{ missing | default('x') }}|{{ none | default('x') }}|{{ '' | d('x', true) }}|{{ mapping | dictsort }}|{{ mapping | dictsort(true, 'key', true) }}|{{ mapping | length }}|{{ 'a b/c?ü' | urlencode }}|{{ {'q': 'a b', 'ü': 1} | urlencode }}|{{ mapping | items | first }}|{{ text | attr('upper') is callable }}|{{ mapping | attr('a') }}|{{ text | nosuch }}|{{ text is nosuch }}|{% if no %}{{ text | nosuch }}{% endif %}ok
{{ html | safe + '<' }}|{{ '<' ~ (html | safe) }}|{{ [html | escape] }}|{{ (html | escape) | length }}
{% for x in numbers %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}|{% for x in [] %}a{% else %}none{% endfor %}|{% for x in missing %}a{% else %}none{% endfor %}|{% for x in none %}{% endfor %}|{% for k, v in mapping.items() %}{{ k }}={{ v }};{% endfor %}|{% for k in mapping %}{{ k }}{% endfor %}|{% for c in unicode %}{{ c }}.{% endfor %}|{% for x in numbers if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }};{% endfor %}|{% for x in numbers if x > 9 %}{% else %}none{% endfor %}|{% for a, b in [(1, 2), [3, 4]] %}{{ a + b }}{% endfor %}|{% for a, b in [1] %}{% endfor %}|{% for x in numbers %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}|{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }}{% endfor %}|{% for x in numbers %}{% for y in numbers %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}|{% for x in numbers | map('string') %}{{ loop.last }}{{ loop.length }}{% endfor %}|{% for x in [1] %}{{ text }}{% endfor %}{% set text = 1 %}|{% for x in [1] %}{{ text }}{% endfor %}{% if i %}{% set text = 1 %}{% endif %}|{% set text %}{{ text }}{% endset %}{{ text }}|{% set text = text %}{% for x in [1] %}{{ text }}{% endfor %}|{{ loop }}|{% break %}|{% for x in numbers %}{% continue %}{% else %}none{% endfor %}|{% for x in numbers %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% else %}none{% endfor %}|{% for x in numbers %}{% set y %}a{% break %}{% endset %}{{ x }}{% endfor %}|{% for x in numbers %}{% filter upper %}a{% continue %}{% endfilter %}{{ x }}{% endfor %}b|{% for x in numbers %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{% set x = 1 %}{% for y in numbers %}{% set x = x + y %}{{ x }},{% endfor %}{{ x }}|{% set ns = namespace(x=1) %}{% for y in numbers %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }} {{ ns }}|{% set a, b = 1, 2 %}{{ a }}{{ b }}|{% set a = 1, 2 %}{{ a }}|{% set x %} a {{ i }} {% endset %}[{{ x }}]|{% set x | upper | trim %} a {% endset %}[{{ x }}]|{% set ns = namespace() %}{{ ns.x }}{% set ns._x = 1 %}|{% set mapping.x = 1 %}|{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }}|{{ dict(a=1, b=[2]) }}|{{ dict([('a', 1)]) }}|{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}|{% if missing %}a{% elif i > 5 %}b{% else %}c{% endif %}|{% if no %}{% set q = 1 %}{% endif %}{{ q is defined }}|{% filter upper | trim %} a{{ i }}b {% endfilter %}
{% macro m(a, b='x') %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=1, a=2) }}{{ m() }}|{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}|{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=1) }}|{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}|{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(4) }}|{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in{{ i }}{% endcall %}|{% macro m() %}{{ caller('a') }}{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}|{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}|{% macro m(a=i, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}|{% macro m() %}{% endmacro %}{{ m }}{{ m.name }}|{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}|{{ m(*[1], **{'b': 2}) }}|{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1], **{'b': 2}) }}|{% for x in numbers %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}
{{ raise_exception('no ' ~ text) }}|{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}|{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%Y-%m-%d %H:%M:%S.%f %A %j %p %I') }}|{{ joiner() is callable }}|{% set j = joiner('; ') %}{{ j() }}a{{ j() }}b|{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}|{{ text() }}|{{ missing() }}|{{ none.x }}|{{ none.x.y }}|{{ missing.x }}|{{ -missing }}|{{ missing + 1 }}|{{ missing == nosuch }}|{{ missing | length }}|{{ [missing] }}|{{ missing | list }}|{{ missing | upper }}|{{ missing | int }}
{% generation %}a{{ i }}{% endgeneration %}b|{% for m in messages %}{{ m.role }}:{% generation %}{{ m.content }}ü{% endgeneration %};{% endfor %}|a {% raw %}{{ x }}{% endraw %} b|{# c #}a{#- c -#} b|a {{- ' b ' -}} c|a  {%- if yes %} b {% endif -%}  c|{% if yes +%} b {%+ endif %} c|{{ '\\u00e9\\x41\\101\\n\\q' }}|{{ "a\\"b" }}|{{ 'a
b' }}|{{ }}|{{ 1 +  }}|{% if %}{% endif %}|{% for x in %}{% endfor %}|{% if yes %}|{% endif %}|{{ a b }}|{{ (1 }}|{{ 1) }}|{% nosuch %}|{{ 'a |{# open|{% raw %} a|{{ {'a': {'b': 1}}.a.b }}|{{ {'a': 1,} }}{{ [1,] }}{{ (1,) }}|{{ true True false False none None }}|{{ True }}{{ False }}{{ None }}|{{ 007 }}|{{ -0.5 | filesizeformat }}|{{ 5000 | filesizeformat }}|{{ 1.e }}|{{ é }}|{{ @ }}|{% set true = 1 %}|{{ x is none is none }}|{{ i is divisibleby(7) }}|{{ i is divisibleby 7 and yes }}|{{ not i is odd }}|{{ [1, 2] is sequence }}
"""
WHITE_SPACE = ["a\n{% if yes %}\nb\n{% endif %}\nc\n", "  {% if yes %}  \n  b\n  {%- endif %}\nc", "{% if yes -%}\n\n b {%- endif %}  d", "a\r\nb\r{{ i }}\n\n",
               "  {{ i }}\n  {# note #}\n  x", "\t{%+ if yes %}x{% endif %}\n\n", "x {% if yes %}y{% endif %}\nz", "{# a #}\nb\n{#- c #}\n d", "a{% set x = 1 %}\n\nb",
               "{%- for x in numbers -%}\n {{ x }}\n{%- endfor -%}\n end \n", " \u00a0{%- if yes %}\u3000{% endif %}", "{{ i -}} \n {{- i }}", "{% raw -%}\n {{ a }} {%- endraw %}\n b"]


def templates():
    for a in OPERANDS:
        for b in OPERANDS[:8] + ["none", "missing"]:
            for symbol in ["+", "*", "%", "==", "<", "in"]:
                yield "{{ " + a + " " + symbol + " " + b + " }}"
    for string in STRINGS:
        for method in METHODS:
            yield "{{ " + string + "." + method + " }}"
    for value in VALUES:
        for name in PLAIN_FILTERS:
            yield "{{ " + value + " | " + name + " }}"
        for name in TESTS:
            yield "{{ " + value + " is " + name + " }}"
    for block in SPECIFIC.strip("\n").replace("|{{", "\0{{").replace("|{%", "\0{%").replace("|a {", "\0a {").replace("|a  {", "\0a  {").replace("|{#", "\0{#").replace("}}\n{", "}}\0{").replace("%}\n{", "%}\0{").split("\0"):
        yield block
    yield from WHITE_SPACE


def render(template, context):
    try:
        compiled = chat_template_utils._compile_jinja_template(template)
        blocks, ranges = [], []
        with compiled.environment.activate_tracker(blocks, ranges):
            for block in compiled.generate(**context):
                blocks.append(block)
        text = "".join(blocks)
        result = {"text": text}
        if ranges:
            result["generations"] = [[len(text[:a].encode()), len(text[:b].encode())] for a, b in ranges]
        return result if " at 0x" not in text else None
    except jinja2.exceptions.TemplateError as error:
        return {"raised": str(error)} if type(error) is jinja2.exceptions.TemplateError else {"error": True}
    except Exception:  # Python's own errors: types, division by zero, endless recursion
        return {"error": True}


class Rejected(Exception):
    pass


def chatml(messages, prompt):
    text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return text + ("<|im_start|>assistant\n" if prompt else "")


def qwen(messages, prompt):
    if messages[0]["role"] != "system":
        messages = [{"role": "system", "content": "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."}] + messages
    return chatml(messages, prompt)


def llama3(messages, prompt):
    head = "<|start_header_id|>{}<|end_header_id|>\n\n"
    text = "<s>" + "".join(head.format(m["role"]) + m["content"].strip() + "<|eot_id|>" for m in messages)
    return text + (head.format("assistant") if prompt else "")


def turns_of(messages, message):
    system = messages[0]["content"] if messages[0]["role"] == "system" else None
    turns = messages[system is not None:]
    for i, m in enumerate(turns):
        if (m["role"] == "user") != (i % 2 == 0):
            raise Rejected(message)
    return system, turns


def mistral(messages, prompt):
    system, turns = turns_of(messages, "After the optional system message, conversation roles must alternate user/assistant/user/assistant/...")
    text = "<s>"
    for i, m in enumerate(turns):
        if m["role"] == "assistant":
            text += " " + m["content"].strip() + "</s>"
        else:
            text += "[INST] " + (system + "\n\n" if system is not None and i + 1 == len(turns) else "") + m["content"] + "[/INST]"
    return text


def gemma(messages, prompt):
    system, turns = turns_of(messages, "Conversation roles must alternate user/assistant/user/assistant/...")
    text = "<s>"
    for i, m in enumerate(turns):
        role = "model" if m["role"] == "assistant" else m["role"]
        prefix = system + "\n\n" if system is not None and i == 0 else ""
        text += f"<start_of_turn>{role}\n{prefix}{m['content'].strip()}<end_of_turn>\n"
    return text + ("<start_of_turn>model\n" if prompt else "")


def rwkv(messages, prompt):
    text = ""
    for i, m in enumerate(messages):
        ends = m["role"] == "assistant" and i + 1 == len(messages) and not prompt
        text += f"{m['role'].capitalize()}: {m['content'].strip()}" + ("" if ends else "\n\n")
    return text + ("Assistant:" if prompt else "")


CONTENTS = ["Hello", "  spaces around \n", "", "Übergröße 日本語 🎉", "two\nlines\n", "<|im_end|> [/INST] {{ x }}"]
ROLES = ["u", "su", "ua", "sua", "uau", "suau", "suaua", "a", "uu", "usa", "sau"]


def conversations():
    names = {"s": "system", "u": "user", "a": "assistant"}
    at = 0
    for roles in ROLES:
        for prompt in (False, True):
            messages = []
            for role in roles:
                messages.append({"role": names[role], "content": CONTENTS[at % len(CONTENTS)]})
                at += 1
            yield messages, prompt


def conversation_rows(templates):
    rows = []
    for format in (chatml, qwen, llama3, mistral, gemma, rwkv):
        own = templates and templates / f"{format.__name__}.jinja"
        for messages, prompt in conversations():
            try:
                result = {"text": format(messages, prompt)}
            except Rejected as error:
                result = {"raised": str(error)}
            if own and own.exists():
                context = {"messages": messages, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>"}
                assert render(own.read_text(), context) == result, (format.__name__, messages, result)
            rows.append({"template": format.__name__, "messages": messages, "add_generation_prompt": prompt, **result})
    return rows


def write_expressions(path):
    rows = []
    for template in dict.fromkeys(templates()):
        result = render(template, copy.deepcopy(CONTEXT))  # indent changes a list in place
        if result is not None:
            rows.append({"template": template, **result})
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps({"context": CONTEXT}, ensure_ascii=False)[:-1] + ',\n"rows": [\n')
        file.write(",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]}\n")
    print(len(rows), "expressions")


def write_conversations(path, templates):
    rows = conversation_rows(templates)
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n")
    print(len(rows), "conversations")


def main():
    options = parser(__doc__, ["expressions", "conversations"])
    options.add_argument("out", nargs="?", type=pathlib.Path, default=GOLDEN / "chat")
    options.add_argument("--templates", type=pathlib.Path)
    args = options.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.only != "conversations":
        write_expressions(args.out / "expressions.json")
    if args.only != "expressions":
        write_conversations(args.out / "conversations.json", args.templates)


if __name__ == "__main__":
    main()
