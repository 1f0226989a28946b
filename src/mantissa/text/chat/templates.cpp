// The built-in templates, of assets/chat/. Each is written for one format, which docs/chat.md describes.
#include "mantissa/text/chat/templates.h"

#include "assets/chat.h"
#include "mantissa/core/base/words.h"

namespace mantissa::chat {

namespace {

constexpr std::pair<std::string_view, std::string_view> kBuiltin[] = {
    {"chatml", assets::kChatmlJinja}, {"llama3", assets::kLlama3Jinja},
    {"qwen", assets::kQwenJinja},     {"mistral", assets::kMistralJinja},
    {"gemma", assets::kGemmaJinja},   {kRwkvTemplate, assets::kRwkvJinja}};

}  // namespace

std::vector<std::string> builtin_template_names() {
  return names_of(kBuiltin, [](const auto& builtin) { return builtin.first; });
}

std::optional<std::string_view> builtin_template(std::string_view name) {
  for (const auto& [known, source] : kBuiltin) {
    if (known == name) return source;
  }
  return std::nullopt;
}

}  // namespace mantissa::chat
