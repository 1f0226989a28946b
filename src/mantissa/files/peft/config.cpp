#include "mantissa/files/peft/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/policy/policy.h"

namespace mantissa::peft {
namespace {

using nlohmann::json;

/// A setting that changes the result and is not supported, unless it is absent, null, false or empty.
struct Unsupported {
  const char* key;
  const char* cure;
};
constexpr const char* kMergeInPeft = "merge the adapter into its base in peft (merge_and_unload)";
constexpr std::array kUnsupported = {
    Unsupported{"layer_replication", kMergeInPeft},
    Unsupported{"lora_bias", kMergeInPeft},
    Unsupported{"trainable_token_indices", kMergeInPeft},
    Unsupported{"target_parameters", kMergeInPeft},
    Unsupported{"use_qalora", kMergeInPeft},
    Unsupported{"use_bdlora", kMergeInPeft},
    Unsupported{"alora_invocation_tokens", "load it in peft: it is active only after its invocation tokens"},
    Unsupported{"arrow_config", "load it in peft: it routes between adapters"},
    Unsupported{"monteclora_config", kMergeInPeft},
    Unsupported{"kasa_config", kMergeInPeft},
    Unsupported{"velora_config", kMergeInPeft},
};

/// The initializations that leave the base as it is; others change its weights or compute them anew.
constexpr std::array<std::string_view, 3> kPlainStarts = {"gaussian", "orthogonal", "eva"};

[[noreturn]] void fail(const std::filesystem::path& where, const std::string& what) {
  throw ConfigError(fmt::format("{}: {}", where.string(), what));
}

class Reader {
 public:
  Reader(const json& object, const std::filesystem::path& where) : object_(object), where_(where) {}

  /// Returns the value of a key, or null if it is missing or null.
  const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  std::string text(const char* key, const char* fallback) const {
    const json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) refuse_type(key, *value, "a string");
    return value->get<std::string>();
  }
  bool flag(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) refuse_type(key, *value, "true or false");
    return value->get<bool>();
  }
  double number(const char* key, const json& value) const {
    if (!value.is_number()) refuse_type(key, value, "a number");
    return value.get<double>();
  }
  [[noreturn]] void refuse_type(const char* key, const json& value, const char* wanted) const {
    fail(where_, fmt::format("{} is {}, but must be {}", key, in_quotes(value.dump()), wanted));
  }

 private:
  const json& object_;
  const std::filesystem::path& where_;
};

bool is_absent(const json& value) {
  return value.is_null() || value == false || ((value.is_array() || value.is_object()) && value.empty());
}

void check_start(const Reader& fields, const std::filesystem::path& where) {
  const json* start = fields.find("init_lora_weights");
  if (start == nullptr || start->is_boolean()) return;
  const std::string name = start->is_string() ? lowered(start->get<std::string>()) : start->dump();
  if (std::ranges::find(kPlainStarts, name) != kPlainStarts.end()) return;
  fail(where,
       fmt::format("init_lora_weights is {}, which changes the base's weights, so the adapter does not "
                   "fit the original base; convert it in peft (save_pretrained with "
                   "path_initial_model_for_weight_conversion)",
                   in_quotes(name)));
}

void read_alpha_pattern(const Reader& fields, const std::filesystem::path& where, PeftConfig& config) {
  const json* patterns = fields.find("alpha_pattern");
  if (patterns == nullptr) return;
  if (!patterns->is_object()) fields.refuse_type("alpha_pattern", *patterns, "an object");
  for (const auto& [regex, alpha] : patterns->items()) {
    std::string glob = glob_of_regex(regex);
    if (glob.empty()) {
      fail(where,
           fmt::format("alpha_pattern has the regular expression {}, of which only names, \".\", \".*\" "
                       "and groups \"(a|b)\" are supported; list the modules by name",
                       in_quotes(regex)));
    }
    config.alpha_pattern.emplace_back(std::move(glob), fields.number("alpha_pattern", alpha));
  }
}

}  // namespace

