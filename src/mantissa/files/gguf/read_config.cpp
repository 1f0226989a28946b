#include "mantissa/files/gguf/read_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/words.h"
#include "mantissa/files/gguf/check_sizes.h"
#include "mantissa/files/gguf/llama3_factors.h"
#include "mantissa/files/gguf/special_tokens.h"
#include "mantissa/files/rwkv/checkpoint.h"

namespace mantissa::gguf {
namespace {

using nlohmann::json;

constexpr const char* kRopeFactors = "rope_freqs.weight";
constexpr const char* kExpertCount = "expert_count";

/// Reads the keys of one architecture.
class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, const Architecture& architecture)
      : file_(file), architecture_(architecture) {}

  ReadConfig read() {
    if (experts() != has_experts()) {
      file_.fail(experts()
                     ? fmt::format("is a mixture of experts, which is not supported in the architecture {}",
                                   architecture_.name)
                     : fmt::format("the metadata key {} is missing or 0. Fix: download the file again",
                                   key(kExpertCount)));
    }
    check_sizes(file_, architecture_);
    json config = architecture_.name == "gpt2" ? gpt2() : architecture_.name == "rwkv7" ? rwkv7() : decoder();
    config["model_type"] = architecture_.model_type;
    config["vocab_size"] = embedding().shape.front();
    config["tie_word_embeddings"] = tied();
    const SpecialTokens special = special_tokens(file_);
    const auto set = [&](const char* name, std::optional<std::int64_t> id) {
      config[name] = id ? json(*id) : json();
    };
    set("bos_token_id", special.bos);
    set("eos_token_id", special.eos);
    set("pad_token_id", special.pad);
    return {model::parse_model_config(config, file_.path().string()), std::move(ignored_)};
  }

