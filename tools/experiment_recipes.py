"""Experiments on recipes of low precision (tools/experiment.py): policies of one comparison, with what a paper found beside them."""
import json
import statistics

NVFP4 = "bf16-mixed compute=nvfp4"
PARTS = "weight_block=16x16 gradient_rounding=stochastic hadamard=16"
LAST_LAYER = "model.layers.3: compute=bf16"  # of experiments/recipes.toml
HEADER = ["recipe", "policy", "held-out loss", "change of the loss", "±", "in %", "verdict", "published"]


def switched(steps):
    """Returns the rule that ends the forward products in nvfp4 after five sixths of the steps."""
    return f"*: pass=forward steps={steps * 5 // 6}: compute=bf16"


def of_nvfp4(steps):
    return [
        ("bf16", "bf16-mixed", "reference"),
        ("nvfp4, all four parts", f"{NVFP4} {PARTS}; {LAST_LAYER}", "1.5 % (2509.25149)"),
        ("without squares of weights", f"{NVFP4} gradient_rounding=stochastic hadamard=16; {LAST_LAYER}", "worse"),
        ("without stochastic gradients", f"{NVFP4} weight_block=16x16 hadamard=16; {LAST_LAYER}", "worse"),
        ("without Hadamard transforms", f"{NVFP4} weight_block=16x16 gradient_rounding=stochastic; {LAST_LAYER}", "worse"),
        ("without a layer in bf16", f"{NVFP4} {PARTS}", "worse"),
        ("forward in bf16 at the end", f"{NVFP4} {PARTS}; {LAST_LAYER}; {switched(steps)}", "smaller"),
        ("nvfp4 alone", NVFP4, "–"),
    ]


def of_mx(steps):
    return [
        ("bf16", "bf16-mixed", "reference"),
        ("mxfp8, rceil", "bf16-mixed compute=mxfp8 scale_rounding=rceil", "within 0.003 nats (pytorch/ao#4798)"),
        ("mxfp8, floor", "bf16-mixed compute=mxfp8", "worse than rceil"),
        ("mxfp8, e5m2 gradients", "bf16-mixed compute=mxfp8 scale_rounding=rceil; *: operand=gradient compute=mxfp8-e5m2", "–"),
        ("fp8, rows", "float8_rowwise", "–"),
        ("fp8, tensors", "float8_tensorwise", "–"),
        ("mxfp6", "bf16-mixed compute=mxfp6-e3m2 scale_rounding=rceil", "–"),
        ("mxfp4", "bf16-mixed compute=mxfp4 scale_rounding=rceil", "–"),
        ("nvfp4", "NVFP4BlockScaling()", "within 0.05 nats (pytorch/ao#4798)"),
    ]


def of_promotion(steps):
    return [
        ("fp8, sums in f32", "bf16-mixed compute=e4m3 scaling=current", "reference"),
        ("on a Hopper card", "bf16-mixed compute=e4m3 scaling=current accumulate=h100", "up to 2 % error of a product (2412.19437)"),
        ("promoted every 128 terms", "bf16-mixed compute=e4m3 scaling=current accumulate=h100:k=128", "as f32"),
        ("bf16", "bf16-mixed", "–"),
    ]


def of_stochastic(steps):
    return [
        ("mixed", "bf16-mixed", "reference"),
        ("bf16 weights, to nearest", "bf16-true", "worse"),
        ("bf16 weights, stochastic", "bf16-true rounding=stochastic", "not worse (2502.20566)"),
        ("bf16 weights, compensated", "bf16-true kahan=true", "–"),
    ]


RECIPES = {"nvfp4": of_nvfp4, "mx": of_mx, "promotion": of_promotion, "stochastic": of_stochastic}


def comparison_of(mantissa, config, policies, seeds, steps):
    """Trains every policy with the same seeds."""
    out = mantissa.out / "compare"
    options = [x for _, policy, _ in policies for x in ("--precision", policy)]
    mantissa("compare", config, "--out", out, "--quiet", "--seeds", seeds, "--set", f"run.steps={steps}", *options, *mantissa.threads)
    return json.loads((out / "compare.json").read_text())


def held_out(comparison, index):
    runs = [comparison["runs"][index]] + [r for r in comparison["reseeded"] if r["run"] == index]
    losses = [run["validation_loss"] for run in runs if run["validation_loss"] is not None]
    return statistics.mean(losses) if losses else None


def experiment_recipes(args, mantissa, config):
    policies = RECIPES[args.experiment](args.steps)
    comparison = comparison_of(mantissa, config, policies, args.seeds, args.steps)
    rows, base = [], held_out(comparison, 0)
    for index, ((label, policy, published), run) in enumerate(zip(policies, comparison["runs"])):
        loss, error = held_out(comparison, index), (run["paired"] or {}).get("standard_error")
        known = index > 0 and run["gap"] is not None
        rows.append([label, f"`{policy}`", "–" if loss is None else f"{loss:.4f}", f"{run['gap']:+.2g}" if known else "–",
                     f"{error:.2g}" if known and error is not None else "–", f"{100 * run['gap'] / base:+.2g}" if known and base else "–",
                     run["outcome"], published])
    return HEADER, rows
