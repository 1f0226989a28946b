// The texts of the configs that mantissa init writes. new_config() adds their first lines, and fills in their
// common pieces, {name}, {model}, {source} and {precision}.
#include <array>

#include "mantissa/setup/config/new_config.h"

namespace mantissa::config {
namespace {

constexpr std::string_view kConversation =
    R"(rows such as {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]})";
constexpr std::string_view kPair = R"(rows such as {"prompt": "…", "chosen": "…", "rejected": "…"})";

/// Parts of several texts, by the names that stand for them.
constexpr std::pair<std::string_view, std::string_view> kPieces[] = {
    {"{start}", R"([run]
name = "{name}"
steps = 200

# A Hugging Face directory, a GGUF file, or the model/ of a run.
[model]
path = "{model}")"},
    {"{new-model}",
     R"([model]                       # a new one; config = "config.json" reads the sizes of another
model_type = "llama"
vocab_size = 256              # of data.tokenizer
hidden_size = 128
intermediate_size = 352
num_hidden_layers = 4
num_attention_heads = 4
num_key_value_heads = 4
tie_word_embeddings = true
eos_token_id = 0)"},
    {"{conversations}", R"([train]
objective = "sft"             # only the answers are trained

# Rows with messages, or with prompt and completion.
[data]
source = "{source}"
template = "auto"             # the tokenizer's own; or chatml, llama3, qwen, mistral, gemma
sequence_length = 1024
truncate = "left"             # of longer rows, the end is kept
packing = true                # several rows in one sequence; attention stays within each
validation = 0.02             # held-out share

[batch]
global_batch_size = 8         # sequences per step
micro_batch_size = 1          # sequences at once: changes memory and speed)"},
    {"{pairs}", R"(# Rows with prompt, chosen and rejected.
[data]
source = "{source}"
template = "auto"             # the tokenizer's own; or chatml, llama3, qwen, mistral, gemma
sequence_length = 512
truncate = "left"             # of longer rows, the end is kept
validation = 0.02             # held-out share

[batch]
global_batch_size = 16        # pairs per step
micro_batch_size = 2          # pairs at once: changes memory and speed)"},
    {"{end}", R"(weight_decay = 0.0

[schedule]
name = "cosine"
warmup_steps = 10
min_lr_ratio = 0.1

{precision}

[checkpoint]
interval = 50                 # steps between states, from which --resume continues
)"}};

constexpr std::string_view kPretrain = R"([run]
name = "{name}"
steps = 1000

{new-model}

# Generated puzzles ("kk"), or files and globs of text: "*.txt".
[data]
source = "{source}"
tokenizer = "byte"            # or a tokenizer.json, which mantissa tokenizer train writes
sequence_length = 512
packing = true                # several documents in one sequence; attention stays within each
validation = 0.01             # held-out share

[batch]
global_batch_size = 8         # sequences per step
micro_batch_size = 4          # sequences at once: changes memory and speed

[optimizer]
lr = 1e-3
weight_decay = 0.1

[schedule]
name = "cosine"
warmup_steps = 50
min_lr_ratio = 0.1

{precision}

[checkpoint]
interval = 250                # steps between states, from which --resume continues
)";

constexpr std::string_view kContinue = R"({start}

# Files and globs of text, JSON lines or token ids.
[data]
source = "{source}"
tokenizer = "model"           # the one next to the weights
sequence_length = 1024
packing = true                # several documents in one sequence; attention stays within each
validation = 0.01             # held-out share

[batch]
global_batch_size = 8         # sequences per step
micro_batch_size = 1          # sequences at once: changes memory and speed

[optimizer]
lr = 1e-4
weight_decay = 0.1

[schedule]
name = "cosine"
warmup_steps = 20
min_lr_ratio = 0.1

{precision}

[checkpoint]
interval = 100                # steps between states, from which --resume continues
)";

constexpr std::string_view kFinetune = R"({start}

{conversations}

[optimizer]
lr = 1e-5
{end})";

constexpr std::string_view kLora = R"({start}

[adapter]
kind = "lora"
rank = 16
alpha = 32
target = ["*"]                # every linear layer but the head
base = "bf16"                 # format of the frozen weights; nf4 needs least memory (QLoRA)

{conversations}

[optimizer]
lr = 2e-4
{end})";

constexpr std::string_view kDpo = R"({start}

[train]
objective = "dpo"

[dpo]
beta = 0.1                    # strength of the tie to the model at the start

{pairs}

[optimizer]
lr = 5e-7
{end})";

