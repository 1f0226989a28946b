#include "mantissa/setup/data/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/config/stages.h"
#include "mantissa/setup/data/generated.h"
#include "mantissa/setup/data/shard_tokenizer.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/rows/known_ids.h"
#include "mantissa/text/rows/readers.h"
#include "mantissa/text/tokenizer/kinds.h"

namespace mantissa::data {
namespace {

/// A run that uses every row once reads no generated row twice. Beyond this many tokens they repeat.
constexpr std::int64_t kMostGeneratedTokens = std::int64_t{1} << 24;

/// Returns documents of the generator with more than `tokens` tokens.
std::vector<std::int32_t> enough_generated(const config::RunConfig& config,
                                           const tokenizer::Tokenizer& tokenizer, std::int64_t tokens) {
  text::GeneratedRows rows = training_rows(config);
  for (rows.count = 1024;; rows.count *= 2) {
    std::vector<std::int32_t> ids = generated_tokens(rows, tokenizer, tokens);
    if (static_cast<std::int64_t>(ids.size()) > tokens) return ids;
  }
}

/// The values that the stages of a run share: the tokens that they need together, whether the documents of
/// streams are found, and the ids of their sources.
struct Stages {
  std::int64_t needed = 0;
  bool documents = false;
  std::map<std::vector<std::string>, std::shared_ptr<const text::Corpus>> corpora = {};
};

/// Returns the tokens of all steps, at least two rows of the longest stage: one to train and one to hold out.
std::int64_t tokens_of_steps(const config::RunConfig& config) {
  std::int64_t tokens = 0, longest = 0;
  for (std::size_t s = 0; s < config::stage_count(config); ++s) {
    const config::RunConfig stage = config::stage_config(config, s);
    tokens += (stage.run.earlier_steps + stage.run.steps) * stage.batch.global_batch_size *
              stage.data.sequence_length;
    longest = std::max(longest, stage.data.sequence_length);
  }
  return std::max(tokens, 2 * longest);
}

/// Returns the ids of generated rows with their documents.
text::Corpus generated_corpus(const config::RunConfig& config, const model::ModelConfig& model,
                              const tokenizer::Tokenizer& tokenizer, const Stages& stages) {
  const double with_held_out =
      static_cast<double>(stages.needed) / (1.0 - std::min(0.9, config.data.validation.share)) + 4096;
  std::vector<std::int32_t> ids = enough_generated(
      config, tokenizer, std::min(kMostGeneratedTokens, static_cast<std::int64_t>(with_held_out)));
  text::check_known_ids(ids, tokenizer, model.vocab_size, training_rows(config).name());
  text::Corpus corpus(std::move(ids));
  if (config.data.packing || stages.documents) corpus.split(tokenizer.separator());
  return corpus;
}

/// Returns true if any data of the config are text.
bool reads_text(const config::RunConfig& config) {
  const std::vector<std::string>& held_out = config.data.validation.files;
  return holds_text(config.data.source, config.data.format) ||
         (!held_out.empty() && holds_text(held_out, config.data.format));
}

/// Returns the ids of the files, which are those of the config's tokenizer if their headers name one.
text::Corpus file_corpus(const config::RunConfig& config, const model::ModelConfig& model,
                         const tokenizer::Tokenizer& tokenizer, const std::vector<std::string>& files) {
  const text::FileFormat format = file_format(config.data);
  const auto own = [&]() -> std::unique_ptr<tokenizer::Tokenizer> {
    // The tokenizer of a model may be of an unsupported kind.
    return config.data.tokenizer == "model" ? tokenizer_of(origin_of(config.model, model))
                                            : make_tokenizer(config.data.tokenizer);
  };
  check_shards(files, format, own, "data.tokenizer");
  return text::read_corpus(files, format, tokenizer, model.vocab_size);
}

/// Returns the rows of the files, or of the generator.
std::shared_ptr<const text::RowStore> source_rows(const config::RunConfig& config,
                                                  const model::ModelConfig& model,
                                                  const tokenizer::Tokenizer& tokenizer,
                                                  const std::vector<std::string>& files, Stages& stages) {
  const config::DataSection& data = config.data;
  std::shared_ptr<const text::Corpus>& shared = stages.corpora[files];
  if (shared == nullptr) {
    shared = std::make_shared<const text::Corpus>(is_generated(files)
                                                      ? generated_corpus(config, model, tokenizer, stages)
                                                      : file_corpus(config, model, tokenizer, files));
  }
  if (!data.packing && !stages.documents) return text::sequences(shared, data.sequence_length);
  text::Corpus corpus = *shared;
  if (!is_generated(files))
    corpus.split_token_files(data.separator < 0 ? std::nullopt
                                                : std::optional(static_cast<std::int32_t>(data.separator)));
  return data.packing ? text::packed(std::move(corpus), data.sequence_length)
                      : text::sequences(std::move(corpus), data.sequence_length);
}

/// Returns the rows of the config's sources: one part, or one for each of data.weights.
std::vector<text::Dataset::WeightedRows> source_parts(const config::RunConfig& config,
                                                      const model::ModelConfig& model,
                                                      const tokenizer::Tokenizer& tokenizer, Stages& stages) {
  const config::DataSection& data = config.data;
  if (data.weights.empty()) return {{source_rows(config, model, tokenizer, data.source, stages)}};
  std::vector<text::Dataset::WeightedRows> parts;
  for (std::size_t s = 0; s < data.source.size(); ++s) {
    const std::string& files = data.source[s];
    parts.push_back({source_rows(config, model, tokenizer, {files}, stages), data.weights[s], files});
  }
  return parts;
}

/// Returns the tokenizer of the data. Ids need none, so a tokenizer that cannot be read does not matter then.
std::unique_ptr<tokenizer::Tokenizer> source_tokenizer(const config::RunConfig& config,
                                                       const model::ModelConfig& model) {
  return reads_text(config) ? tokenizer_of(config, model) : tokenizer::make_tokenizer("byte");
}

std::string source_name(const config::RunConfig& config) {
  std::string name;
  for (const std::string& s : config.data.source) name += (name.empty() ? "" : ", ") + s;
  return name;
}

void check_rows(const std::vector<text::Row>& rows, std::int64_t sequence_length, std::int64_t vocabulary,
                const char* what) {
  for (std::size_t r = 0; r < rows.size(); ++r)
    text::check_row(rows[r], sequence_length, vocabulary, fmt::format("{}[{}]", what, r));
}

void check_tokens(const std::vector<std::int32_t>& tokens, std::int64_t vocabulary) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocabulary) continue;
    throw ConfigError(
        fmt::format("tokens[{}] is {}, but the model's vocab_size is {}", i, tokens[i], vocabulary));
  }
}