 private:
  bool experts() const { return file_.integer(key(kExpertCount)).value_or(0) > 0; }
  /// Returns true if the family has experts.
  bool has_experts() const {
    return std::ranges::any_of(architecture_.layers,
                               [](const NameRule& rule) { return is_router(rule.gguf); });
  }

  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_.name, name); }

  [[noreturn]] void missing(std::string_view name) const {
    file_.fail(fmt::format("the metadata key {} is missing. Fix: download the file again", key(name)));
  }

  /// Returns a size, which some files give per layer.
  std::optional<std::int64_t> size(std::string_view name) const {
    const Value* value = file_.value(key(name));
    const auto* list = value == nullptr ? nullptr : std::get_if<Integers>(value);
    if (list == nullptr || list->empty()) return file_.integer(key(name));
    if (std::ranges::any_of(*list, [&](std::int64_t v) { return v != list->front(); }))
      file_.fail(fmt::format("{} differs between layers, which is not supported", key(name)));
    return list->front();
  }
  std::int64_t needed_size(std::string_view name) const {
    const std::optional<std::int64_t> found = size(name);
    if (!found) missing(name);
    return *found;
  }
  double needed_number(std::string_view name) const {
    const std::optional<double> found = file_.number(key(name));
    if (!found) missing(name);
    return *found;
  }

  const FileTensor& embedding() const {
    const FileTensor* tensor = file_.find("token_embd.weight");
    if (tensor == nullptr || tensor->shape.size() != 2)
      file_.fail("tensor \"token_embd.weight\" is missing or is not a matrix. Fix: download the file again");
    return *tensor;
  }

  /// Some files of tied models hold the embedding twice.
  bool tied() {
    const FileTensor* output = file_.find("output.weight");
    if (output == nullptr) return true;
    const FileTensor& input = embedding();
    if (output->type != input.type || output->shape != input.shape) return false;
    if (!std::ranges::equal(file_.data(*output), file_.data(input))) return false;
    ignored_.push_back(output->name);
    return true;
  }

  json gpt2() const {
    return {{"n_positions", needed_size("context_length")},
            {"n_embd", needed_size("embedding_length")},
            {"n_layer", needed_size("block_count")},
            {"n_head", needed_size("attention.head_count")},
            {"n_inner", needed_size("feed_forward_length")},
            {"layer_norm_epsilon", needed_number("attention.layer_norm_epsilon")},
            {"activation_function", "gelu_new"}};
  }

  json rwkv7() {
    for (const char* part : {"0", "1", "2"}) {  // not used by RWKV-7
      if (std::string name = fmt::format("blk.0.time_mix_v{}.weight", part); file_.find(name) != nullptr)
        ignored_.push_back(std::move(name));
    }
    if (const auto shifts = file_.integer(key("token_shift_count")).value_or(2); shifts != 2)
      file_.fail(fmt::format("{} is {}, which is not supported", key("token_shift_count"), shifts));
    json config = {{"hidden_size", needed_size("embedding_length")},
                   {"num_hidden_layers", needed_size("block_count")},
                   {"head_dim", needed_size("wkv.head_size")},
                   {"intermediate_size", needed_size("feed_forward_length")},
                   {"decay_low_rank_dim", needed_size("attention.decay_lora_rank")},
                   {"a_low_rank_dim", needed_size("attention.iclr_lora_rank")},
                   {"v_low_rank_dim", needed_size("attention.value_residual_mix_lora_rank")},
                   {"gate_low_rank_dim", needed_size("attention.gate_lora_rank")},
                   {"norm_eps", needed_number("attention.layer_norm_epsilon")},
                   {"hidden_act", "sqrelu"}};
    const double head_eps = config["head_dim"].get<double>() * config["norm_eps"].get<double>();
    if (std::abs(head_eps / rwkv::kHeadNormEps - 1) > 1e-12) config["group_norm_eps"] = rwkv::kHeadNormEps;
    return config;
  }

  json decoder() {
    const std::int64_t heads = needed_size("attention.head_count");
    const std::int64_t hidden = needed_size("embedding_length");
    const std::int64_t head_dim = size("attention.key_length").value_or(heads > 0 ? hidden / heads : 0);
    json config = {{"hidden_size", hidden},
                   {"intermediate_size", needed_size("feed_forward_length")},
                   {"num_hidden_layers", needed_size("block_count")},
                   {"num_attention_heads", heads},
                   {"num_key_value_heads", size("attention.head_count_kv").value_or(heads)},
                   {"head_dim", head_dim},
                   {"max_position_embeddings", needed_size("context_length")}};
    const bool stablelm = architecture_.name == "stablelm";
    if (!stablelm) config["rms_norm_eps"] = needed_number("attention.layer_norm_rms_epsilon");
    if (size("attention.value_length").value_or(head_dim) != head_dim)
      file_.fail("heads of keys and values have different sizes, which is not supported");
    if (stablelm) {
      add_stablelm(config, head_dim);
    } else if (size("rope.dimension_count").value_or(head_dim) != head_dim) {
      file_.fail(fmt::format("{} is not the size of a head, {}; partial rotation is not supported",
                             key("rope.dimension_count"), head_dim));
    }
    const bool gemma = architecture_.name.starts_with("gemma");
    config[gemma ? "hidden_activation" : "hidden_act"] = gemma ? "gelu_pytorch_tanh" : "silu";
    add_rope(config, head_dim);
    if (gemma) add_gemma(config, heads, hidden, head_dim);
    if (has_experts()) {
      add_experts(config);
      return config;
    }
    const bool granite = architecture_.name == "granite", llama = granite || architecture_.name == "llama";
    if (granite) add_granite(config, head_dim);
    if (llama || architecture_.name == "qwen3") config["attention_bias"] = has("blk.0.attn_q.bias");
    if (llama) config["mlp_bias"] = has("blk.0.ffn_gate.bias");
    if (architecture_.name == "olmo2" && size("attention.sliding_window").value_or(0) > 0)
      file_.fail("is an OLMo 3: layers with windows are not supported in the architecture olmo2");
    return config;
  }

  bool has(const char* tensor) const { return file_.find(tensor) != nullptr; }

  /// The tensors of a file tell what its layers have, as in llama.cpp.
  void add_stablelm(json& config, std::int64_t head_dim) const {
    if (has("blk.0.attn_q_norm.weight"))
      file_.fail("has norms over the heads of q and k, which are not supported in the architecture stablelm");
    config["layer_norm_eps"] = needed_number("attention.layer_norm_epsilon");
    config["use_qkv_bias"] = has("blk.0.attn_q.bias");
    config["use_parallel_residual"] = !has("blk.0.ffn_norm.weight");
    if (head_dim < 1) return;
    const std::int64_t rotated = size("rope.dimension_count").value_or(head_dim);
    const auto whole = static_cast<double>(head_dim);
    double factor = static_cast<double>(rotated) / whole;
    if (factor * whole < static_cast<double>(rotated)) factor = std::nextafter(factor, 1.0);
    config["partial_rotary_factor"] = factor;
  }

  void add_granite(json& config, std::int64_t head_dim) const {
    if (!file_.flag(key("rope.scaling.finetuned")).value_or(true))
      file_.fail(fmt::format("{} is false: layers without rotation are not supported",
                             key("rope.scaling.finetuned")));
    const auto scale = [&](const char* field, const char* name, double otherwise) {
      const double found = file_.number(key(name)).value_or(0);
      config[field] = found == 0 ? otherwise : found;
    };
    scale("embedding_multiplier", "embedding_scale", 1);
    scale("residual_multiplier", "residual_scale", 1);
    scale("logits_scaling", "logit_scale", 1);
    scale("attention_multiplier", "attention.scale", 1 / std::sqrt(static_cast<double>(head_dim)));
  }

  /// llama.cpp's code decides whether the weights of a token's experts sum to 1.
  void add_experts(json& config) const {
    const bool mixtral = architecture_.model_type == "mixtral";
    config[mixtral ? "num_local_experts" : "num_experts"] = needed_size(kExpertCount);
    config["num_experts_per_tok"] = needed_size("expert_used_count");
    if (!mixtral) config["norm_topk_prob"] = architecture_.name == "qwen3moe";
    if (architecture_.name == "qwen3moe")
      config["moe_intermediate_size"] = needed_size("expert_feed_forward_length");
  }

  void add_rope(json& config, std::int64_t head_dim) {
    const double theta = file_.number(key("rope.freq_base")).value_or(10000);
    config["rope_theta"] = theta;
    config["rope_scaling"] = rope_scaling();
    const FileTensor* factors = file_.find(kRopeFactors);
    if (factors == nullptr) return;
    ignored_.emplace_back(kRopeFactors);
    if (!config["rope_scaling"].is_null())
      file_.fail(fmt::format("has both {} and {}", kRopeFactors, key("rope.scaling.type")));
    const std::optional<json> scaling = llama3_scaling(factors_of(*factors), theta, head_dim);
    if (!scaling) {
      file_.fail(
          fmt::format("the factors of {} are not those of the scaling \"llama3\"; no other kind is supported",
                      kRopeFactors));
    }
    config["rope_scaling"] = *scaling;
  }

  std::vector<float> factors_of(const FileTensor& tensor) const {
    if (tensor.type->number != static_cast<std::uint32_t>(TensorType::f32))
      file_.fail(fmt::format("tensor {} must be F32", kRopeFactors));
    std::vector<float> factors(tensor.count());
    std::ranges::copy(file_.data(tensor), std::as_writable_bytes(std::span(factors)).begin());
    return factors;
  }

  json rope_scaling() const {
    const std::string type = file_.text(key("rope.scaling.type")).value_or("none");
    std::optional<double> factor = file_.number(key("rope.scaling.factor"));
    if (!factor) factor = file_.number(key("rope.scale_linear"));  // before 2024
    const bool linear =
        type == "linear" || (type == "none" && !file_.value(key("rope.scaling.type")) && factor);
    if (type != "none" && type != "linear" && type != "yarn") {
      file_.fail(fmt::format("{} is {}, which is not supported; supported: none, linear, yarn",
                             key("rope.scaling.type"), name_in_quotes(type)));
    }
    if (linear && factor.value_or(1) == 1) return nullptr;
    if (linear) return {{"rope_type", "linear"}, {"factor", *factor}};
    if (type == "none") return nullptr;
    if (!factor) missing("rope.scaling.factor");
    for (const char* name : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"}) {
      if (file_.number(key(name)).value_or(1) != 1)
        file_.fail(fmt::format("{} is not 1, which is not supported", key(name)));
    }
    json yarn = {{"rope_type", "yarn"},
                 {"factor", *factor},
                 {"original_max_position_embeddings", needed_size("rope.scaling.original_context_length")}};
    if (const auto fast = file_.number(key("rope.scaling.yarn_beta_fast"))) yarn["beta_fast"] = *fast;
    if (const auto slow = file_.number(key("rope.scaling.yarn_beta_slow"))) yarn["beta_slow"] = *slow;
    return yarn;
  }

  void add_gemma(json& config, std::int64_t heads, std::int64_t hidden, std::int64_t head_dim) const {
    const auto layers = config["num_hidden_layers"].get<std::int64_t>();
    config["query_pre_attn_scalar"] = gemma_query_scale(architecture_, layers, heads, hidden, head_dim);
    const auto cap = [&](const char* name, json otherwise) {
      const std::optional<double> found = file_.number(key(name));
      return !found ? otherwise : *found == 0 ? json() : json(*found);
    };
    const bool second = architecture_.name == "gemma2";
    config["final_logit_softcapping"] = cap("final_logit_softcapping", second ? json(30.0) : json());
    if (second) config["attn_logit_softcapping"] = cap("attn_logit_softcapping", 50.0);
    const std::optional<std::int64_t> window = size("attention.sliding_window");
    if (second || window.value_or(0) > 0) config["sliding_window"] = window.value_or(4096);
    if (second) return;
    config["rope_local_base_freq"] = file_.number(key("rope.freq_base_swa")).value_or(10000);
    constexpr std::int64_t kPattern = 6;
    json types = json::array();
    if (layers > 0 && layers <= 1000) {
      for (std::int64_t i = 0; i < layers; ++i)
        types.push_back(window.value_or(0) > 0 && (i + 1) % kPattern != 0 ? "sliding_attention"
                                                                          : "full_attention");
    }
    config["layer_types"] = types;
  }

  const GgufFile& file_;
  const Architecture& architecture_;
  std::vector<std::string> ignored_;
};

}  // namespace