constexpr std::string_view kReward = R"({start}

[train]
objective = "reward"          # chosen answers score higher than rejected ones

{pairs}

[optimizer]
lr = 9e-6
{end})";

constexpr std::string_view kRl = R"([run]
name = "{name}"
steps = 40

# A Hugging Face directory, a GGUF file, or the model/ of a run.
[model]
path = "{model}"

# Generated puzzles ("kk"), or rows with a prompt and the fields that rl.reward reads.
[data]
source = "{source}"
tokenizer = "model"           # the one next to the weights
template = "auto"             # the tokenizer's own; none: prompts as they are
people_min = 2
people_max = 2
validation = 0.1              # held-out share of the prompts

[rl]
algorithm = "grpo"
reward = "{reward}"                 # kk, exact, regex:PATTERN or program:COMMAND
prompts_per_step = 8
samples_per_prompt = 8
max_new_tokens = 256
kl_coef = 0.001               # 0: no reference model

[batch]
micro_batch_size = 8          # responses at once: changes memory and speed

[optimizer]
lr = 1e-6
weight_decay = 0.0

[schedule]
name = "cosine"
warmup_steps = 4
min_lr_ratio = 0.1

{precision}

[checkpoint]
interval = 10                 # steps between states, from which --resume continues
)";

constexpr std::string_view kLongContext = R"([run]
name = "{name}"

# The stages run one after the other in one run.
[[run.stage]]
steps = 40
sequence_length = 1024
global_batch_size = 4

[[run.stage]]
steps = 10
sequence_length = 4096

[[run.stage]]
steps = 4
sequence_length = 16384
lr = 1e-4
warmup_steps = 1

{new-model}
rope_theta = "lwm"            # the base of the rotary angles grows with the context

# Generated puzzles ("kk"), or files and globs of text: "*.txt".
[data]
source = "{source}"
tokenizer = "byte"            # or a tokenizer.json, which mantissa tokenizer train writes
validation = 0.02             # held-out share

[batch]
global_batch_size = 1         # of the stages without their own
micro_batch_size = 1
recompute = "block"           # keeps only the residual stream between layers

[optimizer]
lr = 1e-3

[schedule]
name = "constant"
warmup_steps = 2

{precision}

[checkpoint]
interval = 20                 # steps between states, from which --resume continues
)";

constexpr std::string_view kText = "files of text";
constexpr std::string_view kPrompt =
    "rows with a prompt and the fields that rl.reward reads, such as {\"prompt\": \"…\", \"answer\": \"…\"}";

constexpr std::array kTasks = {
    ConfigTask{"pretrain", "train a small new model on text", "train", Rows::text, kText, "kk", false,
               kPretrain},
    ConfigTask{"continue", "continue the pretraining of a model on text", "train", Rows::text, kText, "*.txt",
               true, kContinue},
    ConfigTask{"finetune", "train all weights of a model on conversations", "train", Rows::conversations,
               kConversation, "train.jsonl", true, kFinetune},
    ConfigTask{"lora", "train an adapter (LoRA) of a model on conversations", "train", Rows::conversations,
               kConversation, "train.jsonl", true, kLora},
    ConfigTask{"dpo", "train a model on pairs of answers (direct preference optimization)", "train",
               Rows::pairs, kPair, "pairs.jsonl", true, kDpo},
    ConfigTask{"reward", "train a reward model on pairs of answers", "train", Rows::pairs, kPair,
               "pairs.jsonl", true, kReward},
    ConfigTask{"rl", "train a model by reinforcement learning on a rule (GRPO)", "rl", Rows::prompts, kPrompt,
               "kk", true, kRl},
    ConfigTask{"long-context", "train a new model in stages of growing context", "train", Rows::text, kText,
               "kk", false, kLongContext},
};

}  // namespace

std::span<const ConfigTask> config_tasks() {
  return kTasks;
}

std::span<const std::pair<std::string_view, std::string_view>> config_pieces() {
  return kPieces;
}

}  // namespace mantissa::config
