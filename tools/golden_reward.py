#!/usr/bin/env python3
"""Writes tests/text/reward/golden/kk.jsonl.gz: randomized responses to Knights-and-Knaves puzzles and their rewards.

The rule is written anew here from docs/data.md ("How an answer is scored"), with Python's regular expressions. Each line is
{"response", "solution_text_format", "format", "answer"}. Responses are right, wrong or broken in one or several ways: tags
that are missing, doubled, misspelt or in another order, markers that are missing or doubled, names and roles in other letter
case or scripts, inside other words, claimed twice, separated by other white space.

Usage: golden_reward.py OUT [--count 6000] [--seed 1]
"""
import argparse
import gzip
import json
import random
import re
import unicodedata

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
# Every spelling whose str.lower() is a role, U+212A (the kelvin sign) among its letters. re.IGNORECASE alone would also take
# the dotted and the dotless i.
ROLE = "(?-i:[kK\u212a][nN](?:[iI][gG][hH][tT]|[aA][vV][eE]))"


# ---- the rule ----------------------------------------------------------------------------------------------------------------
def after_marker(text):
    """Returns the text after the first marker, or None. "Assistant:" takes precedence wherever it stands."""
    for marker in ("Assistant:", "<|im_start|>assistant"):
        before, found, after = text.partition(marker)
        if found:
            return after
    return None


def format_score(text):
    in_order = re.findall("|".join(map(re.escape, TAGS)), text)
    return 1.0 if tuple(in_order) == TAGS else -1.0


def is_name(word):
    return all(unicodedata.category(c).startswith("L") for c in word)


def names_and_roles(solution):
    """Returns {name: role}: of each line, the first word of letters that a whole word knight or knave follows."""
    roles = {}
    for line in solution.split("\n"):
        for word in re.finditer(r"\b\w+\b", line):
            role = re.search(r"\b(knight|knave)\b", ascii_lower(line[word.end():]))
            if is_name(word.group()) and role:
                roles[word.group()] = role.group(1)
                break
    return roles


def ascii_lower(text):
    """The text in lower case where that is an ASCII letter, with as many characters as before."""
    return "".join(c.lower() if c.lower() in "abcdefghijklmnopqrstuvwxyz" else c for c in text)


def answer_score(body, solution):
    roles = names_and_roles(solution)
    lowered = body.lower()
    if not body.strip() or not roles or lowered.count("knight") + lowered.count("knave") != len(roles):
        return -2.0
    right = True
    for name, role in roles.items():
        claim = re.search(rf"\b{re.escape(name)}\b\s+is\s+a\s+\b({ROLE})\b", body, re.IGNORECASE)
        if not claim:
            return -2.0
        right = right and claim.group(1).lower() == role
    return 2.0 if right else -1.5


def reward(response, solution):
    text = after_marker(response)
    form = format_score(response if text is None else text)
    if text is None or form < 0:
        return form, -2.0
    return form, answer_score(text.rpartition("<answer>")[2].partition("</answer>")[0], solution)


# ---- the responses -----------------------------------------------------------------------------------------------------------
NAMES = ["Zoey", "Oliver", "Ann", "Annabel", "Mia", "Kim", "Isis", "Jose", "José", "Émile", "Søren", "Ιάσονας", "Ольга", "李明",
         "I", "Skye", "ßen", "Çağla", "Ismail"]
SPACES = [" ", "  ", "\n", "\t", "\u00a0", "\u2003", "\u3000", "\u0085", "\x1c", "\u2028", " \n "]
NOT_SPACES = ["", "\u200b", "-", "_", ".", "\u2060", "\ufeff"]
NOISE = ["", "", "", " ", "!", "…", "“", "”", "—", "é", "_", "1", "²", "中", "\u0301", "*", "**", "(", ")", "(1) ", "\u200d", "👩‍🚀",
         "knight", "Knighthood", "KNAVERY", "knıght", "knİght", "\u212anight", "is a", "<b>", "Assistant:", "ſ", "x"]
ROLES = ["knight", "knave"]


def cased(rng, text):
    kind = rng.randrange(8)
    if kind == 0:
        return text.upper() if len(text.upper()) == len(text) else text
    if kind == 1:
        return text.lower() if len(text.lower()) == len(text) else text
    if kind == 2:
        return "".join(rng.choice((c.lower(), c.upper())) if len(c.lower()) == len(c.upper()) == 1 else c for c in text)
    if kind == 3 and rng.random() < 0.3:
        swaps = {"k": "\u212a", "s": "ſ", "i": "ı", "I": "İ", "ς": "σ"}
        return "".join(swaps.get(c, c) if rng.random() < 0.5 else c for c in text)
    return text


