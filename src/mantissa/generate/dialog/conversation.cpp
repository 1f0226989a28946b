#include "mantissa/generate/dialog/conversation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/output.h"
#include "mantissa/files/io/json.h"
#include "mantissa/text/chat/unicode.h"
#include "mantissa/text/tokenizer/growing_text.h"

namespace mantissa::dialog {

namespace {

constexpr const char *kMessages = "messages", *kBytes = "bytes";

/// Returns the messages for a file of states. A message that is not UTF-8 also has its bytes, in hexadecimal.
std::string text_of(const std::vector<Message>& messages) {
  nlohmann::ordered_json all = to_json(messages);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& content = messages[i].content;
    if (chat::unicode::valid(content)) continue;
    all[i][kBytes] =
        fmt::format("{:02x}", fmt::join(std::vector<unsigned char>(content.begin(), content.end()), ""));
  }
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Returns null for text that is not of hexadecimal bytes.
std::optional<std::string> bytes_of(const std::string& hex) {
  std::string bytes(hex.size() / 2, 0);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    unsigned char byte = 0;
    const char* const end = hex.data() + 2 * i + 2;
    if (std::from_chars(hex.data() + 2 * i, end, byte, 16).ptr != end) return std::nullopt;
    bytes[i] = static_cast<char>(byte);
  }
  return hex.size() % 2 == 0 ? std::optional(bytes) : std::nullopt;
}

std::vector<Message> messages_of(const std::string& text, const std::filesystem::path& file) {
  std::vector<Message> messages;
  const auto string_in = [](const nlohmann::json& m, const char* key) {
    return m.contains(key) && m[key].is_string() ? std::optional(m[key].get<std::string>()) : std::nullopt;
  };
  const nlohmann::json all = io::parse_json(text, file);
  for (const nlohmann::json& m : all) {
    const bool is_message = all.is_array() && m.is_object();
    const std::optional<std::string> role = is_message ? string_in(m, "role") : std::nullopt;
    std::optional<std::string> content = is_message ? string_in(m, "content") : std::nullopt;
    if (is_message && m.contains(kBytes)) {
      const std::optional<std::string> hex = string_in(m, kBytes);
      content = hex ? bytes_of(*hex) : std::nullopt;
    }
    if (!role || !content)
      throw FileError("{}: its messages are damaged. Fix: write it again with --save-state", file.string());
    messages.push_back({*role, *content});
  }
  return messages;
}

}  // namespace

std::string_view name(End end) {
  constexpr std::string_view kNames[] = {"turn", "max_new_tokens", "context", "interrupted", "stop"};
  return kNames[static_cast<std::size_t>(end)];
}

Conversation::Conversation(const weights::ModelSource& source, precision::Policy policy, Settings settings,
                           const runtime::Device& device)
    : source_(source),
      policy_(policy),
      device_(device),
      settings_(std::move(settings)),
      format_(source, settings_.template_name),
      context_(source.config.max_position_embeddings),
      sequence_(source, std::move(policy), device) {
  rollout::check(settings_.sampling);
  tokenizer::StopText checked(settings_.stop);
  if (settings_.max_new_tokens < 1)
    throw ConfigError("--max-new-tokens {}: must be at least 1", settings_.max_new_tokens);
  reset();
}

void Conversation::reset() {
  messages_.clear();
  if (!settings_.system.empty()) messages_.push_back({"system", settings_.system});
}

void Conversation::set_system(const std::string& text) {
  settings_.system = text;
  const bool present = !messages_.empty() && messages_.front().role == "system";
  if (present) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), {"system", text});
}

const rollout::StatesOrigin& Conversation::origin() {
  if (!origin_) origin_ = rollout::origin_of(source_, policy_, device_);
  return *origin_;
}

void Conversation::check_place(const std::filesystem::path& file) const {
  rollout::check_states_place(file, std::nullopt, rollout::states_inputs(source_));
}

bool Conversation::save_states(const std::filesystem::path& file) {
  const std::optional<rollout::SequenceStates> states = sequence_.states();
  if (!states) return false;
  rollout::write_states(file, *states, origin(), {{kMessages, text_of(messages_)}});
  return true;
}

void Conversation::load_states(const std::filesystem::path& file) {
  const rollout::StatesFile read = rollout::read_states(file);
  rollout::check_model(read, origin(), source_.config.vocab_size);
  const auto text = read.notes.find(kMessages);
  if (text == read.notes.end()) {
    throw FileError(
        "{}: has no messages; generate wrote it. Fix: generate --state {}, or write one with chat "
        "--save-state",
        file.string(), file.string());
  }
  std::vector<Message> messages = messages_of(text->second, file);
  sequence_.restore(read.states);
  messages_ = std::move(messages);
}

std::string Conversation::prompt_of(const std::string& text) const {
  std::vector<Message> messages = messages_;
  messages.push_back({"user", text});
  return format_.prompt_of(messages);
}

Answer Conversation::ask(std::string text, const std::function<void(std::string_view)>& on_text,
                         std::stop_token stop) {
  messages_.push_back({"user", std::move(text)});
  try {
    Answer made = answer(on_text, std::move(stop));
    messages_.push_back({"assistant", made.text});
    return made;
  } catch (...) {
    messages_.pop_back();
    throw;
  }
}

Answer Conversation::answer(const std::function<void(std::string_view)>& on_text, std::stop_token stop) {
  const std::vector<std::int32_t> prompt = format_.ids_of(messages_);
  rollout::GenerateOptions options;
  options.max_new_tokens = settings_.max_new_tokens;
  if (context_ > 0) {
    const std::int64_t room = context_ - std::ssize(prompt);
    if (room < 1) {
      throw ConfigError(
          "the conversation has {} tokens, and the model's context only {} "
          "(max_position_embeddings of config.json). Fix: begin again with /reset",
          prompt.size(), context_);
    }
    options.max_new_tokens = std::min(options.max_new_tokens, room);
  }
  options.stop = format_.ends();
  options.sampling = settings_.sampling;
  options.interrupt = stop;
  Answer made;
  const std::vector<std::string> ends_of_turns = format_.format().turn_ends();
  std::vector<std::string> all_stops = settings_.stop;
  all_stops.insert(all_stops.end(), ends_of_turns.begin(), ends_of_turns.end());
  tokenizer::GrowingText text(format_.tokenizer(), std::move(all_stops), tokenizer::SpecialTokens::left_out);
  const auto add = [&](const std::string& part) {
    made.text += part;
    if (on_text && !part.empty()) on_text(part);
  };
  options.on_token = [&](std::size_t, std::int32_t id, double) {
    if (!std::ranges::binary_search(options.stop, id)) add(text.push(id));
    return !text.stopped();
  };
  rollout::Continuation continued = sequence_.extend(prompt, options);
  add(text.finish());
  rollout::Generation& g = continued.generation;
  const bool ended = !g.ids.empty() && std::ranges::binary_search(options.stop, g.ids.back());
  const bool ends_turn = std::ranges::find(ends_of_turns, text.found()) != ends_of_turns.end();
  made.end = ends_turn                                           ? End::turn
             : text.stopped()                                    ? End::stop
             : ended                                             ? End::turn
             : !g.ended                                          ? End::interrupted
             : options.max_new_tokens < settings_.max_new_tokens ? End::context
                                                                 : End::max_new_tokens;
  made.ids = std::move(g.ids);
  made.log_probs = std::move(g.log_probs);
  made.prompt_tokens = std::ssize(prompt);
  made.kept_tokens = continued.kept;
  made.seconds = g.seconds;
  return made;
}

}  // namespace mantissa::dialog
