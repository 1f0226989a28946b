#!/usr/bin/env python3
"""Writes tests/golden/tokenizers/: tiny tokenizers that this script trains, and the ids and texts that the library
`tokenizers` gives for tricky texts. Writes decoders.json beside this folder: decoders, and the texts of random ids.

usage: golden_tokenizers.py [DIRECTORY] [--only CASE]      needs: tokenizers 0.23

--only writes one tokenizer, or "decoders"; texts.json and all others stay as they are.
"""
import json
import random

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders as D
from tokenizers import models, normalizers as N, pre_tokenizers as P, processors, trainers

from golden import arguments

CORPUS = """The quick brown fox jumps over the lazy dog. Don't panic: it's 1234 o'clock, we'll see what they've done!
She said "hello" and left; he'd rather stay. In 2024 there were 12,345,678 reasons (or 3.14) to go on & on.
def main(argc, argv):\n\treturn argv[0] + 1  # a comment\n\n    if x == 0x1F: print("ok")
Größe und Straße, naïve café, année, Zürich. Быстрая лиса прыгает через собаку. Η γρήγορη αλεπού πηδάει.
शब्द और वाक्य हिन्दी में। 素早い茶色の狐がのろまな犬を飛び越える。 快速的棕色狐狸跳过懒狗。 빠른 갈색 여우가 뛴다.
الثعلب البني السريع. שועל חום מהיר. สุนัขจิ้งจอก. Emoji 👍🏽 👩‍👩‍👧 🇫🇷 and arrows → ⇒.
""".split("\n")

TEXTS = [
    "", " ", "a", "  leading and trailing  ", "Hello world! Don't STOP, it'S we'LL I'm.", "1234567 12 3.14 １２３ ٣٤٥ Ⅷ ½ ①",
    "tabs\tand\nnew\r\nlines\n\n\n  end \r\n", "x\u0000y\u0001z\u007f", "e\u0301 n\u0303 é ﬁ ﬀ Å Å ǆ İstanbul ſ K ß",
    "q\u0307\u0323 q\u0323\u0307 \u1112\u1161\u11ab 한 각", "👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇫🇷🇩🇪 ❤️", "नमस्ते दुनिया สวัสดีชาวโลก 你好，世界。こんにちは", "مرحبا بالعالم שָׁלוֹם",
    "\u00a0\u1680\u2003\u3000\u200b\u200d\ufeff\u0085\u2028\u180e.", "\ue000\U000f0000\U0010ffff\u0378", "<s> </s><unk>", "<|endoftext|> a <|endoftext|>b",
    "snake_case camelCase kebab-case a.b.c @x #y $z 50% ~/path", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "▁under ▁ ▁▁x", "the Thee thee, other thee", "a [L] b [R] c [LR]d [LR] e", "<0x41><0x0A>", "Ͳⱥ Ᲊ Ꟛ 𐵐 𖺠 \U00011de0 \ua7f2",
    "mixed中文English한글русский123", "...!!!???   ---___***", "'s 't 're 've 'm 'll 'd 'S 'ſ", "ＦＵＬＬ　ｗｉｄｔｈ ㈱ ㍿ ﷺ",
]
# Bytes that are not UTF-8, as Python reads them with errors="replace".
BROKEN = [b"ab\xffcd", b"\xe2\x82", b"\xf0\x9f\x98 x", b"\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80", b"\x80\x80", b"ok\xe2\x28\xa1"]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
          r"\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
POSSESSIVE = r"\p{N}{1,3}+|[^\S\n]++|\p{Lu}\p{Ll}*|[\p{L}&&[^\p{Han}]]+|(?i:ſt|x)|^.|\w+$"


def byte_level(pre, normalizer=None, ignore_merges=False, added=(), alphabet=True, post=None):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer, tokenizer.decoder = pre, D.ByteLevel()
    if post:
        tokenizer.post_processor = post
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=P.ByteLevel.alphabet() if alphabet else [])
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(list(added))
    return json.loads(tokenizer.to_str())