std::string glob_of_regex(std::string_view regex) {
  std::string glob;
  int depth = 0;
  const bool anchored = regex.starts_with('^');
  for (std::size_t i = anchored ? 1 : 0; i < regex.size(); ++i) {
    const char c = regex[i];
    const bool last = i + 1 == regex.size();
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-') {
      glob += c;
    } else if (c == '\\' && !last && regex[i + 1] == '.') {
      glob += '.';
      ++i;
    } else if (c == '.') {
      const bool any = !last && regex[i + 1] == '*';
      glob += any ? '*' : '?';
      if (any) ++i;
    } else if (c == '(' && depth == 0) {
      glob += '{';
      ++depth;
    } else if (c == '|' && depth == 1) {
      glob += ',';
    } else if (c == ')' && depth == 1) {
      glob += '}';
      --depth;
    } else if (c != '$' || !last) {
      return {};
    }
  }
  if (depth != 0 || glob.empty()) return {};
  return anchored ? "^" + glob : glob;
}

double PeftConfig::alpha_of(std::string_view module) const {
  for (const auto& [glob, alpha_here] : alpha_pattern) {
    const bool anchored = glob.starts_with('^');
    const std::string whole = anchored ? glob.substr(1) : glob;
    if (precision::glob_match(whole, module) || (!anchored && precision::glob_match("*." + whole, module)))
      return alpha_here;
  }
  return alpha;
}

namespace {

/// Throws for modules that were trained as a whole, but for the head of a reward model. peft lists both names
/// that such heads have.
void check_saved_modules(const Reader& fields, const std::filesystem::path& where, bool scores) {
  const json* modules = fields.find("modules_to_save");
  if (modules == nullptr || is_absent(*modules)) return;
  const bool head = scores && modules->is_array() && std::ranges::all_of(*modules, [](const json& name) {
                      return name == "score" || name == "classifier";
                    });
  if (head) return;
  fail(where, fmt::format("modules_to_save is {}, which is not supported; train the adapter without whole "
                          "modules, or merge it into its base in peft",
                          in_quotes(modules->dump())));
}

}  // namespace

PeftConfig parse_config(const json& object, const std::filesystem::path& where) {
  if (!object.is_object()) fail(where, "must hold a JSON object with the adapter's settings");
  const Reader fields(object, where);
  const std::string type = fields.text("peft_type", "");
  if (type == kStates) {
    PeftConfig config;
    config.states = true;
    config.base = fields.text("base_model_name_or_path", "");
    config.scores = fields.text("task_type", "") == "SEQ_CLS";
    return config;
  }
  if (type != "LORA") {
    fail(where, fmt::format("peft_type is {}, but only LORA is supported (with use_rslora and use_dora)",
                            in_quotes(type)));
  }
  const std::string bias = fields.text("bias", "none");
  if (bias != "none") {
    fail(where,
         fmt::format("bias is {}: trained biases are not supported; merge the adapter into its base in "
                     "peft (merge_and_unload)",
                     in_quotes(bias)));
  }
  for (const Unsupported& setting : kUnsupported) {
    const auto found = object.find(setting.key);
    if (found == object.end() || is_absent(*found)) continue;
    fail(where, fmt::format("{} is {}, which is not supported; {}", setting.key, in_quotes(found->dump()),
                            setting.cure));
  }
  check_start(fields, where);
  PeftConfig config;
  if (const json* alpha = fields.find("lora_alpha"); alpha != nullptr)
    config.alpha = fields.number("lora_alpha", *alpha);
  config.rslora = fields.flag("use_rslora");
  config.dora = fields.flag("use_dora");
  config.base = fields.text("base_model_name_or_path", "");
  config.scores = fields.text("task_type", "") == "SEQ_CLS";
  check_saved_modules(fields, where, config.scores);
  read_alpha_pattern(fields, where, config);
  if (const json* dropout = fields.find("lora_dropout");
      dropout != nullptr && fields.number("lora_dropout", *dropout) != 0)
    config.notes.push_back(
        fmt::format("{}: lora_dropout is read as 0; adapter.dropout sets it", where.string()));
  return config;
}

}  // namespace mantissa::peft
