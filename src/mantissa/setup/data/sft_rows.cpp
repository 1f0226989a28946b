#include "mantissa/setup/data/sft_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error.h"
#include "mantissa/setup/data/encoded_row.h"
#include "mantissa/setup/data/generated.h"
#include "mantissa/setup/data/on_all_processors.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/rows/dataset.h"
#include "mantissa/text/rows/known_ids.h"
#include "mantissa/text/rows/readers.h"
#include "mantissa/text/rows/sources.h"

namespace mantissa::data {
namespace {

/// Returns a generated row; safe to call from several threads.
PlacedConversation generated_conversation(const text::GeneratedRows& rows, std::int64_t number) {
  std::string where = rows.where(number);
  text::ConversationRow row =
      text::read_conversation(nlohmann::ordered_json::parse(rows.json(number)), where);
  return {std::move(row), std::move(where)};
}

/// Encodes conversations on all processors, and appends those that are used.
void append_encoded(SftEncoder& encoder, const std::vector<PlacedConversation>& some,
                    std::vector<text::Row>& rows) {
  std::vector<text::Row> encoded(some.size());
  on_all_processors(some.size(),
                    [&](std::size_t i) { encoded[i] = encoder.encode(some[i].row, some[i].where); });
  for (std::size_t i = 0; i < some.size(); ++i) {
    if (auto row = encoder.add(some[i].row, std::move(encoded[i]), some[i].where))
      rows.push_back(std::move(*row));
  }
}

bool trains_special(const text::Row& row, const tokenizer::Tokenizer& tokenizer) {
  for (std::size_t t = 0; t < row.ids.size(); ++t) {
    const bool trained = row.labels.empty() || row.labels[t] != text::kIgnoredLabel;
    if (trained && tokenizer.special(row.ids[t])) return true;
  }
  return false;
}

std::string percent_of(std::int64_t part, std::int64_t all) {
  return fmt::format("{:.1f} %", all == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(all));
}

}  // namespace

SftRules sft_rules(const config::DataSection& section) {
  return {section.sequence_length, parse_train_on(section.train_on), section.truncate, section.masked_rows,
          section.empty_answers};
}

std::string left_out_text(const RuleCounts& c, const SftRules& rules, const char* masked) {
  std::vector<std::string> unused;
  const auto not_used = [&](std::int64_t count, const char* why) {
    if (count > 0) unused.push_back(fmt::format("{} {}", count, why));
  };
  not_used(c.masked, masked);
  not_used(c.empty, "with an empty answer");
  not_used(c.skipped, "too long");
  std::string text;
  if (!unused.empty()) text += fmt::format("; not used: {}", fmt::join(unused, ", "));
  if (c.truncated > 0) {
    text += fmt::format("; {} truncated on the {} by {}, {} in an answer",
                        counted(c.truncated, "row", "is", "are"), rules.truncate, counted(c.dropped, "token"),
                        c.cut);
  }
  return text;
}

void refuse_long_rows(const RuleCounts& c, const SftRules& rules, const std::string& which,
                      std::int64_t length) {
  const auto set = [](const std::string& value) { return std::vector<std::string>{"--set", value}; };
  throw ConfigError(fmt::format("{} than data.sequence_length = {}; the longest has {} ids ({})", which,
                                rules.sequence_length, c.longest, c.longest_at),
                    {{set(fmt::format("data.sequence_length={}", length)), "more memory"},
                     {set("data.truncate=left"), "the ends of long rows are kept"},
                     {set("data.truncate=right"), "the beginnings of long rows are kept"},
                     {set("data.truncate=skip"), "long rows are not used"}});
}

std::string describe(const SftCounts& c, const SftRules& rules, const std::string& name) {
  std::string text = fmt::format("{}: {}, {} used", name, counted(c.rows, "row"), c.used);
  if (c.used > 0) {
    const std::int64_t inputs = c.ids - c.used;  // nothing is predicted after the last token of a row
    text += fmt::format(" with {}, {} of them masked; the longest row has {}", counted(c.ids, "token"),
                        percent_of(inputs - c.trained, inputs), c.longest);
  }
  return text + left_out_text(c, rules, "without a token to train");
}

SftEncoder::SftEncoder(const SftRules& rules, const ChatFormat* format, const tokenizer::Tokenizer& tokenizer,
                       std::int64_t vocabulary)
    : rules_(rules), format_(format), tokenizer_(tokenizer), vocabulary_(vocabulary) {}

bool SftEncoder::has_empty_answer(const text::ConversationRow& row) const {
  if (row.tokens) return false;
  if (format_ == nullptr) return row.texts && is_blank(row.texts->second);
  return has_empty_message(row.messages, 0, rules_.train_on);
}

text::Row SftEncoder::encode(const text::ConversationRow& row, const std::string& where) const {
  text::Row out;
  if (row.tokens) {
    out = *row.tokens;
  } else if (format_ == nullptr) {
    out = plain_row(row, tokenizer_, vocabulary_, rules_.train_on, where);
  } else {
    require_messages(row, where);
    out = labelled(answer_ids(*format_, tokenizer_, row.messages, row.tools, rules_.train_on, where));
  }
  if (row.tokens && out.ids.size() >= 2)
    text::check_row(out, static_cast<std::int64_t>(out.ids.size()), vocabulary_, where);
  text::check_known_ids(out.ids, tokenizer_, vocabulary_, where);
  return out;
}

void SftEncoder::truncate(text::Row& row) {
  const std::size_t before = row.ids.size();
  const std::int64_t trained = trained_of(row);
  truncate_row(row, static_cast<std::size_t>(rules_.sequence_length) + 1, rules_.truncate);
  if (trained_of(row) == 0) return;
  ++counts_.truncated;
  counts_.cut += trained_of(row) < trained ? 1 : 0;
  counts_.dropped += static_cast<std::int64_t>(before - row.ids.size());
}

std::optional<text::Row> SftEncoder::add(const text::ConversationRow& row, text::Row encoded,
                                         const std::string& where) {
  ++counts_.rows;
  if (rules_.empty_answers != "train" && has_empty_answer(row)) {
    if (rules_.empty_answers == "refuse")
      throw FileError(fmt::format("{}: the answer is empty, and data.empty_answers = \"refuse\"", where));
    ++counts_.empty;
    return std::nullopt;
  }
  const auto length = static_cast<std::int64_t>(encoded.ids.size());
  const bool trains = encoded.ids.size() >= 2 && trained_of(encoded) > 0;
  if (trains && length > counts_.longest) {
    counts_.longest = length;
    counts_.longest_at = where;
  }
  if (trains && length > rules_.sequence_length + 1) {
    ++counts_.too_long;
    if (rules_.truncate == "refuse") return std::nullopt;
    if (rules_.truncate == "skip") {
      ++counts_.skipped;
      return std::nullopt;
    }
    truncate(encoded);
  }
  if (!trains || trained_of(encoded) == 0) {
    if (rules_.masked_rows == "refuse") {
      throw FileError(fmt::format("{}: no token of the row is trained{}, and data.masked_rows = \"refuse\"",
                                  where, trains ? " after it is truncated" : ""));
    }
    ++counts_.masked;
    return std::nullopt;
  }
  ++counts_.used;
  counts_.ids += static_cast<std::int64_t>(encoded.ids.size());
  counts_.trained += trained_of(encoded);
  counts_.ended += trains_special(encoded, tokenizer_) ? 1 : 0;
  return encoded;
}

void SftEncoder::check() const {
  if (rules_.truncate != "refuse" || counts_.too_long == 0) return;
  refuse_long_rows(
      counts_, rules_,
      fmt::format("{} of {} longer", counts_.too_long, counted(counts_.rows, "row", "is", "are")),
      counts_.longest - 1);
}

void for_each_conversation(const std::vector<std::string>& files,
                           const std::function<bool(PlacedConversation)>& take,
                           const text::FileFormat& format) {
  for_each_row(
      files,
      [&](const nlohmann::ordered_json& row, std::string where) {
        text::ConversationRow conversation = text::read_conversation(row, where);
        return take({std::move(conversation), std::move(where)});
      },
      format);
}

std::vector<text::Row> encode_all(SftEncoder& encoder, const std::vector<std::string>& source,
                                  const text::GeneratedRows& generated, const text::FileFormat& format) {
  constexpr std::size_t kTogether = 1024;
  std::vector<text::Row> rows;
  std::vector<PlacedConversation> waiting;
  const auto flush = [&] {
    append_encoded(encoder, waiting, rows);
    waiting.clear();
  };
  if (is_generated(source)) {
    const auto count = static_cast<std::size_t>(generated.count);
    for (std::size_t begin = 0; begin < count; begin += kTogether) {
      waiting.resize(std::min(kTogether, count - begin));
      on_all_processors(waiting.size(), [&](std::size_t i) {
        waiting[i] = generated_conversation(generated, static_cast<std::int64_t>(begin + i));
      });
      flush();
    }
  } else {
    for_each_conversation(
        source,
        [&](PlacedConversation row) {
          waiting.push_back(std::move(row));
          if (waiting.size() == kTogether) flush();
          return true;
        },
        format);
    flush();
  }
  encoder.check();
  return rows;
}

std::vector<text::Row> encode_all(SftEncoder& encoder, const std::vector<PlacedConversation>& rows) {
  std::vector<text::Row> encoded;
  append_encoded(encoder, rows, encoded);
  encoder.check();
  return encoded;
}

namespace {

/// True if the first row of the files has ids, which need no template.
bool begins_with_ids(const std::vector<std::string>& source, const text::FileFormat& format) {
  bool ids = false;
  if (is_generated(source)) return false;
  for_each_conversation(
      source,
      [&](const PlacedConversation& first) {
        ids = first.row.tokens.has_value();
        return false;
      },
      format);
  return ids;
}

}  // namespace

std::vector<text::Row> sft_rows(const config::RunConfig& config, const model::ModelConfig& model,
                                const std::vector<std::string>& source, std::vector<std::string>* notes,
                                SftCounts* counts, double held_out) {
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer = tokenizer_of(config, model);
  const text::FileFormat files = file_format(config.data);
  std::optional<ChatFormat> format;
  if (config.data.chat_template != "none" && !begins_with_ids(source, files))
    format.emplace(config, model, *tokenizer);
  text::GeneratedRows generated = training_rows(config);
  if (is_generated(source)) {
    // Enough for every step to have new ones, up to a limit. A pack may have several.
    constexpr double kMost = 65536, kShortest = 64;
    const double in_a_pack =
        config.data.packing ? std::ceil(static_cast<double>(config.data.sequence_length) / kShortest) : 1;
    const double needed = static_cast<double>(config.run.steps) *
                          static_cast<double>(config.batch.global_batch_size) * in_a_pack;
    generated.count = static_cast<std::int64_t>(
        std::min(kMost, needed / (1 - std::min(0.9, config.data.validation.share)) + 64));
  }
  const SftRules rules = sft_rules(config.data);
  SftEncoder encoder(rules, format ? &*format : nullptr, *tokenizer, model.vocab_size);
  std::vector<text::Row> rows = encode_all(encoder, source, generated, files);
  const std::string text = describe(encoder.counts(), rules, fmt::format("{}", fmt::join(source, ", ")));
  if (counts != nullptr) *counts = encoder.counts();
  const SftCounts& c = encoder.counts();
  if (c.rows == 0) {
    throw ConfigError(fmt::format(
        "{}: no rows. Fix: write one JSON object on each line, or an array of them, for example with \"messages\"",
        fmt::join(source, ", ")));
  }
  const bool too_few = text::held_out_rows(std::ssize(rows), held_out) >= std::ssize(rows);
  if (rows.empty() || (too_few && c.masked + c.empty > 0)) {
    const char* needs = rows.empty() ? "" : "; training with held-out rows needs at least 2";
    std::vector<Cure> cures;
    if (rules.truncate == "right" && encoder.counts().too_long > 0)
      cures.push_back({{"--set", "data.truncate=left"}, "the ends of long rows are kept"});
    throw NoLabels(fmt::format("{}{}. Fix: the rows need answers, or labels other than {}", text, needs,
                               text::kIgnoredLabel),
                   std::move(cures));
  }
  if (notes == nullptr) return rows;
  notes->push_back(text);
  if (format && c.ended == 0 && tokenizer->name() != "byte") {
    notes->push_back(fmt::format(
        "no trained token is a special token of the tokenizer, so the model does not learn where an answer "
        "ends: the end of a turn in the template {} may be ordinary text to this tokenizer. Fix: "
        "data.template = \"auto\", or the template for which the tokenizer was made",
        format->name()));
  }
  return rows;
}

}  // namespace mantissa::data
