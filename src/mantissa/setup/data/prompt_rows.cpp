#include "mantissa/setup/data/prompt_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error.h"
#include "mantissa/setup/config/post_training.h"
#include "mantissa/setup/data/generated.h"
#include "mantissa/setup/data/on_all_processors.h"
#include "mantissa/setup/data/rows.h"
#include "mantissa/setup/data/stored_rows.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/rows/conversation_row.h"
#include "mantissa/text/rows/dataset.h"
#include "mantissa/text/rows/row_order.h"

namespace mantissa::data {
namespace {

/// The lengths of prompts, and which of them are used.
struct Measured {
  std::vector<std::int64_t> used = {};  // row numbers
  std::int64_t too_long = 0;
  std::int64_t longest = 0, longest_used = 0;  // ids
  std::string longest_at = {};

  void add(std::int64_t row, std::int64_t ids, std::int64_t room, const std::string& where) {
    if (ids > longest) {
      longest = ids;
      longest_at = where;
    }
    if (ids > room) {
      ++too_long;
      return;
    }
    used.push_back(row);
    longest_used = std::max(longest_used, ids);
  }
};

[[noreturn]] void refuse_long(const Measured& m, std::int64_t rows, const config::RunConfig& config) {
  const std::int64_t length = config.data.sequence_length, answer = config.rl.max_new_tokens;
  const auto set = [](const std::string& value) { return std::vector<std::string>{"--set", value}; };
  std::vector<Cure> cures = {
      {set(fmt::format("data.sequence_length={}", m.longest + answer)), "more memory"}};
  if (m.longest < length)
    cures.push_back({set(fmt::format("rl.max_new_tokens={}", length - m.longest)), "shorter answers"});
  if (m.too_long < rows) cures.push_back({set("data.truncate=skip"), "long prompts are not used"});
  throw ConfigError(
      fmt::format("{} of {} longer than data.sequence_length − rl.max_new_tokens = {} − {} = {}; "
                  "the longest has {} ids ({})",
                  m.too_long, counted(rows, "prompt", "is", "are"), length, answer, length - answer,
                  m.longest, m.longest_at),
      std::move(cures));
}

}  // namespace

struct PromptSet::State {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::optional<ChatFormat> format;
  std::int64_t vocabulary = 0;
  std::vector<StoredRows> training, held_out;  // of each source
  text::RowOrder order;                        // of `training`
  std::int64_t prompts_per_step = 1;
  std::int64_t longest = 0;

  const ChatFormat* chat_format() const { return format ? &*format : nullptr; }

  Prompt prompt(StoredRow stored) const {
    const text::ConversationRow row = text::read_prompt(stored.row, stored.where);
    Prompt out{prompt_text(*tokenizer, chat_format(), row, vocabulary, stored.where), std::move(stored.row),
               std::move(stored.where)};
    out.people = row.people;
    return out;
  }

  /// Returns row `i` of several stores.
  Prompt of(const std::vector<StoredRows>& stores, std::int64_t i) const {
    for (const StoredRows& store : stores) {
      if (i < store.size()) return prompt(store.at(i));
      i -= store.size();
    }
    throw InternalError("a prompt beyond those of the data");
  }

  static std::int64_t count(const std::vector<StoredRows>& stores) {
    std::int64_t rows = 0;
    for (const StoredRows& store : stores) rows += store.size();
    return rows;
  }

  /// Encodes every prompt of `rows`, and keeps those that are used. `name` is that of the data.
  void measure(StoredRows& rows, const config::RunConfig& config, const std::string& name,
               const CheckRow& check, std::vector<std::string>* notes) {
    constexpr std::int64_t kTogether = 1024;
    const std::int64_t room = config.data.sequence_length - config.rl.max_new_tokens;
    Measured m;
    for (std::int64_t first = 0; first < rows.size(); first += kTogether) {
      const auto count = static_cast<std::size_t>(std::min(kTogether, rows.size() - first));
      std::vector<Prompt> prompts(count);
      on_all_processors(
          count, [&](std::size_t i) { prompts[i] = prompt(rows.at(first + static_cast<std::int64_t>(i))); });
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t before = m.used.size();
        m.add(first + static_cast<std::int64_t>(i), std::ssize(prompts[i].ids), room, prompts[i].where);
        if (check && m.used.size() > before) check(prompts[i].row, prompts[i].where);
      }
    }
    if (m.too_long > 0 && (config.data.truncate == "refuse" || m.used.empty()))
      refuse_long(m, rows.size(), config);
    if (m.used.empty()) throw ConfigError(fmt::format("{}: no prompts", name));
    if (m.too_long > 0) rows.keep(m.used);
    longest = std::max(longest, m.longest_used);
    if (notes == nullptr) return;
    notes->push_back(fmt::format("{}: {}; the longest has {} tokens{}", name, counted(rows.size(), "prompt"),
                                 m.longest_used,
                                 m.too_long > 0 ? fmt::format("; not used: {} too long", m.too_long) : ""));
  }
};