const Architecture& architecture_of(const GgufFile& file) {
  const std::optional<std::string> name = file.text("general.architecture");
  if (!name) file.fail("the metadata key general.architecture is missing. Fix: download the file again");
  const bool experts = file.integer(fmt::format("{}.{}", *name, kExpertCount)).value_or(0) > 0;
  if (const Architecture* found = find_architecture(*name, experts)) return *found;
  if (name->starts_with("rwkv6") || *name == "arwkv7") {
    file.fail(fmt::format(
        "expected RWKV-7 (rwkv7), got the architecture {}, {}. Fix: give a GGUF file of an RWKV-7 model",
        *name,
        *name == "arwkv7"
            ? "an RWKV-7 whose layers have the norms and the MLP of Qwen"
            : "RWKV-6 (x060): its mixtures with the previous token depend on the token, and its "
              "state has no delta rule"));
  }
  std::vector<std::string> supported = names_of(all_architectures(), &Architecture::name);
  std::ranges::sort(supported);  // families may share one
  supported.erase(std::ranges::unique(supported).begin(), supported.end());
  file.fail(fmt::format("has the architecture {}, which is not supported; supported: {}",
                        name_in_quotes(*name), list_of(supported)));
}

ReadConfig read_config(const GgufFile& file, const Architecture& architecture) {
  return ConfigReader(file, architecture).read();
}

}  // namespace mantissa::gguf
