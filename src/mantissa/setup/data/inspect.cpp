#include "mantissa/setup/data/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/config/stages.h"
#include "mantissa/setup/data/generated.h"
#include "mantissa/setup/data/rows.h"
#include "mantissa/setup/data/shard_tokenizer.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/rows/sources.h"

namespace mantissa::data {
namespace {

constexpr std::ptrdiff_t kShownTokens = 48;  // of a sample

Lengths lengths_of(std::vector<std::int64_t> lengths) {
  if (lengths.empty()) return {};
  std::ranges::sort(lengths);
  const auto quantile = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(lengths.size()));
    return lengths[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
  };
  const double sum = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  return {lengths.front(), quantile(0.5), quantile(0.9), lengths.back(),
          sum / static_cast<double>(lengths.size())};
}

/// Returns for each id of the rows whether it is not predicted. Nothing predicts the first id of a row, so it
/// counts as the one after it.
std::vector<bool> masked_ids(const text::StepData& rows) {
  std::vector<bool> masked(rows.ids.size());
  if (!rows.weighted()) return masked;
  std::size_t id = 0;
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    const RowTokens row = rows.row(r);
    for (std::size_t t = 0; t <= row.targets.size(); ++t, ++id) {
      const std::size_t target = std::max<std::size_t>(t, 1) - 1;
      masked[id] = row.targets.empty() || row.targets[target] < 0 || row.weights[target] == 0;
    }
  }
  return masked;
}

/// Returns the beginning of a row, or of the rows of a pack, as text, or as ids. Parts that are not predicted
/// are in brackets if the rest of the row is.
std::string beginning(const text::StepData& row, const tokenizer::Tokenizer* tokenizer) {
  // Of a conversation the beginnings of all parts, so that an answer is shown after a long prompt.
  constexpr std::size_t kOfPart = 24;
  const std::size_t count =
      row.weighted() ? row.ids.size() : std::min<std::size_t>(kShownTokens, row.ids.size());
  const std::vector<bool> masked = masked_ids(row);
  const bool marks = row.predicted() + row.rows < static_cast<std::int64_t>(row.ids.size());
  std::string text;
  for (std::size_t begin = 0; begin < count;) {
    std::size_t end = begin + 1;
    while (end < count && masked[end] == masked[begin]) ++end;
    const bool cut = marks && end - begin > kOfPart;
    std::vector<std::int32_t> ids(row.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                  row.ids.begin() + static_cast<std::ptrdiff_t>(cut ? begin + kOfPart : end));
    std::string part;
    if (tokenizer == nullptr) {
      for (const std::int32_t id : ids) part += fmt::format("{}{}", part.empty() ? "" : " ", id);
    } else {
      std::erase_if(ids, [&](std::int32_t id) { return !tokenizer->known(id); });
      part = tokenizer->decode(ids);
    }
    if (cut) part += "…";
    text += marks && masked[begin] ? "[[" + part + "]]" : part;
    begin = end;
  }
  return text;
}

/// Counts over all rows.
class Counts {
 public:
  explicit Counts(std::int64_t vocabulary) : occurs_(static_cast<std::size_t>(vocabulary)) {}

  void add(const text::StepData& rows) {
    predicted_ += rows.predicted();
    inputs_ += rows.tokens() + rows.rows - rows.items();
    for (std::int64_t r = 0; r < rows.rows; ++r) {
      const RowTokens row = rows.row(r);
      for (const std::int32_t id : row.ids) occurs_[static_cast<std::size_t>(id)] = true;
      for (const std::int32_t id : row.targets) {
        if (id >= 0) occurs_[static_cast<std::size_t>(id)] = true;
      }
    }
  }
  std::int64_t predicted() const { return predicted_; }
  /// All ids but the last one of each row or pack, which only the input before it predicts.
  std::int64_t inputs() const { return inputs_; }
  std::int64_t entries() const { return std::ranges::count(occurs_, true); }

 private:
  std::vector<bool> occurs_;
  std::int64_t predicted_ = 0, inputs_ = 0;
};

}  // namespace

DataDescription describe(const text::Dataset& set, std::int64_t sequence_length, std::int64_t vocabulary,
                         const tokenizer::Tokenizer* tokenizer, std::int64_t samples, std::int64_t used) {
  constexpr std::int64_t kBatch = 256;
  DataDescription d;
  const std::vector<std::int64_t> lengths = set.document_lengths();
  d.documents = std::ssize(lengths);
  d.tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  d.lengths = lengths_of(lengths);
  d.sequence_length = sequence_length;
  d.rows = set.training_rows();
  d.held_out_rows = set.validation_rows();
  d.vocabulary = vocabulary;
  Counts counts(vocabulary);
  for (std::int64_t first = 0; first < d.rows; first += kBatch)
    counts.add(set.training(first, std::min(kBatch, d.rows - first)));
  for (std::int64_t first = 0; first < d.held_out_rows; first += kBatch)
    counts.add(set.validation(first, std::min(kBatch, d.held_out_rows - first)));
  d.entries = counts.entries();
  const auto rows = static_cast<double>(d.rows + d.held_out_rows);
  const double places = rows * static_cast<double>(sequence_length + 1),
               inputs = static_cast<double>(counts.inputs());
  d.padding = places > 0 ? 1 - (inputs + rows) / places : 0;
  d.masked = inputs > 0 ? 1 - static_cast<double>(counts.predicted()) / inputs : 0;
  for (std::int64_t s = 0; s < std::min(samples, d.rows); ++s) {
    const text::StepData row = set.training(s * d.rows / std::min(samples, d.rows), 1);
    d.samples.push_back(beginning(row, tokenizer));
    d.sample_ids.emplace_back(row.ids.begin(),
                              row.ids.begin() + std::min<std::ptrdiff_t>(kShownTokens, std::ssize(row.ids)));
  }
  for (text::Dataset::SourceCounts& counts : set.source_counts()) {
    const double rows_of_source = static_cast<double>(std::max<std::int64_t>(counts.rows, 1));
    const double repeats = counts.share * static_cast<double>(used) / rows_of_source;
    d.sources.push_back({std::move(counts), repeats});
  }
  return d;
}