def split(pattern, behavior="isolated", invert=False):
    return P.Sequence([P.Split(Regex(pattern), behavior, invert=invert),
                       P.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama(byte_fallback=True, normalizer=None, metaspace=None, pre=None, fuse=True, unknown="<unk>", **affixes):
    """A BPE over characters, trained on words; normalizer and pre-tokenizer are then set to those of the case."""
    tokenizer = Tokenizer(models.BPE(unk_token=unknown, fuse_unk=fuse, byte_fallback=byte_fallback, **affixes))
    tokenizer.pre_tokenizer = P.Metaspace() if not pre else P.WhitespaceSplit()
    bytes_ = [f"<0x{i:02X}>" for i in range(256)] if byte_fallback else []
    specials = ([unknown] if unknown else []) + ["<s>", "</s>"]
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=180 + len(bytes_), limit_alphabet=70, special_tokens=specials + bytes_, show_progress=False, **affixes))
    j = json.loads(tokenizer.to_str())
    j["added_tokens"] = [t for t in j["added_tokens"] if not t["content"].startswith("<0x")]
    j["normalizer"] = normalizer
    j["pre_tokenizer"] = pre or metaspace
    vocab = j["model"]["vocab"]
    j["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [vocab["<s>"]], "tokens": ["<s>"]}}}
    j["decoder"] = metaspace or {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    return j


def metaspace(scheme, split_=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split_}


def unigram(normalizer=None, pre=None, byte_fallback=False, post=None):
    tokenizer = Tokenizer(models.Unigram())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer, tokenizer.decoder = pre or P.Metaspace(), D.Metaspace()
    if post:
        tokenizer.post_processor = post
    bytes_ = [f"<0x{i:02X}>" for i in range(256)] if byte_fallback else []
    tokenizer.train_from_iterator([line for line in CORPUS if line.isascii() or "ö" in line], trainers.UnigramTrainer(
        vocab_size=250 + len(bytes_), special_tokens=["<s>", "</s>", "<unk>"] + bytes_, unk_token="<unk>", show_progress=False))
    j = json.loads(tokenizer.to_str())
    j["model"]["byte_fallback"] = byte_fallback
    j["added_tokens"] = [t for t in j["added_tokens"] if not t["content"].startswith("<0x")]
    return j


def word_piece():
    bert = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    bert.normalizer, bert.pre_tokenizer, bert.decoder = N.BertNormalizer(), P.BertPreTokenizer(), D.WordPiece()
    bert.train_from_iterator(CORPUS, trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    bert.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return json.loads(bert.to_str())


def word_level():
    words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    words.pre_tokenizer = P.Whitespace()
    words.train_from_iterator(CORPUS, trainers.WordLevelTrainer(
        vocab_size=150, special_tokens=["[UNK]"], show_progress=False))
    return json.loads(words.to_str())


def cases():
    """Yields (name, function that trains it)."""
    prefix = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    marks = {"type": "Sequence", "normalizers": [
        {"type": "Strip", "strip_left": True, "strip_right": False}, {"type": "Replace", "pattern": {"Regex": " {2,}"},
                                                                      "content": " "},
        {"type": "Lowercase"}, {"type": "NFKD"}, {"type": "StripAccents"}]}
    added = [AddedToken("[L]", lstrip=True, normalized=False), AddedToken("[R]", rstrip=True, special=True),
             AddedToken("[LR]", lstrip=True, rstrip=True, single_word=True, normalized=False),
             AddedToken("thee", single_word=True), AddedToken("  "), AddedToken("    ")]
    yield "gpt2", lambda: byte_level(P.ByteLevel(add_prefix_space=False))
    yield "gpt2_added_prefix", lambda: byte_level(P.ByteLevel(add_prefix_space=True), added=added)
    yield "gpt2_few_bytes", lambda: byte_level(P.ByteLevel(add_prefix_space=False), alphabet=False)
    yield "cl100k", lambda: byte_level(split(CL100K))
    yield "llama3_ignore_merges", lambda: byte_level(split(LLAMA3), ignore_merges=True)
    yield "qwen2_nfc", lambda: byte_level(split(QWEN2), normalizer=N.NFC())
    yield "possessive", lambda: byte_level(split(POSSESSIVE))
    yield "digits", lambda: byte_level(P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False)]))
    yield "byte_normalizer", lambda: byte_level(P.Split(Regex(QWEN2), "isolated"),
                                        normalizer=N.Sequence([N.NFKC(), N.ByteLevel()]))
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        yield "split_" + behavior, lambda behavior=behavior: byte_level(split(r"[aeiou]|\d+|\W", behavior), alphabet=False)
    yield "split_inverted", lambda: byte_level(split(r"[a-z]+", "removed", invert=True), alphabet=False)
    yield "llama2", lambda: llama(normalizer=prefix)
    yield "llama_no_bytes", lambda: llama(byte_fallback=False, normalizer=prefix)
    yield "llama_no_fuse", lambda: llama(byte_fallback=False, normalizer=prefix, fuse=False)
    yield "llama_no_unknown", lambda: llama(byte_fallback=False, normalizer=prefix, unknown=None)
    yield "metaspace_first", lambda: llama(normalizer=marks, metaspace=metaspace("first"))
    yield "metaspace_never", lambda: llama(metaspace=metaspace("never"))
    yield "metaspace_whole", lambda: llama(metaspace=metaspace("always", False))
    yield "subword_prefix", lambda: llama(byte_fallback=False, normalizer={"type": "NFD"}, pre={"type": "WhitespaceSplit"},
                                  continuing_subword_prefix="##")
    yield "word_suffix", lambda: llama(byte_fallback=False, normalizer={"type": "Nmt"}, end_of_word_suffix="</w>", pre={
        "type": "Sequence", "pretokenizers": [{"type": "Whitespace"},
                                              {"type": "Punctuation", "behavior": "MergedWithPrevious"}]})
    yield "unigram", lambda: unigram(post=processors.RobertaProcessing(("</s>", 1), ("<s>", 0)))
    yield "unigram_bytes", lambda: unigram(normalizer=N.NFKC(), byte_fallback=True)
    yield "unigram_whole", lambda: unigram(normalizer=N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" {2,}"), " ")]),
                                   pre=P.Metaspace(split=False, prepend_scheme="first"))
    yield "word_piece", word_piece
    yield "word_level", word_level


