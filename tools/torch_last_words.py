#!/usr/bin/env python3
"""Predicts last words with transformers and compares them with `mantissa eval --last-word`, passage by passage.

    torch_last_words.py MODEL FILE [--limit N] [--dtype f32|f64|bf16|f16] [--threads N]
                        [--precision POLICY] [--mantissa build/mantissa | --no-mantissa] [--json]

MODEL is a Hugging Face directory with a tokenizer, FILE a file of JSON lines with "text" (docs/cli/eval.md). The passages
run one by one through transformers in `--dtype`. The same words are predicted by Mantissa under `--precision` (by default
the policy of the dtype: 32-true, 64-true, bf16-true, 16-true). Prints accuracy and perplexity of both, the largest
difference of a log-probability, and each passage that only one of them has right, with the margin of transformers between
the word's token and the most likely other token. The exit status is 1 if there is such a passage.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys

import torch
import transformers

DTYPES = dict(f32=(torch.float32, "32-true"), f64=(torch.float64, "64-true"), bf16=(torch.bfloat16, "bf16-true"),
              f16=(torch.float16, "16-true"))


def passages(path, limit):
    """Yields (line number, text) of the first `limit` passages."""
    count = 0
    with open(path, encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if count == limit:
                return
            if line.strip():
                count += 1
                yield number, json.loads(line)["text"]


def start_of(tokenizer, text):
    """Returns the ids that the tokenizer's template puts before a text."""
    plain = tokenizer(text, add_special_tokens=False).input_ids
    whole = tokenizer(text).input_ids
    for begin in range(len(whole) - len(plain) + 1):
        if whole[begin:begin + len(plain)] == plain:
            return whole[:begin]
    return []


def split(tokenizer, text):
    """Returns the ids of a passage and the index of the first one of its last word."""
    text = text.rstrip(" \t\r\n")
    before = text[:text.rindex(" ")]
    ids = tokenizer(text, add_special_tokens=False).input_ids
    known = tokenizer(before, add_special_tokens=False).input_ids
    start = start_of(tokenizer, before)
    return start + ids, len(start) + len(os.path.commonprefix([ids, known]))


def predict(model, ids, word):
    """Returns whether the word is right, its log-probability, and its smallest margin to another token."""
    with torch.inference_mode():
        logits = model(torch.tensor([ids[:-1]])).logits[0, word - 1:]
    logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    targets = torch.tensor(ids[word:])
    rows = torch.arange(len(targets))
    log_prob = torch.log_softmax(logits, -1)[rows, targets].double().sum().item()
    right = bool((logits.argmax(-1) == targets).all())
    others = logits.clone()
    others[rows, targets] = -math.inf
    margin = (logits[rows, targets] - others.max(-1).values).min().item()
    return right, log_prob, margin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("file")
    parser.add_argument("--limit", type=int, default=-1)
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--precision")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--mantissa", default=str(pathlib.Path(__file__).parent.parent / "build/mantissa"))
    parser.add_argument("--no-mantissa", action="store_true")
    parser.add_argument("--json", action="store_true", help="print the result of transformers, in the form of mantissa eval")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dtype, policy = DTYPES[args.dtype]
    policy = args.precision or policy

    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype).eval()
    lines, theirs = [], []
    for number, text in passages(args.file, args.limit):
        lines.append(number)
        theirs.append(predict(model, *split(tokenizer, text)))
    if not theirs:
        raise SystemExit(f"{args.file}: contains no passages")

    def summary(right, log_probs):
        return sum(right) / len(right), math.exp(-sum(log_probs) / len(log_probs))

    right, log_probs, margins = zip(*theirs)
    accuracy, perplexity = summary(right, log_probs)
    if args.json:
        print(json.dumps(dict(last_words=dict(passages=len(right), accuracy=accuracy, perplexity=perplexity, right=right,
                                              log_probs=log_probs)), indent=2))
    else:
        print(f"{'transformers ' + args.dtype:24} {100 * accuracy:6.2f} % of {len(right)} right, perplexity {perplexity:.6g}")
    if args.no_mantissa:
        return 0

    command = [args.mantissa, "eval", args.model, "--last-word", args.file, "--precision", policy, "--threads",
               str(args.threads), "--json"] + (["--limit", str(args.limit)] if args.limit > 0 else [])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"mantissa eval failed:\n{done.stderr}")
    ours = json.loads(done.stdout)["last_words"]
    if len(ours["right"]) != len(right):
        raise SystemExit(f"Mantissa has {len(ours['right'])} passages, transformers {len(right)}")
    out = sys.stderr if args.json else sys.stdout
    print(f"{'Mantissa ' + policy:24} {100 * ours['accuracy']:6.2f} % of {len(right)} right, perplexity "
          f"{ours['perplexity']:.6g}", file=out)
    apart = [abs(a - b) for a, b in zip(log_probs, ours["log_probs"])]
    print(f"log-probability of a word: largest difference {max(apart):.3g}, mean {sum(apart) / len(apart):.3g}", file=out)
    different = [i for i in range(len(right)) if right[i] != ours["right"][i]]
    for i in different:
        print(f"{args.file}:{lines[i]}: right only in {'transformers' if right[i] else 'Mantissa'}; margin of transformers "
              f"{margins[i]:+.3g}", file=out)
    print(f"{len(different)} of {len(right)} passages differ", file=out)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
