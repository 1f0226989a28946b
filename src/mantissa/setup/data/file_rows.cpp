#include "mantissa/setup/data/file_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/data/generated.h"
#include "mantissa/setup/data/shard_tokenizer.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/rows/known_ids.h"
#include "mantissa/text/rows/row_reader.h"
#include "mantissa/text/rows/sources.h"
#include "mantissa/text/tokenizer/characters.h"
#include "mantissa/text/tokenizer/kinds.h"

namespace mantissa::data {
namespace {

/// Returns the tokenizer of files, or of a generator, for a model without a config.
std::unique_ptr<tokenizer::Tokenizer> tokenizer_for(const weights::ModelSource& source,
                                                    const std::vector<std::string>& files,
                                                    const text::FileFormat& format) {
  const bool text = is_generated(files) || text::holds_text(files, format.name);
  // Ids need no tokenizer, so a file that cannot be read does not matter.
  std::unique_ptr<tokenizer::Tokenizer> tokenizer =
      text ? tokenizer_of(source) : tokenizer::make_tokenizer("byte");
  if (tokenizer == nullptr) {
    throw ConfigError(
        fmt::format("--data {}: {}. Encode the text with the model's tokenizer, and give files of ids with "
                    "the format tokens",
                    files.front(), why_no_tokenizer(source)));
  }
  return tokenizer;
}

/// Returns the stream of files, or of a generator, for a model without a config.
std::vector<std::int32_t> file_tokens(const weights::ModelSource& source,
                                      const std::vector<std::string>& files, const text::FileFormat& format) {
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer = tokenizer_for(source, files, format);
  const std::int64_t vocabulary = source.config.vocab_size;
  if (!is_generated(files)) {
    check_shards(
        files, format, [&] { return tokenizer_of(source); }, "the model's tokenizer");
    return text::read_tokens(files, format, *tokenizer, vocabulary);
  }
  std::vector<std::int32_t> ids = generated_tokens(held_out_rows(), *tokenizer);
  text::check_known_ids(ids, *tokenizer, vocabulary, held_out_rows().name());
  return ids;
}

/// Appends the parts of a document of data::document_rows().
void add_parts(std::span<const std::int32_t> ids, std::int64_t window, std::vector<text::Row>& rows) {
  const std::int64_t size = std::ssize(ids);
  for (std::int64_t predicted = 1; predicted < size;) {
    const std::int64_t end = std::min(predicted + window, size),
                       begin = std::max<std::int64_t>(0, end - window - 1);
    text::Row& row = rows.emplace_back();
    row.ids.assign(ids.begin() + begin, ids.begin() + end);
    row.labels = row.ids;
    std::fill_n(row.labels.begin(), predicted - begin, text::kIgnoredLabel);
    predicted = end;
  }
}

/// Returns the number of parts between white space, at least 1.
std::int64_t count_words(std::string_view text) {
  std::int64_t words = 1;
  bool in_space = false;
  for (std::size_t at = 0; at < text.size();) {
    const bool space = text::is_space(text::decode_utf8(text, at));
    if (space && !in_space) ++words;
    in_space = space;
  }
  return words;
}

}  // namespace

text::StepData file_rows(const weights::ModelSource& source, const std::vector<std::string>& files,
                         const text::FileFormat& format, std::int64_t sequence_length) {
  return stream_rows(file_tokens(source, files, format), sequence_length, files.front());
}

text::StepData file_windows(const weights::ModelSource& source, const std::vector<std::string>& files,
                            const text::FileFormat& format, std::int64_t window, std::int64_t stride) {
  return windows_of(file_tokens(source, files, format), window, stride, files.front());
}

text::StepData windows_of(std::span<const std::int32_t> ids, std::int64_t window, std::int64_t stride,
                          const std::string& name) {
  if (window < 2 || stride < 1 || stride > window) {
    throw ConfigError(
        fmt::format("--window {} --stride {}: the window has at least 2 tokens, and the stride is "
                    "between 1 and the window",
                    window, stride));
  }
  const std::int64_t size = std::ssize(ids);
  if (size < 2)
    throw ConfigError(fmt::format("{}: fewer than two tokens, so nothing can be predicted", name));
  const std::int64_t length = std::min(window, size);
  const std::int64_t count = 1 + (size - length + stride - 1) / stride;
  text::StepData data = text::empty_step(count, length - 1);
  std::int64_t predicted = 1;  // ids before this one are predicted already
  for (std::int64_t w = 0; w < count; ++w) {
    const std::int64_t begin = w * stride, end = std::min(begin + length, size);
    text::Row row;
    row.ids.assign(ids.begin() + begin, ids.begin() + end);
    row.labels = row.ids;
    const std::int64_t known = std::clamp<std::int64_t>(predicted - begin, 0, end - begin);
    std::fill_n(row.labels.begin(), known, text::kIgnoredLabel);
    predicted = end;
    text::append_row(row, w, data);
  }
  return data;
}

text::StepData document_rows(const weights::ModelSource& source, const std::vector<std::string>& files,
                             const text::FileFormat& format, std::int64_t window, std::int64_t& words) {
  if (is_generated(files) || !text::holds_text(files, format.name))
    throw ConfigError(fmt::format("--documents: {} holds no text", files.front()));
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer = tokenizer_for(source, files, format);
  const text::Corpus corpus = text::read_corpus(files, format, *tokenizer, source.config.vocab_size);
  const std::int32_t separator = tokenizer->separator();
  std::vector<text::Row> rows;
  std::int64_t begin = 0, longest = 0;
  for (const std::int64_t length : corpus.document_lengths()) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(length) + 1, tokenizer->bos().value_or(separator));
    corpus.read(begin, std::span(ids).subspan(1));
    begin += length;
    if (ids.back() == separator) ids.pop_back();
    if (ids.size() < 2) continue;  // an empty document
    words += count_words(tokenizer->decode(std::span(ids).subspan(1)));
    add_parts(ids, window, rows);
  }
  if (rows.empty()) throw ConfigError(fmt::format("{}: all documents are empty", files.front()));
  for (const text::Row& row : rows) longest = std::max(longest, std::ssize(row.ids) - 1);
  text::StepData data = text::empty_step(std::ssize(rows), longest);
  for (std::size_t r = 0; r < rows.size(); ++r) text::append_row(rows[r], static_cast<std::int64_t>(r), data);
  return data;
}

