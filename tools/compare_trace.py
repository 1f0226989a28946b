#!/usr/bin/env python3
"""Compares a trace with a reference, relative to a peer's distance: for every tensor max|A - reference| may be at most `factor`
times max|peer - reference|.

    compare_trace.py A.safetensors REFERENCE_F64.safetensors PEER.safetensors [--factor 8]
    compare_trace.py A.safetensors REFERENCE_F64.safetensors --relative 1e-11        relative to max|reference| instead

The peer's distance counts as at least half an f32 ulp of the tensor's largest value, because no f32 output is closer in general. For
the loss, a single number that may be close by chance, it counts as at least the root mean square of the distances of its
log-probabilities. The exit status is 1 if a tensor is missing, has the wrong shape, is not finite, or is too far from the reference.
"""
import argparse
import sys

from safetensors.torch import load_file


def distance(a, b):
    return (a.double() - b.double()).abs().max().item()


def spread(name, peer, reference):
    """Returns the distance of the peer from the reference, with a lower bound for distances that are small by chance."""
    distances = [distance(peer[name], reference[name]), reference[name].double().abs().max().item() * 2.0**-24]
    if name == "loss" and "log_probs" in reference:
        distances.append((peer["log_probs"].double() - reference["log_probs"].double()).square().mean().sqrt().item())
    return max(distances)


def judge(tensors, reference, peer, factor, relative):
    """Yields (name, distance, allowed, fault or None) for every tensor of the reference."""
    for name, wanted in sorted(reference.items()):
        allowed = factor * spread(name, peer, reference) if peer else relative * wanted.double().abs().max().item()
        if name not in tensors:
            yield name, float("nan"), allowed, "missing"
        elif tensors[name].shape != wanted.shape:
            yield name, float("nan"), allowed, f"shape {tuple(tensors[name].shape)}, expected {tuple(wanted.shape)}"
        else:
            off = distance(tensors[name], wanted)
            yield name, off, allowed, None if off <= allowed else "too far"  # a NaN is too far


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a")
    parser.add_argument("reference")
    parser.add_argument("peer", nargs="?")
    parser.add_argument("--factor", type=float, default=8)
    parser.add_argument("--relative", type=float)
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="print only the N worst tensors (and every fault)")
    args = parser.parse_args()
    if (args.peer is None) == (args.relative is None):
        parser.error("give a peer, or --relative")
    rows = list(judge(load_file(args.a), load_file(args.reference), load_file(args.peer) if args.peer else None,
                      args.factor, args.relative))
    rows.sort(key=lambda row: (row[3] is None, -(row[1] / row[2] if row[2] else row[1])))
    faults = sum(row[3] is not None for row in rows)
    print(f"{'tensor':58} {'distance':>10} {'allowed':>10} {'ratio':>7}")
    for name, off, allowed, fault in rows[:max(faults, args.worst)] if args.worst else rows:
        ratio = off / allowed if allowed else (0.0 if off == 0 else float("inf"))
        print(f"{name:58} {off:10.3e} {allowed:10.3e} {ratio:7.3f}{'  ' + fault if fault else ''}")
    print(f"{len(rows) - faults} of {len(rows)} tensors within {'the peer' if args.peer else 'the bound'}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
