#include "mantissa/app/serve/request.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "mantissa/app/serve/fields.h"
#include "mantissa/app/serve/request_error.h"

namespace mantissa::serve {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostLikely = 20, kMostStops = 64, kManyTokens = std::int64_t{1} << 24;

std::vector<std::int32_t> ids_of(const json& list) {
  std::vector<std::int32_t> ids;
  for (const json& id : list) {
    const bool fits = id.is_number_integer() && id >= 0 && id <= std::numeric_limits<std::int32_t>::max();
    if (!fits)
      throw RequestError(400, fmt::format("prompt: expected token ids, got {}", shown(id)), "prompt");
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

/// Reads a text, texts, ids, or lists of ids.
std::vector<TextPrompt> prompts_of(Fields& fields) {
  const json& value = fields.value("prompt");
  constexpr const char* kExpected = "a string, an array of strings, token ids, or an array of arrays of them";
  if (value.is_string()) return {{value.get<std::string>(), {}, false}};
  if (!value.is_array() || value.empty()) fields.fail("prompt", kExpected);
  if (value.front().is_number()) return {{{}, ids_of(value), true}};
  std::vector<TextPrompt> prompts;
  for (const json& one : value) {
    if (one.type() != value.front().type() || (!one.is_string() && !one.is_array()))
      fields.fail("prompt", kExpected);
    prompts.push_back(one.is_string() ? TextPrompt{one.get<std::string>(), {}, false}
                                      : TextPrompt{{}, ids_of(one), true});
  }
  return prompts;
}

std::vector<std::string> stops_of(Fields& fields, const Defaults& defaults) {
  const json& value = fields.value("stop");
  if (value.is_null()) return defaults.stop;
  std::vector<std::string> stops;
  const auto add = [&](const json& one) {
    if (!one.is_string() || one.get_ref<const std::string&>().empty())
      throw RequestError(400, fmt::format("stop: expected strings that are not empty, got {}", shown(one)),
                         "stop");
    stops.push_back(one.get<std::string>());
  };
  if (!value.is_array()) {
    add(value);
    return stops;
  }
  if (std::ssize(value) > kMostStops) fields.fail("stop", fmt::format("at most {} strings", kMostStops));
  for (const json& one : value) add(one);
  return stops;
}

/// Returns the field in [least, most], or the default.
double bounded(Fields& fields, const char* name, double fallback, double least, double most,
               std::string_view expected) {
  const double x = fields.number(name).value_or(fallback);
  if (!(x >= least && x <= most)) fields.fail(name, expected);
  return x;
}

rollout::SamplingOptions sampling_of(Fields& fields, const Defaults& defaults) {
  constexpr double kLarge = 1e6, kSmall = 1e-300;
  rollout::SamplingOptions s = defaults.sampling;
  s.temperature = bounded(fields, "temperature", s.temperature, 0, kLarge,
                          "0 (the most likely token) or a positive number");
  s.top_p = bounded(fields, "top_p", s.top_p, kSmall, 1, "a number above 0 and at most 1");
  s.min_p = bounded(fields, "min_p", s.min_p, 0, 1, "a number of 0 to 1");
  s.repetition_penalty =
      bounded(fields, "repetition_penalty", s.repetition_penalty, kSmall, kLarge, "a positive number");
  s.top_k = fields.integer("top_k", 0, std::int64_t{1} << 40).value_or(s.top_k);
  if (const auto seed = fields.integer("seed", 0, std::numeric_limits<std::int64_t>::max()))
    s.seed = static_cast<std::uint64_t>(*seed);
  return s;
}

/// Reads what both kinds of requests have.
void read_common(Fields& fields, const Defaults& defaults, const Limits& limits, TextRequest& r) {
  r.sampling = sampling_of(fields, defaults);
  r.stop = stops_of(fields, defaults);
  r.n = fields.integer("n", 1, limits.sequences).value_or(1);
  r.stream = fields.flag("stream").value_or(false);
  if (const json& options = fields.value("stream_options"); !options.is_null()) {
    if (!r.stream)
      throw RequestError(400, "stream_options: needs \"stream\": true. Fix: leave it out", "stream_options");
    Fields of(options, "stream_options.");
    r.include_usage = of.flag("include_usage").value_or(false);
    of.ignore("include_obfuscation");
    of.finish();
  }
  for (const char* name : {"model", "user", "metadata", "store", "service_tier", "safety_identifier",
                           "prompt_cache_key", "prompt_cache_retention"})
    fields.ignore(name);
  const json zero[] = {0}, none[] = {json::object(), json::array()};
  fields.refuse("frequency_penalty", zero, "repetition_penalty is the only penalty");
  fields.refuse("presence_penalty", zero, "repetition_penalty is the only penalty");
  fields.refuse("logit_bias", none, "logits have no biases");
}

void check_sequences(const TextRequest& r, const Limits& limits) {
  if (r.sequences() <= limits.sequences) return;
  throw RequestError(
      400,
      fmt::format("prompt: expected at most {} sequences, got {} ({} prompts × n {}). Fix: several "
                  "requests",
                  limits.sequences, r.sequences(), r.prompts.size(), r.n),
      "prompt");
}

std::string content_of(const json& content, const std::string& where) {
  const auto fail = [&](std::string_view expected, const json& got) {
    throw RequestError(400, fmt::format("{}: expected {}, got {}", where, expected, shown(got)), where);
  };
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null()) return {};
  if (!content.is_array()) fail("a string or an array of text parts", content);
  std::string text;
  for (const json& part : content) {
    const bool is_text = part.is_object() && part.value("type", json()) == "text" && part.contains("text") &&
                         part["text"].is_string();
    if (!is_text) fail("parts of the form {\"type\": \"text\", \"text\": \"…\"}", part);
    text += part["text"].get<std::string>();
  }
  return text;
}

std::vector<dialog::Message> messages_of(Fields& fields) {
  const json& value = fields.value("messages");
  if (!value.is_array() || value.empty()) fields.fail("messages", "an array of messages");
  std::vector<dialog::Message> messages;
  for (const json& message : value) {
    const std::string where = fmt::format("messages[{}].", messages.size());
    Fields of(message, where);
    std::string role = of.text("role").value_or("");
    if (role == "developer") role = "system";  // the newer name
    if (role != "system" && role != "user" && role != "assistant")
      of.fail("role", "\"system\", \"user\" or \"assistant\"");
    messages.push_back({role, content_of(of.value("content"), where + "content")});
    for (const char* name : {"name", "refusal", "annotations"}) of.ignore(name);
    const json none[] = {json::array()};
    of.refuse("tool_calls", none, "tools are not");
    of.refuse("function_call", {}, "functions are not");
    of.refuse("audio", {}, "messages are text");
    of.finish();
  }
  return messages;
}

}  // namespace

TextRequest read_completion(std::string_view body, const Defaults& defaults, const Limits& limits) {
  const json object = parse_body(body);
  Fields fields(object);
  TextRequest r;
  r.prompts = prompts_of(fields);
  read_common(fields, defaults, limits, r);
  r.max_tokens = fields.integer("max_tokens", 0, kManyTokens);
  const std::optional<std::int64_t> log_probs = fields.integer("logprobs", 0, kMostLikely);
  r.log_probs = log_probs.has_value();
  r.most_likely = log_probs.value_or(0);
  r.echo = fields.flag("echo").value_or(false);
  const json same[] = {1, r.n}, empty[] = {""};
  fields.refuse("best_of", same, "every sequence is returned");
  fields.refuse("suffix", empty, "a text ends where it ends");
  fields.finish();
  if (r.max_tokens == 0 && !r.echo) {
    throw RequestError(400, "max_tokens: 0 gives an empty answer. Fix: \"echo\": true, or at least 1",
                       "max_tokens");
  }
  check_sequences(r, limits);
  return r;
}

TextRequest read_chat(std::string_view body, const Defaults& defaults, const Limits& limits) {
  const json object = parse_body(body);
  Fields fields(object);
  TextRequest r;
  r.chat = true;
  r.messages = messages_of(fields);
  read_common(fields, defaults, limits, r);
  r.max_tokens = fields.integer("max_tokens", 1, kManyTokens);
  if (const auto newer = fields.integer("max_completion_tokens", 1, kManyTokens)) r.max_tokens = newer;
  r.log_probs = fields.flag("logprobs").value_or(false);
  const std::optional<std::int64_t> top = fields.integer("top_logprobs", 0, kMostLikely);
  if (top && !r.log_probs) throw RequestError(400, "top_logprobs: needs \"logprobs\": true", "top_logprobs");
  r.most_likely = top.value_or(0);
  const json none[] = {json::array()}, no_choice[] = {"none", "auto"};
  const json text[] = {json::object({{"type", "text"}})}, only_text[] = {json::array({"text"})};
  fields.refuse("tools", none, "the model answers with text");
  fields.refuse("functions", none, "the model answers with text");
  fields.refuse("tool_choice", no_choice, "the model answers with text");
  fields.refuse("function_call", no_choice, "the model answers with text");
  fields.refuse("response_format", text, "nothing restricts the form of a text");
  fields.refuse("modalities", only_text, "the model answers with text");
  fields.ignore("parallel_tool_calls");
  fields.finish();
  check_sequences(r, limits);
  return r;
}

}  // namespace mantissa::serve
