// The texts of the configs that mantissa init writes. new_config() adds their first lines, and fills in their
// common pieces, {name}, {model}, {source} and {precision}.
#include <array>

#include "assets/init.h"
#include "mantissa/setup/config/new_config.h"

namespace mantissa::config {
namespace {

constexpr std::string_view kConversation =
    R"(rows such as {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]})";
constexpr std::string_view kPair = R"(rows such as {"prompt": "…", "chosen": "…", "rejected": "…"})";
constexpr std::string_view kLabelled = R"(rows such as {"prompt": "…", "completion": "…", "label": true})";

/// Parts of several texts, by the names that stand for them.
constexpr std::pair<std::string_view, std::string_view> kPieces[] = {
    {"{start}", assets::kStartPartToml},
    {"{new-model}", assets::kNewModelPartToml},
    {"{conversations}", assets::kConversationsPartToml},
    {"{pairs}", assets::kPairsPartToml},
    {"{end}", assets::kEndPartToml}};

constexpr std::string_view kText = "files of text";
constexpr std::string_view kPrompt =
    "rows with a prompt and the fields that rl.reward reads, such as {\"prompt\": \"…\", \"answer\": \"…\"}";

constexpr std::array kTasks = {
    ConfigTask{"pretrain", "train a small new model on text", "train", Rows::text, kText, "kk", false,
               assets::kPretrainToml},
    ConfigTask{"rwkv", "train a small new RWKV-7 model on text by RWKV-LM's recipe", "train", Rows::text,
               kText, "kk", false, assets::kRwkvToml},
    ConfigTask{"continue", "continue the pretraining of a model on text", "train", Rows::text, kText, "*.txt",
               true, assets::kContinueToml},
    ConfigTask{"finetune", "train all weights of a model on conversations", "train", Rows::conversations,
               kConversation, "train.jsonl", true, assets::kFinetuneToml},
    ConfigTask{"lora", "train an adapter (LoRA) of a model on conversations", "train", Rows::conversations,
               kConversation, "train.jsonl", true, assets::kLoraToml},
    ConfigTask{"dpo", "train a model on pairs of answers (direct preference optimization)", "train",
               Rows::pairs, kPair, "pairs.jsonl", true, assets::kDpoToml},
    ConfigTask{"kto", "train a model on answers with a label, desirable or not", "train", Rows::labelled,
               kLabelled, "labelled.jsonl", true, assets::kKtoToml},
    ConfigTask{"reward", "train a reward model on pairs of answers", "train", Rows::pairs, kPair,
               "pairs.jsonl", true, assets::kRewardToml},
    ConfigTask{"rl", "train a model by reinforcement learning on a rule (GRPO)", "rl", Rows::prompts, kPrompt,
               "kk", true, assets::kRlToml},
    ConfigTask{"long-context", "train a new model in stages of growing context", "train", Rows::text, kText,
               "kk", false, assets::kLongContextToml},
};

}  // namespace

std::span<const ConfigTask> config_tasks() {
  return kTasks;
}

std::span<const std::pair<std::string_view, std::string_view>> config_pieces() {
  return kPieces;
}

}  // namespace mantissa::config