PromptSet::PromptSet(const config::RunConfig& config, const model::ModelConfig& model, const CheckRow& check,
                     std::vector<std::string>* notes)
    : state_(std::make_unique<State>()) {
  const config::DataSection& data = config.data;
  check_bytes(config, model);
  State& s = *state_;
  s.tokenizer = tokenizer_of(config, model);
  s.vocabulary = model.vocab_size;
  s.prompts_per_step = config.rl.prompts_per_step;
  if (data.chat_template != "none") {
    s.format.emplace(config, model, *s.tokenizer);
  }
  const text::FileFormat format = file_format(data);
  const auto add = [&](const std::vector<std::string>& files) {
    const bool generated = is_generated(files);
    const std::string name = fmt::format("{}", fmt::join(files, ", "));
    const double share = data.validation.files.empty() ? data.validation.share : 0;
    text::GeneratedRows made = training_rows(config);
    made.count = config::generated_row_count(config);
    StoredRows rows = generated ? StoredRows::of(made) : StoredRows::of_files(files, format);
    s.measure(rows, config, name, check, notes);
    const std::int64_t held_out = text::held_out_rows(rows.size(), share);
    if (!generated && held_out >= rows.size()) {
      throw ConfigError(
          fmt::format("{}: {}, and data.validation holds out {}. Fix: more prompts, or data.validation = 0",
                      name, counted(rows.size(), "prompt"), held_out));
    }
    if (held_out > 0) {
      made.held_out = true;
      made.count = held_out;
      s.held_out.push_back(generated ? StoredRows::of(made) : rows.split_off(held_out));
      if (generated) s.measure(s.held_out.back(), config, made.name(), check, notes);
    }
    s.training.push_back(std::move(rows));
  };
  if (data.weights.empty()) add(data.source);
  for (std::size_t i = 0; i < data.weights.size(); ++i) add({data.source[i]});
  if (const std::vector<std::string>& files = data.validation.files; !files.empty()) {
    s.held_out.push_back(StoredRows::of_files(files, format));
    s.measure(s.held_out.back(), config, fmt::format("{}", fmt::join(files, ", ")), check, notes);
  }
  std::vector<std::int64_t> rows;
  for (const StoredRows& store : s.training) rows.push_back(store.size());
  s.order = text::RowOrder(std::move(rows), data.weights, data.shuffle, config.run.seed);
}

PromptSet::PromptSet(PromptSet&&) noexcept = default;
PromptSet::~PromptSet() = default;

Prompt PromptSet::at(std::int64_t rollout, std::int64_t i) const {
  const text::RowPlace place = state_->order.at(rollout, state_->prompts_per_step, i);
  return state_->prompt(state_->training[place.source].at(place.row));
}

std::int64_t PromptSet::training_count() const {
  return State::count(state_->training);
}

std::int64_t PromptSet::held_out_count() const {
  return State::count(state_->held_out);
}

Prompt PromptSet::training(std::int64_t i) const {
  return state_->of(state_->training, i);
}

Prompt PromptSet::held_out(std::int64_t i) const {
  return state_->of(state_->held_out, i);
}

std::int64_t PromptSet::longest() const {
  return state_->longest;
}

AnswerText PromptSet::answer(const Prompt& prompt, std::vector<std::int32_t> ids) const {
  return answer_text(tokenizer(), format(), prompt, std::move(ids));
}

const tokenizer::Tokenizer& PromptSet::tokenizer() const {
  return *state_->tokenizer;
}

const ChatFormat* PromptSet::format() const {
  return state_->chat_format();
}

std::size_t PromptSet::bytes() const {
  std::size_t bytes = 0;
  for (const auto* stores : {&state_->training, &state_->held_out}) {
    for (const StoredRows& store : *stores) bytes += store.bytes();
  }
  return bytes;
}

}  // namespace mantissa::data