void check_one_kind(const Memory& memory) {
  const int kinds = (memory.tokens.empty() ? 0 : 1) + (memory.rows.empty() ? 0 : 1) + (memory.source ? 1 : 0);
  if (kinds > 1) throw ConfigError("data in memory: give exactly one of tokens, rows and a source of rows");
}

/// Returns tokens or rows in memory as a dataset.
text::Dataset stored_set(const model::ModelConfig& model, Memory memory,
                         const text::Dataset::Options& options) {
  check_tokens(memory.tokens, model.vocab_size);
  check_rows(memory.rows, options.sequence_length, model.vocab_size, "rows");
  if (!memory.rows.empty()) return {std::move(memory.rows), options, "rows in memory"};
  return {std::move(memory.tokens), options, "tokens in memory"};
}

/// Returns the rows of conversations, one part, or one for each of data.weights.
text::Dataset sft_set(const config::RunConfig& config, const model::ModelConfig& model,
                      const text::Dataset::Options& options, std::vector<std::string>* notes) {
  const config::DataSection& data = config.data;
  std::vector<text::Dataset::WeightedRows> parts;
  std::int64_t left_out = 0;
  const auto rows = [&](const std::vector<std::string>& files) {
    SftCounts counts;
    const double held_out = data.validation.files.empty() ? data.validation.share : 0;
    auto list = text::listed(sft_rows(config, model, files, notes, &counts, held_out));
    left_out += counts.masked + counts.empty;
    return list;
  };
  if (data.weights.empty()) parts.push_back({rows(data.source)});
  for (std::size_t s = 0; s < data.weights.size(); ++s) {
    const std::string& files = data.source[s];
    parts.push_back({rows({files}), data.weights[s], files});
  }
  text::Dataset set(std::move(parts), options, source_name(config));
  set.leave_out(left_out);
  if (!data.validation.files.empty())
    set.hold_out(text::listed(sft_rows(config, model, data.validation.files, notes)));
  return set;
}