namespace {

/// Returns the tokenizer of the config's ids, or null if it is unknown or cannot be read.
std::unique_ptr<tokenizer::Tokenizer> tokenizer_of_ids(const config::RunConfig& config,
                                                       const model::ModelConfig& model) {
  const bool guess = config.data.tokenizer == "byte" && model.vocab_size != kByteEntries;
  if (guess && !shards_state_tokenizer(config.data.source, config.data.format)) return nullptr;
  try {
    return tokenizer_of(config, model);
  } catch (const Error&) {
    return nullptr;  // ids need none
  }
}

/// Returns true if any of the files is one of a pair of Megatron.
bool holds_binidx(const std::vector<std::string>& files, const std::string& format) {
  return std::ranges::any_of(text::expand_files(files), [&](const std::string& path) {
    return text::format_of(path, format) == "binidx";
  });
}

}  // namespace

DataDescription describe_run(const config::RunConfig& config, const model::ModelConfig& model,
                             std::int64_t samples) {
  const text::Dataset set = load_dataset(config, model, {}, nullptr, true);
  const bool text = holds_text(config.data.source, config.data.format);
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer =
      text ? tokenizer_of(config, model) : tokenizer_of_ids(config, model);
  const config::RunConfig first = config.run.stages.empty() ? config : config::stage_config(config, 0);
  const std::int64_t used = set.rows_of_steps(first.run.steps, first.batch.global_batch_size);
  DataDescription d =
      describe(set, first.data.sequence_length, model.vocab_size, tokenizer.get(), samples, used);
  if (std::string note = order_note(first.data, set); !note.empty()) d.notes.push_back(std::move(note));
  for (std::size_t s = 0; s < config.run.stages.size(); ++s) {
    const config::Stage& stage = config.run.stages[s];
    const text::Dataset& rows = set.at_step(config::first_step(config, s) + 1);
    d.stages.push_back({stage.steps, stage.sequence_length, stage.global_batch_size, rows.training_rows(),
                        static_cast<double>(rows.rows_of_steps(stage.steps, stage.global_batch_size)) /
                            static_cast<double>(std::max<std::int64_t>(rows.training_rows(), 1))});
  }
  return d;
}

DataDescription describe_files(const InspectFiles& o) {
  constexpr std::int64_t kNarrow = 65535, kOfUint16 = 65536;
  const text::FileFormat format(o.format, text::id_type_named(o.id_type, "--id-type"),
                                text::read_field_map("--fields", o.fields, "pretrain"));
  check_has_fields(o.files, format, "--fields");
  const bool text = text::holds_text(o.files, o.format), named = !o.tokenizer.empty();
  const auto own = [&] { return make_tokenizer(o.tokenizer); };
  if (named) check_shards(o.files, format, own, "--tokenizer");
  const StatedTokenizer stated = text || named ? StatedTokenizer() : tokenizer_of_shards(o.files, o.format);
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer = make_tokenizer(named ? o.tokenizer : "byte");
  const tokenizer::Tokenizer* shown = stated.tokenizer != nullptr ? stated.tokenizer.get()
                                      : text || named             ? tokenizer.get()
                                                                  : nullptr;
  const std::int64_t vocabulary = o.vocabulary > 0                  ? o.vocabulary
                                  : shown != nullptr                ? shown->vocabulary()
                                  : stated.vocabulary > 0           ? stated.vocabulary
                                  : holds_binidx(o.files, o.format) ? kOfUint16  // the index states the width
                                                                    : kNarrow;
  text::Corpus corpus = text::read_corpus(o.files, format, *tokenizer, vocabulary);
  text::Dataset::Options options;
  options.sequence_length = o.packing ? o.sequence_length : std::min(o.sequence_length, corpus.tokens() - 1);
  options.shuffle = false;
  if (options.sequence_length < 1) {
    throw ConfigError(fmt::format("{}: fewer than two tokens, so nothing can be predicted", o.files.front()));
  }
  corpus.split_token_files(named ? std::optional(tokenizer->separator()) : std::nullopt);
  const auto rows = o.packing ? text::packed(std::move(corpus), options.sequence_length)
                              : text::sequences(std::move(corpus), options.sequence_length);
  const text::Dataset set(std::vector<text::Dataset::WeightedRows>{{rows}}, options, o.files.front());
  DataDescription d = describe(set, options.sequence_length, vocabulary, shown, o.samples);
  if (!stated.note.empty()) d.notes.push_back(stated.note);
  return d;
}

}  // namespace mantissa::data
