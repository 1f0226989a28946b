"""The reference of check_families.py and golden_families.py: small random models of every family, run by transformers' own code
in f32 and in f64."""
import torch
import transformers

VOCABULARY = 97
DECODER = dict(vocab_size=VOCABULARY, hidden_size=48, intermediate_size=72, num_hidden_layers=3, num_attention_heads=6,
               num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.15, bos_token_id=None, eos_token_id=None,
               pad_token_id=None)  # cases with a padding id set one
GPT2 = dict(vocab_size=VOCABULARY, n_embd=48, n_layer=3, n_head=4, n_positions=64, initializer_range=0.15, bos_token_id=None,
            eos_token_id=None)
IGNORED = -100


def make(config_class, fields, seed=5, form=torch.float32):
    """Returns an f32 model whose weights are random numbers representable in `form`."""
    config = config_class(**((GPT2 if config_class.model_type == "gpt2" else DECODER) | fields), attn_implementation="eager")
    config._experts_implementation = "eager"
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():  # by default norms are 1 and biases 0, which hides a swapped pair
        for p in model.parameters():
            noise = p + 0.2 * torch.randn_like(p) if p.dim() == 1 else 0.15 * torch.randn_like(p)
            p.copy_(noise.to(form))
    return model


def parameters(model, tensors):
    """Returns tensors under the names of transformers' parameters under those of Mantissa: gate and up of experts apart."""
    mixtral = model.config.model_type == "mixtral"
    names = dict(gate="w1", up="w3", down="w2") if mixtral else dict(gate="gate_proj", up="up_proj", down="down_proj")
    named = {}
    for name, t in tensors.items():
        if mixtral:
            name = name.replace(".mlp.", ".block_sparse_moe.")
        if name.endswith(".experts.gate_up_proj"):
            gate, up = t.chunk(2, dim=1)
            scope = name.removesuffix("gate_up_proj")
            named |= {f"{scope}{names['gate']}.weight": gate.contiguous(), f"{scope}{names['up']}.weight": up.contiguous()}
        elif name.endswith(".experts.down_proj"):
            named[f"{name.removesuffix('down_proj')}{names['down']}.weight"] = t
        else:
            named[name] = t
    return named


def stored(named):
    """Returns the tensors of parameters() as files hold them: those of each expert apart."""
    files = {}
    for name, t in named.items():
        scope, experts, rest = name.partition(".experts.")
        parts = {f"{scope}.experts.{e}.{rest}": part.clone() for e, part in enumerate(t)} if experts else {name: t}
        files |= parts
    return files


class AllF64:
    """Replaces casts to float32 in transformers' model code by casts to float64."""

    def __enter__(self):
        self.f32, self.float = torch.float32, torch.Tensor.float
        torch.float32 = torch.float = torch.float64
        torch.Tensor.float = torch.Tensor.double
        torch.set_default_dtype(torch.float64)
        return self

    def __exit__(self, *_):
        torch.set_default_dtype(self.f32)
        torch.float32 = torch.float = self.f32
        torch.Tensor.float = self.float


def widened(model):
    """Returns the same model in f64, including its rotary tables. Call it, and run the result, under AllF64."""
    twin = type(model)(model.config).eval()
    twin.load_state_dict(model.state_dict())
    for module in twin.modules():  # recomputes tables that were computed in f32
        if "RotaryEmbedding" in type(module).__name__:
            module.__init__(twin.config)
    return twin.double()


def trace(model, ids, labels=None):
    """Returns the tensors of one forward and backward pass, named as in `mantissa trace --grads`."""
    model.zero_grad(set_to_none=True)
    labels = ids if labels is None else labels
    logits = model(input_ids=ids).logits
    log_probs = torch.log_softmax(logits, -1)[:, :-1]
    loss = torch.nn.functional.nll_loss(log_probs.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)
    loss.backward()
    out = {"logits": logits, "log_probs": log_probs.gather(-1, ids[:, 1:, None])[..., 0], "loss": loss.reshape(1)}
    out = {name: t.detach().clone().contiguous() for name, t in out.items()}
    grads = parameters(model, {name: p.grad.clone() for name, p in model.named_parameters()})
    return out | {"grad." + name: g for name, g in grads.items()}


def distance(a, b):
    return (a.double() - b.double()).abs().max().item()
