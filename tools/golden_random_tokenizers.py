#!/usr/bin/env python3
"""Writes random tokenizers with the ids that the library `tokenizers` gives: models (BPE, Unigram, WordPiece, WordLevel) with random
vocabularies, normalizers, pre-tokenizers, and added tokens with all flags, among them white space and tokens that a normalizer
changes or removes. The texts are made of the tokens, white space and other characters.

usage: golden_random_tokenizers.py [FILE] [--cases N] [--seed N] [--kind KIND] [--only CASE]      needs: tokenizers 0.23

Line i of the file, from 0, is the case SEED + i. --kind restricts the models to one kind. --only replaces the line of one case.

A line of the file is a JSON object: `tokenizer`, and `texts`, a list of [text, ids]; ids is null where `tokenizers` cannot encode
the text, and -1 where it panics or loops, so that there is nothing to compare. tests/text/tokenizer/random_tokenizers_test.cpp reads the file; a
larger one in its place is a longer test.
"""
import argparse
import json
import os
import pathlib
import random
import resource
import signal

from tokenizers import Tokenizer

CHARACTERS = "abcABxyé ߀▁1.,ß世👍"
SPACES = [" ", "  ", "   ", "\t", "\n", "\u00a0", "\u2003", " \n"]
NORMALIZERS = [
    None, None, {"type": "Lowercase"}, {"type": "NFC"}, {"type": "NFKD"}, {"type": "StripAccents"},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, {"type": "Replace", "pattern": {"String": "a"}, "content": ""},
    {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Prepend", "prepend": "▁"},
    {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
    {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, {"type": "Replace", "pattern": {"String": "b"}, "content": ""}]},
]
PRE_TOKENIZERS = [
    None, None, {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"},
    {"type": "Punctuation", "behavior": "Isolated"}, {"type": "Digits", "individual_digits": True},
    *({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
      for scheme in ("always", "first", "never") for split in (True, False)),
]


def word(random, most=4):
    return "".join(random.choice(CHARACTERS) for _ in range(random.randint(1, most)))


def unigram(random):
    tokens = ["<unk>"] + sorted({word(random) for _ in range(random.randint(1, 40))} | set(random.sample(CHARACTERS, 6)))
    fallback = random.random() < 0.15
    tokens += [f"<0x{i:02X}>" for i in range(256)] if fallback else []
    unknown = 0 if random.random() < 0.9 else None
    # Equal sums of scores are decided by the order of additions, so few scores are round.
    scores = [random.choice([-1.0, -2.0, 0.0, random.uniform(-9, 0), random.uniform(-9, 0), random.uniform(-9, 0)]) for _ in tokens]
    return {"type": "Unigram", "unk_id": unknown, "vocab": list(zip(tokens, scores)), "byte_fallback": fallback}


def bpe(random):
    vocabulary = {token: i for i, token in enumerate(["<unk>", *sorted(set(CHARACTERS) - set(random.sample(CHARACTERS, 2)))])}
    merges = []
    for _ in range(random.randint(0, 20)):
        left, right = random.sample([token for token in vocabulary if token != "<unk>"], 2)
        if len(left + right) < 6 and left + right not in vocabulary:
            vocabulary[left + right] = len(vocabulary)
            merges.append([left, right])
    return {"type": "BPE", "dropout": None, "unk_token": random.choice(["<unk>", "<unk>", None]), "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": random.random() < 0.5, "byte_fallback": False,
            "ignore_merges": random.random() < 0.3, "vocab": vocabulary, "merges": merges}


def words(random):
    tokens = ["<unk>", *sorted({word(random) for _ in range(30)} | {"##" + word(random, 2) for _ in range(30)})]
    model = {"type": random.choice(["WordLevel", "WordPiece"]), "unk_token": "<unk>",
             "vocab": {token: i for i, token in enumerate(tokens)}}
    if model["type"] == "WordPiece":
        model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 20}
    return model


MODELS = {"unigram": unigram, "bpe": bpe, "words": words}


def added_tokens(random, size):
    contents = [random.choice([lambda: random.choice(SPACES), lambda: word(random, 3), lambda: "<e>", lambda: "[x]",
                               lambda: " " + word(random, 2), lambda: random.choice("aAbB") * 2])()
                for _ in range(random.randint(0, 6))]
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return [{"id": size + i, "content": content, **{flag: random.random() < 0.4 for flag in flags}}
            for i, content in enumerate(contents)]


def tokenizer_of(random, kind):
    model = MODELS[kind](random)
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": random.choice(NORMALIZERS),
                 "pre_tokenizer": random.choice(PRE_TOKENIZERS), "post_processor": None, "decoder": None, "model": model}
    normalizer = Tokenizer.from_str(json.dumps(tokenizer)).normalizer
    patterns = set()
    for token in added_tokens(random, len(model["vocab"])):
        # The library chooses at random between tokens with one pattern.
        normalized = normalizer.normalize_str(token["content"]) if normalizer else token["content"]
        if not patterns & {token["content"], normalized}:
            patterns |= {token["content"], normalized}
            tokenizer["added_tokens"].append(token)
    return tokenizer


def text_of(random, tokenizer):
    added = [token["content"] for token in tokenizer["added_tokens"]] or ["<e>"]
    parts = [random.choice([lambda: random.choice(added), lambda: random.choice(SPACES), lambda: word(random)])()
             for _ in range(random.randint(0, 8))]
    return "".join(parts)


def ids_of(reference, text):
    try:
        return reference.encode(text).ids
    except Exception:
        return None
    except BaseException:  # a panic
        return -1


def in_child(work):
    """Returns the result of work() in a process of its own, or None if it takes more than 2 seconds or 4 GiB: empty patterns make
    `tokenizers` loop."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        signal.alarm(2)
        os.write(sink, json.dumps(work()).encode())
        os._exit(0)
    os.close(sink)
    with os.fdopen(source) as results:
        result = results.read()
    os.waitpid(child, 0)
    return json.loads(result) if result else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default="tests/golden/random_tokenizers.jsonl", type=pathlib.Path)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=MODELS)
    parser.add_argument("--only", type=int, metavar="CASE", help="write only this line; all others stay as they are")
    args = parser.parse_args()
    cases = range(args.seed, args.seed + args.cases)
    if args.only is not None and args.only not in cases:
        parser.error(f"--only {args.only}: expected a case from {cases[0]} to {cases[-1]}")
    old = [] if args.only is None else args.file.read_text().splitlines(keepends=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the messages of panics
    with args.file.open("w") as out:
        for case in cases:
            if args.only not in (None, case):
                out.write(old[case - args.seed])
                continue
            draw = random.Random(case)
            tokenizer = tokenizer_of(draw, args.kind or draw.choice(list(MODELS)))
            texts = [text_of(draw, tokenizer) for _ in range(4)]

            def encode():
                reference = Tokenizer.from_str(json.dumps(tokenizer))
                return [ids_of(reference, text) for text in texts]

            line = {"tokenizer": tokenizer, "texts": list(zip(texts, in_child(encode) or [-1] * len(texts)))}
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
