#include "mantissa/text/chat/template.h"

#include <chrono>

#include "mantissa/core/base/error_text.h"
#include "mantissa/text/chat/interpreter.h"
#include "mantissa/text/chat/parser.h"

namespace mantissa::chat {

namespace {

LocalTime local_time() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  LocalTime time;
  localtime_r(&seconds, &time.calendar);
  const auto micro = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  time.microsecond = static_cast<int>(micro % 1'000'000);
  return time;
}

// The reasoning of a message has several names; templates read the first two.
nlohmann::ordered_json with_reasoning(const nlohmann::ordered_json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    nlohmann::ordered_json result = nlohmann::ordered_json::object();
    result["thinking"] = *found;
    for (const auto& [key, value] : message.items()) result[key] = value;
    result["reasoning_content"] = *found;
    return result;
  }
  return message;
}

}  // namespace

Template Template::parse(std::string_view source, std::string name) {
  return Template(parse_template(source, std::move(name)));
}

Rendered Template::render(const nlohmann::ordered_json& context, const RenderOptions& options) const {
  Interpreter in(*program_, options.limits, options.clock ? options.clock : local_time);
  for (const auto& [name, value] : context.items()) in.define(name, value);
  Rendered result;
  result.text = in.run();
  result.generations = in.generations();
  result.lost_generation = in.lost_generation();
  return result;
}

const std::string& Template::name() const {
  return program_->name;
}

nlohmann::ordered_json chat_context(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                                    const nlohmann::ordered_json& special_tokens,
                                    const nlohmann::ordered_json& tools,
                                    const nlohmann::ordered_json& documents) {
  if (!messages.is_array())
    throw ConfigError("messages: expected an array of objects. Fix: write [{\"role\": …, \"content\": …}]");
  nlohmann::ordered_json context =
      special_tokens.is_object() ? special_tokens : nlohmann::ordered_json::object();
  context["messages"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) {
      throw ConfigError("messages[{}]: expected an object with \"role\" and \"content\", got {}", i,
                        messages[i].type_name());
    }
    context["messages"].push_back(with_reasoning(messages[i]));
  }
  context["tools"] = tools;
  context["documents"] = documents;
  context["add_generation_prompt"] = add_generation_prompt;
  return context;
}

}  // namespace mantissa::chat