text::Dataset training_set(const config::RunConfig& config, const model::ModelConfig& model, Memory memory,
                           const text::Dataset::Options& options, Stages& stages,
                           std::vector<std::string>* notes) {
  check_one_kind(memory);
  if (memory.source) return {std::move(memory.source), model.vocab_size, options, "rows of the source"};
  if (memory.any()) return stored_set(model, std::move(memory), options);
  const std::string& objective = config.train.objective;
  if (objective != "pretrain" && objective != "sft") {
    throw ConfigError(
        fmt::format("train.objective = \"{}\": expected pretrain or sft here, whose rows are predicted. Fix: "
                    "`mantissa {} CONFIG` trains this objective",
                    objective, objective == "rl" ? "rl" : "train"));
  }
  check_has_fields(config.data.source, file_format(config.data), "data.fields");
  check_bytes(config, model);
  if (objective == "sft") return sft_set(config, model, options, notes);
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer = source_tokenizer(config, model);
  text::Dataset set(source_parts(config, model, *tokenizer, stages), options, source_name(config));
  if (!config.data.validation.files.empty())
    set.hold_out(source_rows(config, model, *tokenizer, config.data.validation.files, stages));
  return set;
}

/// Returns all rows of `set` in order.
text::StepData all_rows(const text::Dataset& set) {
  return set.step(1, set.training_rows());
}

/// Returns the rows of one stage, or of a run without stages.
text::Dataset stage_set(const config::RunConfig& config, const model::ModelConfig& model, Memory memory,
                        text::Dataset::Options options, Stages& stages, std::vector<std::string>* notes) {
  const std::vector<std::string>& held_out_files = config.data.validation.files;
  const bool sft = config.train.objective == "sft" && !memory.any();
  const bool apart = !memory.held_out.empty() || (!memory.any() && !held_out_files.empty());
  options.sequence_length = config.data.sequence_length;
  options.shuffle = config.data.shuffle;
  options.rwkv_walk = config.data.order == "rwkv";
  options.magic_prime = config.data.magic_prime;
  options.carries = config.data.carry_state;
  options.validation = apart ? 0 : config.data.validation.share;
  options.seed = config.run.seed;
  options.packs = sft && config.data.packing;
  options.earlier_steps = config.run.earlier_steps;
  check_rows(memory.held_out, options.sequence_length, model.vocab_size, "held_out");
  std::vector<text::Row> held_out = std::move(memory.held_out);
  text::Dataset set = training_set(config, model, std::move(memory), options, stages, notes);
  if (const std::string note = order_note(config.data, set); notes != nullptr && !note.empty())
    notes->push_back(note);
  if (!held_out.empty()) set.hold_out(std::move(held_out));
  return set;
}

/// A stage's rows, and how many of them it trains.
struct StageRows {
  std::vector<std::string> source;
  std::int64_t length = 0;  // tokens
  std::int64_t rows = 0;
  text::Dataset set;
};

/// Keeps what any stage holds out of a source from the training rows of all its stages.
void hold_out_from_all(std::vector<StageRows>& stages) {
  std::map<std::vector<std::string>, std::int64_t> ends;
  for (const StageRows& stage : stages) {
    const std::int64_t end = stage.set.training_end();
    std::int64_t& least = ends.try_emplace(stage.source, end).first->second;
    least = std::min(least, end);
  }
  for (StageRows& stage : stages) stage.set.train_below(ends.at(stage.source));
}

/// Continues each source in the epoch, and at the first row at or after the token, where its stage before
/// ended.
void continue_sources(std::vector<StageRows>& stages) {
  for (std::size_t s = 1; s < stages.size(); ++s) {
    for (std::size_t b = s; b-- > 0;) {
      const StageRows& before = stages[b];
      if (before.source != stages[s].source) continue;
      const std::int64_t done = before.set.first_row() + before.rows, in_epoch = before.set.training_rows();
      const std::int64_t tokens = done % in_epoch * before.length;
      const std::int64_t all = stages[s].set.training_rows();
      const std::int64_t row = std::min(all, (tokens + stages[s].length - 1) / stages[s].length);
      stages[s].set.begin_at(done / in_epoch * all + row);
      break;
    }
  }
}

}  // namespace

std::string order_note(const config::DataSection& data, const text::Dataset& set) {
  if (data.order != "rwkv") return "";
  return fmt::format("data.order = \"rwkv\": the magic prime for rows of {} tokens is {}{}",
                     data.sequence_length, set.training_rows(),
                     data.magic_prime > 0 ? ", as data.magic_prime says" : "");
}

