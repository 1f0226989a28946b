#!/usr/bin/env python3
"""Answers multiple-choice questions with transformers and compares them with `mantissa eval --multiple-choice`.

    torch_choices.py MODEL FILE [--limit N] [--threads N] [--mantissa build/mantissa | --no-mantissa]

MODEL is a Hugging Face directory with a tokenizer, FILE a file of JSON lines with "query" (or "context"), "choices" and
"gold" (docs/cli/eval.md). The log-probabilities follow the definition of lm-evaluation-harness: its tasks join context and
choice by a space, move white space at the end of the context to the choice, encode both together, and take the tokens beyond as
many as the context alone has; acc is the largest log-probability, acc_norm the largest per character, acc_bytes the largest per
byte. The model runs in f32, one choice at a time. Prints the shares of both programs, the largest difference of a
log-probability, and each question that they answer differently; the exit status is 1 if there is one.
"""
import argparse
import json
import subprocess
import sys

import torch
import transformers

BLANK = " \t\r\n"


def questions(path, limit):
    """Yields (context, choices, index of the right one) of the first `limit` questions."""
    count = 0
    with open(path, encoding="utf-8", newline="\n") as lines:
        for line in lines:
            if count == limit:
                return
            if line.strip():
                count += 1
                row = json.loads(line)
                yield row["query"] if "query" in row else row["context"], row["choices"], row["gold"]


def pair(context, choice):
    """Returns the context without white space at its end, and the continuation."""
    spaces = context[len(context.rstrip(BLANK)):]
    delimiter = "" if spaces or choice[0] in BLANK else " "
    return context[:len(context) - len(spaces)], spaces + delimiter + choice


def log_prob(model, tokenizer, context, continuation, most):
    """Returns the log-probability of the continuation."""
    known = tokenizer(context, add_special_tokens=False).input_ids
    whole = tokenizer(context + continuation, add_special_tokens=False).input_ids
    if not known:
        known, whole = [tokenizer.eos_token_id], [tokenizer.eos_token_id] + whole
    ids = whole[-(most + 1):]
    count = len(whole) - len(known)
    with torch.inference_mode():
        logits = model(torch.tensor([ids[:-1]])).logits[0, -count:]
    targets = torch.tensor(ids[-count:])
    return torch.log_softmax(logits, -1)[torch.arange(count), targets].double().sum().item()


def first_largest(values):
    return max(range(len(values)), key=lambda i: (values[i], -i))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("file")
    parser.add_argument("--limit", type=int, default=-1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--mantissa", default="build/mantissa")
    parser.add_argument("--no-mantissa", action="store_true")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    all_questions = list(questions(args.file, args.limit))
    scores = [[log_prob(model, tokenizer, *pair(context, choice), model.config.max_position_embeddings)
               for choice in choices] for context, choices, _ in all_questions]
    count = len(scores)
    right = dict(acc=0, acc_norm=0, acc_bytes=0)
    for of, (_, choices, gold) in zip(scores, all_questions):
        right["acc"] += first_largest(of) == gold
        right["acc_norm"] += first_largest([s / len(c) for s, c in zip(of, choices)]) == gold
        right["acc_bytes"] += first_largest([s / len(c.encode()) for s, c in zip(of, choices)]) == gold
    print(f"{count} questions")
    print("transformers ", "  ".join(f"{name} {value / count:.4f}" for name, value in right.items()))
    if args.no_mantissa:
        return 0
    command = [args.mantissa, "eval", args.model, "--multiple-choice", args.file, "--json", "--quiet"]
    command += ["--limit", str(args.limit)] if args.limit > 0 else []
    command += ["--threads", str(args.threads)] if args.threads else []
    ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["multiple_choice"]
    print("mantissa     ", "  ".join(f"{name} {ours[name]:.4f}" for name in right))
    gap = max(abs(a - b) for mine, theirs in zip(ours["log_probs"], scores) for a, b in zip(mine, theirs))
    print(f"largest difference of a log-probability: {gap:.2e}")
    different = [q for q in range(count) if first_largest(scores[q]) != ours["chosen"][q]]
    for q in different:
        print(f"question {q + 1}: transformers {scores[q]}, mantissa {ours['log_probs'][q]}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