# Tokens that some decoder rewrites: bytes of "€" and others, byte-level characters, markers, spaces, contractions.
PARTS = ["a", "b", "  ", " ", "▁", "▁▁", "▁a", "b▁", "##b", "##", "c</w>", "</w>", ".", " n't", "do not", "€", "", " a ",
         "<0xE2>", "<0x82>", "<0xAC>", "<0xF0>", "<0x9F>", "<0x98>", "<0xFF>", "<0x41>", "<0x20>", "<0x+A>", "<0x4>",
         "â", "Ĥ", "¬", "ð", "Ł", "ĺ", "ÿ", "Ġ", "Ġa"]


def decoders():
    strip = lambda start, stop: {"type": "Strip", "content": " ", "start": start, "stop": stop}
    replace = lambda pattern, content: {"type": "Replace", "pattern": pattern, "content": content}
    level, fallback, fuse = {"type": "ByteLevel"}, {"type": "ByteFallback"}, {"type": "Fuse"}
    space = replace({"String": "▁"}, " ")
    level_step = dict(level, add_prefix_space=True, trim_offsets=True, use_regex=True)
    yield None
    yield level_step
    yield fallback
    yield fuse
    yield {"type": "BPEDecoder", "suffix": "</w>"}
    yield replace({"String": "▁"}, " ")
    yield replace({"Regex": "[ab]|▁+"}, "xy")
    yield strip(1, 0)
    yield strip(0, 2)
    for scheme in ("always", "never", "first"):
        yield metaspace(scheme)
    for cleanup in (True, False):
        yield {"type": "WordPiece", "prefix": "##", "cleanup": cleanup}
    for steps in ([space, fallback, fuse, strip(1, 0)], [space, fallback, fuse, strip(2, 0)], [space, fallback, fuse],
                  [fuse, strip(0, 2)], [fuse, space], [fuse, metaspace("always")], [level_step, strip(1, 0)],
                  [level_step, {"type": "WordPiece", "prefix": "a", "cleanup": True}], [fallback, level_step],
                  [{"type": "BPEDecoder", "suffix": "</w>"}, fuse, strip(1, 0)], [fallback, metaspace("first")],
                  [fuse, fallback], [strip(0, 1), fuse, fuse], [metaspace("always"), strip(1, 0), fallback], []):
        yield {"type": "Sequence", "decoders": steps}


def write_decoders(path):
    draw = random.Random(5)
    model = {"type": "WordLevel", "vocab": {part: i for i, part in enumerate(PARTS)}, "unk_token": PARTS[0]}
    cases = []
    for decoder in decoders():
        spec = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                "pre_tokenizer": None, "post_processor": None, "decoder": decoder, "model": model}
        tokenizer = Tokenizer.from_str(json.dumps(spec))
        results = []
        for _ in range(40):
            first = draw.choice([0, PARTS.index("<0xE2>"), PARTS.index("â")])  # often only bytes
            ids = [draw.randrange(first, len(PARTS)) for _ in range(draw.randrange(1, 13))]
            try:
                results.append([ids, tokenizer.decode(ids, skip_special_tokens=False)])
            except BaseException as error:  # Strip panics at a token that is shorter than what it removes
                if type(error).__name__ != "PanicException":
                    raise
        cases.append({"decoder": decoder, "results": results})
    body = json.dumps({"model": model, "cases": cases}, ensure_ascii=True, separators=(",", ":"))
    path.write_text(body + "\n")
    print(f"decoders: {len(cases)}, {len(body)} bytes")


def main():
    root, only = arguments(__doc__, "tokenizers", [*(name for name, _ in cases()), "decoders"])
    root.mkdir(parents=True, exist_ok=True)
    raw = [text.encode() for text in TEXTS] + BROKEN
    if only is None:
        (root / "texts.json").write_text(json.dumps([bytes_.hex() for bytes_ in raw], indent=0) + "\n")
    for name, train in cases():
        if only not in (None, name):
            continue
        spec = train()
        tokenizer = Tokenizer.from_str(json.dumps(spec))
        results = []
        for bytes_ in raw:
            text = bytes_.decode("utf-8", "replace")
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            # The decoders of `tokenizers` fail without a token.
            decoded = tokenizer.decode(ids, skip_special_tokens=False) if ids else ""
            results.append([ids, tokenizer.encode(text).ids, decoded])
        body = json.dumps({"tokenizer": spec, "results": results}, ensure_ascii=True, separators=(",", ":"))
        (root / f"{name}.json").write_text(body + "\n")
        print(f"{name}: {tokenizer.get_vocab_size()} tokens, {len(body)} bytes")
    if only in (None, "decoders"):
        write_decoders(root.parent / "decoders.json")


if __name__ == "__main__":
    main()