void check_bytes(const config::RunConfig& config, const model::ModelConfig& model) {
  if (config.data.tokenizer != "byte" || !reads_text(config)) return;
  if (model.vocab_size < kByteEntries) {
    throw ConfigError(
        fmt::format("data.tokenizer = \"byte\" has {} entries, but the model's vocab_size is {}. Fix: set "
                    "model.vocab_size to at least {}",
                    kByteEntries, model.vocab_size, kByteEntries));
  }
  const weights::ModelSource origin = origin_of(config.model, model);
  const bool other_size = !origin.weights.empty() && model.vocab_size != kByteEntries;
  const bool in_gguf = origin.files != nullptr && origin.files->contains("tokenizer.json");
  if (!has_vocabulary(origin) && !other_size) return;
  if (const auto own = tokenizer_of(origin); own != nullptr && own->name() == "byte") return;
  if (in_gguf || !tokenizer::find_in_directory(origin.directory).empty()) {
    throw ConfigError(
        fmt::format("data.tokenizer = \"byte\": the ids of this model are those of {}. Fix: set "
                    "data.tokenizer = \"model\"",
                    (in_gguf ? origin.weights : tokenizer_file(origin.directory)).string()));
  }
  throw ConfigError(
      fmt::format("data.tokenizer = \"byte\": {}. Encode the text with the model's tokenizer, write the ids "
                  "to a file, and set data.source to it and data.format = \"tokens\"",
                  why_no_tokenizer(origin)));
}

text::Dataset load_dataset(const config::RunConfig& config, const model::ModelConfig& model, Memory memory,
                           std::vector<std::string>* notes, bool documents) {
  Stages shared{tokens_of_steps(config), documents};
  if (config.run.stages.empty()) return stage_set(config, model, std::move(memory), {}, shared, notes);
  if (!memory.rows.empty() || memory.source) {
    throw ConfigError(
        "run.stage: rows in memory have lengths of their own. Fix: give tokens as one stream, or files as "
        "data.source");
  }
  std::vector<StageRows> stages;
  text::Dataset::Options options;
  for (std::size_t s = 0; s < config::stage_count(config); ++s) {
    const config::RunConfig stage = config::stage_config(config, s);
    const std::int64_t rows = stage.run.steps * stage.batch.global_batch_size;
    options.first_step = config::first_step(config, s);
    stages.push_back({stage.data.source, stage.data.sequence_length, rows,
                      stage_set(stage, model, memory, options, shared, notes)});
    options.first_sequence += rows;
  }
  if (config.data.validation.files.empty() && stages.front().set.validation_rows() > 0 &&
      memory.held_out.empty())
    hold_out_from_all(stages);
  continue_sources(stages);
  std::vector<text::Dataset> later;
  for (std::size_t s = 1; s < stages.size(); ++s) later.push_back(std::move(stages[s].set));
  stages.front().set.add_stages(std::move(later));
  return std::move(stages.front().set);
}

void add_notes(const config::RunConfig& config, const model::ModelConfig& model, config::Told& told) {
  const std::int64_t positions = model.max_position_embeddings, length = config.data.sequence_length;
  if (!config.model.path.empty() && config.run.stages.empty() && positions > 0 && length > positions) {
    told.notes.push_back(fmt::format(
        "data.sequence_length = {} is more than the model's max_position_embeddings = {}: the model has not "
        "learned later positions; model.rope_theta extends them (docs/long-context.md)",
        length, positions));
  }
  if (config.data.tokenizer != "byte" || model.vocab_size <= kByteEntries) return;
  if (!reads_text(config)) return;
  told.notes.push_back(
      fmt::format("data.tokenizer = \"byte\" gives the ids 0 to {}: the other {} entries of model.vocab_size "
                  "= {} are never used",
                  kByteEntries - 1, model.vocab_size - kByteEntries, model.vocab_size));
}

text::StepData stream_rows(std::vector<std::int32_t> ids, std::int64_t sequence_length,
                           const std::string& name) {
  text::Dataset::Options options;
  options.sequence_length = std::min(sequence_length, static_cast<std::int64_t>(ids.size()) - 1);
  if (options.sequence_length < 1)
    throw ConfigError(fmt::format("{}: fewer than two tokens, so nothing can be predicted", name));
  options.shuffle = false;
  return all_rows({std::move(ids), options, "--data"});
}

text::StepData memory_rows(const model::ModelConfig& model, Memory memory, std::int64_t sequence_length) {
  check_one_kind(memory);
  if (memory.source)
    throw ConfigError("evaluate: give tokens or rows; a source of rows is only for training");
  if (memory.rows.empty()) {
    check_tokens(memory.tokens, model.vocab_size);
    return stream_rows(std::move(memory.tokens), sequence_length, "tokens in memory");
  }
  text::Dataset::Options options;
  options.sequence_length = sequence_length;
  options.shuffle = false;
  return all_rows(stored_set(model, std::move(memory), options));
}

}  // namespace mantissa::data
