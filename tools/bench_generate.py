#!/usr/bin/env python3
"""Compares decoding speed with transformers: the same Llama and weights, greedy, with a key-value cache, measured alternately.

    bench_generate.py [--mantissa build/mantissa] [--streams 1,16] [--tokens 256] [--rounds 3] [--threads N] [--model DIR]

Prints tokens per second of each turn (including the prompt), medians over the turns, and ratios of the medians. `of limit` is
the share of the speed at which each stream reads all required weights once per token at the bandwidth that `mantissa doctor`
measures. The model is a Llama of 134M with random weights unless DIR is given. The script does not pass or fail. On a shared
machine only the ratios are meaningful.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
import warnings

import torch
import transformers

PROMPT = 16
SHAPE = dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=12, intermediate_size=2048,
             vocab_size=32000, max_position_embeddings=2048, bos_token_id=None, eos_token_id=None)


class Torch:
    def __init__(self, model, dtype):
        self.name = f"transformers {dtype}"
        self.model = transformers.LlamaForCausalLM.from_pretrained(model, dtype={"f32": torch.float32, "bf16": torch.bfloat16}[dtype])
        self.model.generation_config.pad_token_id = 0

    def turn(self, streams, tokens):
        ids = torch.arange(1, PROMPT + 1).repeat(streams, 1)
        with torch.inference_mode():
            start = time.perf_counter()
            out = self.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens,
                                      do_sample=False)
            seconds = time.perf_counter() - start
        return (out.shape[1] - PROMPT) * streams / seconds


class Mantissa:
    def __init__(self, program, model, precision, threads):
        self.name = f"Mantissa {precision}"
        self.command = [program, "generate", model, "--precision", precision, "--threads", str(threads), "--json",
                        "--prompt-ids", ",".join(map(str, range(1, PROMPT + 1)))]

    def turn(self, streams, tokens):
        options = ["--samples", str(streams), "--streams", str(streams), "--max-new-tokens", str(tokens)]
        done = subprocess.run([*self.command, *options], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"mantissa generate failed:\n{done.stderr}")
        return json.loads(done.stdout)["tokens_per_second"]


def bandwidth(program, threads):
    """Returns the bytes per second that this machine streams."""
    done = subprocess.run([program, "doctor", "--threads", str(threads), "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["bytes_per_second"]


def weights_per_token(model):
    """Returns the number of weight elements that one token reads: all except the embedding rows of other tokens."""
    embedding = model.get_input_embeddings().weight
    tied = model.get_output_embeddings().weight is embedding
    return sum(p.numel() for p in model.parameters()) - (0 if tied else embedding.numel())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mantissa", default=str(pathlib.Path(__file__).parent.parent / "build/mantissa"))
    parser.add_argument("--model")
    parser.add_argument("--streams", default="1,16")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as scratch:
        model = args.model or scratch
        if not args.model:
            transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE)).save_pretrained(scratch)
        print(f"{args.tokens} tokens after {PROMPT}, {args.threads} threads, PyTorch {torch.__version__}, "
              f"transformers {transformers.__version__}, {args.rounds} turns each")
        print(f"{'':24} {'streams':>7} {'tokens/s':>9} {'lowest-highest':>15} {'/ transformers':>15} {'of limit':>9}")
        bytes_per_second = bandwidth(args.mantissa, args.threads)
        for dtype, precision, element in (("f32", "32-true", 4), ("bf16", "bf16-mixed", 2)):
            field = [Torch(model, dtype), Mantissa(args.mantissa, model, precision, args.threads)]
            limit = bytes_per_second / (element * weights_per_token(field[0].model))
            for streams in map(int, args.streams.split(",")):
                speeds = {contender.name: [] for contender in field}
                field[0].turn(streams, 2)  # warms up
                for _ in range(args.rounds):
                    for contender in field:
                        speeds[contender.name].append(contender.turn(streams, args.tokens))
                base = statistics.median(speeds[field[0].name])
                for name, values in speeds.items():
                    median = statistics.median(values)
                    span = f"{min(values):.1f}-{max(values):.1f}"
                    print(f"{name:24} {streams:7} {median:9.1f} {span:>15} {median / base:15.2f} "
                          f"{median / (limit * streams):9.2f}", flush=True)


if __name__ == "__main__":
    main()