def claim(rng, name, role, wild):
    words = [name, "is", "a", role]
    if wild and rng.random() < 0.15:
        words[rng.randrange(4)] = rng.choice(["", "isa", "an", "the", "not", "knights", "knavery", "was"] + NAMES)
    if wild:
        words = [cased(rng, w) for w in words]
    text = words[0]
    for word in words[1:]:
        odd = wild and rng.random() < 0.03
        text += rng.choice(NOT_SPACES if odd else SPACES if wild and rng.random() < 0.3 else [" "]) + word
    return text


def body_of(rng, roles, wild):
    people = list(roles)
    if wild and rng.random() < 0.3:
        rng.shuffle(people)
    if wild and rng.random() < 0.1:
        people = people[:-1] if rng.random() < 0.5 else people + [rng.choice(NAMES)]
    flip = rng.random() < 0.35
    lines = []
    for i, name in enumerate(people):
        role = roles.get(name, rng.choice(ROLES))
        if flip and rng.random() < 0.5:
            role = ROLES[1 - ROLES.index(role)]
        before = rng.choice(NOISE) if wild and rng.random() < 0.2 else f"({i + 1}) "
        after = rng.choice(NOISE) if wild and rng.random() < 0.2 else ""
        lines.append(before + claim(rng, name, role, wild) + after)
    return rng.choice(["\n", ", ", " and ", "; "]).join(lines)


def solution_of(rng, roles, wild):
    lines = []
    for i, (name, role) in enumerate(roles.items()):
        shown = cased(rng, role) if wild and rng.random() < 0.3 else role
        lines.append(rng.choice([f"({i + 1}) {name} is a {shown}", f"{i + 1}. {name} is a {shown}",
                                 f"٣ {name} is a {shown}", f"_ {name}, as we know, is a {shown}\r"])
                     if wild else f"({i + 1}) {name} is a {shown}")
    if wild and rng.random() < 0.1:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(["", "no roles here", "Ann is a knightly person", lines[0]]))
    return "\n".join(lines)


def tagged(rng, body, wild):
    parts = ["<think>", rng.choice(["", "Hm.", "If Zoey is a knight, then …", "ein Gedanke"]), "</think>", rng.choice(["", " ", "\n"]),
             "<answer>", body, "</answer>", rng.choice(["", " ", " done"])]
    if wild and rng.random() < 0.25:
        at = rng.choice([0, 2, 4, 6])
        change = rng.randrange(5)
        if change == 0:
            parts[at] = ""
        elif change == 1:
            parts.insert(rng.randrange(len(parts) + 1), parts[at])
        elif change == 2:
            parts[at] = rng.choice([parts[at].upper(), parts[at].replace(">", " >"), parts[at].replace("<", "＜"), parts[at][:-1]])
        elif change == 3:
            other = rng.choice([0, 2, 4, 6])
            parts[at], parts[other] = parts[other], parts[at]
        else:
            rng.shuffle(parts)
    return "".join(parts)


def response_of(rng, text, wild):
    marker = rng.choice(["Assistant:", "Assistant: ", "<|im_start|>assistant\n"])
    prompt = rng.choice(["", "User: who is who? ", "Use <think> </think> and <answer> </answer>.\n", "<|im_start|>user\nHi<|im_end|>\n"])
    if wild and rng.random() < 0.15:
        change = rng.randrange(5)
        if change == 0:
            return prompt + text
        if change == 1:
            return prompt + rng.choice(["assistant:", "Assistant :", "<|IM_START|>assistant", "ASSISTANT:"]) + text
        if change == 2:
            return prompt + marker + text + rng.choice(["Assistant:", "<|im_start|>assistant"]) + rng.choice(["", text])
        if change == 3:
            return prompt + "<|im_start|>assistant" + rng.choice(["", " hm "]) + "Assistant:" + text
        cut = rng.randrange(len(text) + 1)
        return prompt + marker + text[:cut] + rng.choice(["Assistant:", "<|im_start|>assistant"]) + text[cut:]
    return prompt + marker + text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    rng = random.Random(a.seed)
    with gzip.GzipFile(a.out, "wb", mtime=0) as out:
        for _ in range(a.count):
            wild = rng.random() < 0.9
            roles = {name: rng.choice(ROLES) for name in rng.sample(NAMES, rng.choice((1, 2, 2, 3, 3, 4, 6)))}
            body = rng.choice(["", " ", "\u3000"]) if rng.random() < 0.02 else body_of(rng, roles, wild)
            response = response_of(rng, tagged(rng, body, wild), wild)
            solution = solution_of(rng, roles, wild)
            form, answer = reward(response, solution)
            row = {"response": response, "solution_text_format": solution, "format": form, "answer": answer}
            out.write((json.dumps(row, ensure_ascii=False) + "\n").encode())


if __name__ == "__main__":
    main()
