// The messages of a conversation, as JSON, rendered by the built-in templates and by one that prints all of
// them.
#include <string>
#include <string_view>
#include <vector>

#include "check.h"
#include "mantissa/text/chat/template.h"
#include "mantissa/text/chat/templates.h"
#include "target.h"

using namespace mantissa;

namespace {

std::vector<chat::Template> templates() {
  std::vector<chat::Template> all;
  for (const std::string& name : chat::builtin_template_names())
    all.push_back(chat::Template::parse(*chat::builtin_template(name), name));
  all.push_back(chat::Template::parse(
      "{% for m in messages %}{{ m | tojson }}{{ m }}{% for c in m.content %}{{ c.text or c }}{% endfor %}"
      "{% for t in m.tool_calls or [] %}{{ t.function.arguments | items | list }}{% endfor %}{% endfor %}",
      "all"));
  return all;
}

}  // namespace

MANTISSA_FUZZ_TARGET(chat_messages, fuzz::mutate_json) {
  static const std::vector<chat::Template> all = templates();
  const auto messages = nlohmann::ordered_json::parse(data, data + size, nullptr, false);
  if (messages.is_discarded()) return 0;
  chat::RenderOptions options;
  options.limits = {.steps = 20'000, .bytes = 1 << 20, .depth = 200};
  for (const chat::Template& chat : all) {
    for (const bool prompt : {false, true}) {
      fuzz::expect_only_errors([&] {
        const auto context =
            chat::chat_context(messages, prompt, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
        const chat::Rendered rendered = chat.render(context, options);
        for (const auto& [begin, end] : rendered.generations)
          fuzz::require(begin <= end && end <= rendered.text.size(), "a generation lies inside the text");
        fuzz::require(chat.render(context, options).text == rendered.text, "the same text again");
      });
    }
  }
  return 0;
}
