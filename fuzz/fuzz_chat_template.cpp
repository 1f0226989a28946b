// A chat template rendered for a fixed conversation, under small limits. What renders does so again with the
// same text.
#include <optional>
#include <string>
#include <string_view>

#include "check.h"
#include "mantissa/text/chat/template.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(chat_template, nullptr) {
  static const auto messages = nlohmann::ordered_json::parse(R"([
      {"role": "system", "content": "Be brief."}, {"role": "user", "content": " Wie groß? 🎉\n"},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]},
      {"role": "tool", "content": "3"}])");
  static const auto context =
      chat::chat_context(messages, true, {{"bos_token", "<s>"}, {"eos_token", "</s>"}},
                         {{{"type", "function"}, {"function", {{"name", "f"}}}}});
  chat::RenderOptions options;
  options.limits = {.steps = 20'000, .bytes = 1 << 20, .depth = 200};
  options.clock = [] { return chat::LocalTime{}; };
  std::optional<std::string> text;
  fuzz::expect_only_errors([&] {
    const auto chat = chat::Template::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    const chat::Rendered rendered = chat.render(context, options);
    for (const auto& [begin, end] : rendered.generations) {
      fuzz::require(begin <= end && end <= rendered.text.size(), "a generation lies inside the text");
    }
    text = rendered.text;
    fuzz::require(chat.render(context, options).text == *text, "a template renders the same text again");
    text.reset();
  });
  fuzz::require(!text, "a template that rendered once renders again");
  return 0;
}
