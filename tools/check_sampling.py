#!/usr/bin/env python3
"""Compares the filters of `mantissa generate` with the logits processors of transformers.

    check_sampling.py MODEL [--prompt TEXT] [--draws N] [--threads N] [--mantissa build/mantissa]

MODEL is a Hugging Face directory with a tokenizer. For each setting, N first tokens of the prompt are drawn by Mantissa, and
transformers gives the distribution that remains after its processors, in its order. A drawn token without probability is a
fault, and so is a frequency more than six standard deviations from its probability. Then 48 greedy tokens under a repetition
penalty are compared one by one. Both run in f32. The exit status is the number of faults, at most 100.
"""
import argparse
import collections
import json
import math
import subprocess
import sys

import torch
import transformers

SETTINGS = [
    dict(temperature=1.0),
    dict(temperature=0.7, top_k=5),
    dict(temperature=1.3, top_p=0.6),
    dict(temperature=1.0, min_p=0.1),
    dict(temperature=1.5, top_k=40, top_p=0.9, min_p=0.05),
    dict(temperature=0.9, top_k=20, repetition_penalty=1.3),
]
PENALTIES = [1.05, 1.3, 2.0, 0.9]


def distribution(model, ids, setting):
    """Returns the probabilities of the next token after the processors of generate()."""
    config = transformers.GenerationConfig(do_sample=True, eos_token_id=None, pad_token_id=0,
                                           **({"top_k": 0, "top_p": 1.0} | setting))
    inputs = torch.tensor([ids])
    with torch.inference_mode():
        scores = model(inputs).logits[:, -1].float()
    processors = model._get_logits_processor(generation_config=config, input_ids_seq_length=len(ids),
                                             encoder_input_ids=None, prefix_allowed_tokens_fn=None,
                                             logits_processor=transformers.LogitsProcessorList())
    return torch.softmax(processors(inputs, scores), -1)[0].double()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--prompt", default="The old man said that the old man and the sea are the")
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--mantissa", default="build/mantissa")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    ids = tokenizer(args.prompt).input_ids

    def generated(setting, samples, tokens):
        command = [args.mantissa, "generate", args.model, "--json", "--quiet", "--prompt-ids", ",".join(map(str, ids)),
                   "--samples", str(samples), "--streams", "64", "--max-new-tokens", str(tokens)]
        for name, value in setting.items():
            command += ["--" + name.replace("_", "-"), str(value)]
        command += ["--threads", str(args.threads)] if args.threads else []
        out = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return [g["ids"] for g in out.get("generations", [out])]

    faults = 0
    for setting in SETTINGS:
        want = distribution(model, ids, setting)
        counts = collections.Counter(g[0] for g in generated(setting, args.draws, 1))
        outside = sum(count for token, count in counts.items() if want[token] == 0)
        worst = 0.0
        for token in set(counts) | set(torch.nonzero(want > 0.001)[:, 0].tolist()):
            p = want[token].item()
            if 0 < p < 1:
                worst = max(worst, abs(counts[token] - args.draws * p) / math.sqrt(args.draws * p * (1 - p) + 1))
        bad = outside > 0 or worst > 6
        faults += bad
        print(f"{setting}: {int((want > 0).sum())} tokens remain, {len(counts)} drawn, {outside} draws outside, "
              f"largest deviation {worst:.1f} standard deviations{'  FAULT' if bad else ''}")
    for penalty in PENALTIES:
        want = model.generate(torch.tensor([ids]), do_sample=False, repetition_penalty=penalty, max_new_tokens=48,
                              pad_token_id=0)[0, len(ids):].tolist()
        got = generated(dict(repetition_penalty=penalty), 1, 48)[0]
        bad = got != want
        faults += bad
        print(f"greedy, repetition_penalty {penalty}: {len(want)} tokens {'differ  FAULT' if bad else 'equal'}")
    return min(faults, 100)


if __name__ == "__main__":
    sys.exit(main())