bool holds_conversations(const std::vector<std::string>& files, const text::FileFormat& format) {
  if (is_generated(files)) return false;
  const std::string first = text::expand_files(files).front();
  if (!text::holds_rows(first, format.name)) return false;
  bool found = false;
  text::read_rows(
      first,
      [&](const nlohmann::ordered_json& row, const text::FilePlace&) {
        found = text::is_conversation(row);
        return false;
      },
      format);
  return found;
}

namespace {

/// Returns as answer_rows() the rows that `encode` makes.
text::StepData encoded_answers(const weights::ModelSource& source, const std::string& name,
                               const std::string& template_name, std::int64_t sequence_length,
                               std::vector<std::string>& notes,
                               const std::function<std::vector<text::Row>(SftEncoder&)>& encode) {
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer = tokenizer_of(source);
  if (tokenizer == nullptr) throw ConfigError(fmt::format("--data {}: {}", name, why_no_tokenizer(source)));
  std::optional<ChatFormat> format;
  if (template_name != "none") {
    format.emplace(source, template_name, "--template", *tokenizer);
    format->fix_date();
  }
  constexpr std::int64_t kUnlimited = std::int64_t{1} << 24;
  const std::int64_t positions = source.config.max_position_embeddings;
  SftRules rules;
  rules.truncate = "left";
  rules.sequence_length = sequence_length > 0 ? sequence_length : positions > 0 ? positions : kUnlimited;
  SftEncoder encoder(rules, format ? &*format : nullptr, *tokenizer, source.config.vocab_size);
  const std::vector<text::Row> rows = encode(encoder);
  notes.push_back(describe(encoder.counts(), rules, name));
  if (rows.empty()) throw ConfigError(fmt::format("--data {}: no row has an answer to predict", name));
  text::StepData data = text::empty_step(static_cast<std::int64_t>(rows.size()), encoder.counts().longest);
  for (std::size_t r = 0; r < rows.size(); ++r) text::append_row(rows[r], static_cast<std::int64_t>(r), data);
  data.sequence_length = data.longest();
  return data;
}

}  // namespace

text::StepData answer_rows(const weights::ModelSource& source, const std::vector<std::string>& files,
                           const text::FileFormat& format, const std::string& template_name,
                           std::int64_t sequence_length, std::vector<std::string>& notes) {
  return encoded_answers(source, files.front(), template_name, sequence_length, notes,
                         [&](SftEncoder& e) { return encode_all(e, files, held_out_rows(), format); });
}

text::StepData answer_rows(const weights::ModelSource& source, const std::vector<PlacedConversation>& rows,
                           const std::string& name, const std::string& template_name,
                           std::int64_t sequence_length, std::vector<std::string>& notes) {
  return encoded_answers(source, name, template_name, sequence_length, notes,
                         [&](SftEncoder& e) { return encode_all(e, rows); });
}

}  // namespace mantissa::data
