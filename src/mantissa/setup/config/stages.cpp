#include "mantissa/setup/config/stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/base/words.h"
#include "mantissa/engine/model/rope_override.h"
#include "mantissa/setup/config/options.h"
#include "mantissa/text/rows/generated_rows.h"

namespace mantissa::config {
namespace {

constexpr const char* kTheta = "rope_theta";

/// The keys of one [[run.stage]], with its number for messages.
class StageReader {
 public:
  StageReader(const Entry& entry, const toml::table& table, std::size_t number)
      : entry_(entry), table_(table), number_(number) {
    static const std::vector<std::string> kKeys = {
        "steps",        "sequence_length", "rope_theta", "lr", "global_batch_size", "micro_batch_size",
        "warmup_steps", "source"};
    for (const auto& [name, node] : table_) {
      const std::string key(name.str());
      if (std::ranges::find(kKeys, key) != kKeys.end()) continue;
      fail(node, fmt::format("unknown key {} of a stage{} (keys: {})", in_quotes(key),
                             did_you_mean(key, kKeys), list_of(kKeys)));
    }
  }

  bool has(std::string_view key) const { return table_.contains(key); }

  /// Returns a whole number in the range of the option `section`.`key`, or `fallback` without the key.
  std::int64_t whole(std::string_view key, std::string_view section,
                     std::optional<std::int64_t> fallback) const {
    const toml::node* node = find(key);
    if (node == nullptr) {
      if (!fallback) fail(table_, fmt::format("{0} is missing; write {0} = N in this [[run.stage]]", key));
      return *fallback;
    }
    const Range range = find_option(section, key)->range;
    const auto* value = node->as_integer();
    if (value == nullptr || static_cast<double>(value->get()) < range.min ||
        static_cast<double>(value->get()) > range.max) {
      fail(*node, fmt::format("{} = {}: must be a whole number from {:.0f} to {:.0f}", key, shown(*node),
                              range.min, range.max));
    }
    return value->get();
  }

  double number(std::string_view key, double fallback) const {
    const toml::node* node = find(key);
    return node == nullptr ? fallback : positive(key, *node, "a number above 0");
  }

  /// Returns the base of the rotary angles: a number, or that of a table for `length` tokens.
  std::optional<double> theta(std::int64_t length, const nlohmann::json& of_model) const {
    const toml::node* node = find(kTheta);
    const bool named = node == nullptr ? of_model.is_string() : node->is_string();
    if (node == nullptr && !named) return std::nullopt;
    if (!named) return positive(kTheta, *node, fmt::format("a number above 0, or \"{}\"", model::kLwm));
    if (node != nullptr && node->value<std::string_view>() != model::kLwm)
      fail(*node, fmt::format("{} = {}: must be a number, or \"{}\"", kTheta, shown(*node), model::kLwm));
    try {
      return model::lwm_theta(length);
    } catch (const ConfigError& e) {
      fail(table_, e.what());
    }
  }

  std::vector<std::string> source(const std::vector<std::string>& fallback) const {
    const toml::node* node = find("source");
    if (node == nullptr) return fallback;
    std::vector<std::string> files;
    const auto add = [&](const toml::node& item) {
      const std::string text = item.value<std::string>().value_or("");
      if (text.empty()) fail(*node, "source: must be a file or glob, or an array of them");
      const bool generated = text::names_generator(text);
      files.push_back(generated ? text
                                : std::filesystem::absolute(entry_.base / text).lexically_normal().string());
    };
    if (const toml::array* array = node->as_array()) {
      for (const toml::node& item : *array) add(item);
      if (files.empty()) fail(*node, "source: must not be empty");
    } else {
      add(*node);
    }
    return files;
  }

  [[noreturn]] void fail(const toml::node& node, std::string_view why) const {
    throw ConfigError(fmt::format("{}: run.stage {}: {}", at_line_of(node, entry_.where), number_, why));
  }
  [[noreturn]] void fail(std::string_view why) const { fail(table_, why); }
  /// Returns "run.toml:12: run.stage 2: warmup_steps" for a note, with the line of the key in this table.
  std::string name(std::string_view key) const {
    const toml::node* node = find(key);
    return fmt::format("{}: run.stage {}: {}",
                       node == nullptr ? entry_.origin : at_line_of(*node, entry_.origin), number_, key);
  }

 private:
  /// Returns `where`, "run.toml:12", with the node's line in place of that of the first table.
  std::string at_line_of(const toml::node& node, const std::string& where) const {
    const auto line = node.source().begin.line;
    if (!entry_.raw.empty() || line == 0) return where;
    return fmt::format("{}:{}", where.substr(0, where.rfind(':')), line);
  }

  const toml::node* find(std::string_view key) const { return table_.get(key); }

  double positive(std::string_view key, const toml::node& node, const std::string& what) const {
    const std::optional<double> value = node.is_number() ? node.value<double>() : std::nullopt;
    if (!value || !std::isfinite(*value) || *value <= 0)
      fail(node, fmt::format("{} = {}: must be {}", key, shown(node), what));
    return *value;
  }

  const Entry& entry_;
  const toml::table& table_;
  std::size_t number_;
};

/// Returns the largest micro-batch of `rows` sequences a shard with at most `tokens` tokens, or one leaf.
std::int64_t micro_batch_of(std::int64_t rows, std::int64_t leaf, std::int64_t length, std::int64_t tokens) {
  std::int64_t best = leaf;
  for (std::int64_t micro = leaf; micro <= rows && micro * length <= tokens; micro += leaf) {
    if (rows % micro == 0) best = micro;
  }
  return best;
}

/// `tokens` are those of a micro-batch of the first stage; 0 in that stage.
void settle_batch(Stage& stage, const StageReader& reader, const RunConfig& config, std::int64_t tokens) {
  const BatchSection& batch = config.batch;
  stage.global_batch_size = reader.whole("global_batch_size", "batch", batch.global_batch_size);
  if (stage.global_batch_size % (batch.shards * batch.leaf) != 0) {
    reader.fail(fmt::format("global_batch_size = {}: must be a multiple of batch.shards × batch.leaf, {}",
                            stage.global_batch_size, batch.shards * batch.leaf));
  }
  const std::int64_t rows = stage.global_batch_size / batch.shards;
  if (tokens == 0) tokens = batch.micro_batch_size * stage.sequence_length;
  stage.micro_batch_size = reader.whole("micro_batch_size", "batch",
                                        micro_batch_of(rows, batch.leaf, stage.sequence_length, tokens));
  if (rows % stage.micro_batch_size != 0 || stage.micro_batch_size % batch.leaf != 0) {
    reader.fail(
        fmt::format("micro_batch_size = {}: must divide the sequences of a shard, {}, and be a multiple of "
                    "batch.leaf, {}",
                    stage.micro_batch_size, rows, batch.leaf));
  }
}

/// Reads a stage, of which only the first `most` steps belong to the run.
Stage read_stage(const StageReader& reader, const RunConfig& config, std::int64_t tokens, std::int64_t most,
                 Told& told) {
  Stage stage;
  stage.steps = reader.whole("steps", "run", std::nullopt);
  stage.sequence_length = reader.whole("sequence_length", "data", config.data.sequence_length);
  const auto own = config.model.fields.find(kTheta);
  stage.rope_theta =
      reader.theta(stage.sequence_length, own == config.model.fields.end() ? nlohmann::json() : *own);
  settle_batch(stage, reader, config, tokens);
  stage.lr = reader.number("lr", config.optimizer.lr);
  stage.steps = std::min(stage.steps, most);
  stage.warmup_steps = reader.whole("warmup_steps", "schedule", config.schedule.warmup_steps);
  if (stage.warmup_steps > stage.steps) {
    if (reader.has("warmup_steps")) {
      told.notes.push_back(
          shorter_warmup(reader.name("warmup_steps"), stage.warmup_steps, "its steps", stage.steps));
    }
    stage.warmup_steps = stage.steps;
  }
  stage.source = reader.source(config.data.source);
  if (stage.source.empty()) reader.fail("source is missing; set it here, or for all stages under [data]");
  return stage;
}

/// Makes the config's own values those of the first stage, as plans and errors expect.
void begin_with_first(RunConfig& config) {
  config.run.steps = 0;
  for (const Stage& stage : config.run.stages) config.run.steps += stage.steps;
  const Stage& first = config.run.stages.front();
  config.data.sequence_length = first.sequence_length;
  config.data.source = first.source;
  config.batch.global_batch_size = first.global_batch_size;
  config.batch.micro_batch_size = first.micro_batch_size;
  config.optimizer.lr = first.lr;
  config.schedule.warmup_steps = first.warmup_steps;
}

void check_kinds(const RunConfig& config, const Entry& entry) {
  const auto cannot = [&](std::string_view what, std::string_view cure) {
    throw ConfigError(fmt::format("{}: run.stage: {}. Fix: {}", entry.where, what, cure));
  };
  if (config.train.objective == "sft")
    cannot("stages are for train.objective = \"pretrain\"", "one run for each length, with model.path");
  if (!config.data.weights.empty())
    cannot("stages do not mix sources by data.weights", "remove data.weights");
  if (config.data.packing && config.data.validation.files.empty() && config.data.validation.share > 0) {
    cannot("with data.packing, a held-out share differs between stages",
           "files as data.validation, or data.validation = 0");
  }
}

}  // namespace

std::string shorter_warmup(std::string_view key, std::int64_t warmup, std::string_view of,
                           std::int64_t steps) {
  return fmt::format(
      "{} = {} is more than {}, {}; the warm-up has {}, so the learning rate rises until the last step", key,
      warmup, of, steps, counted(steps, "step"));
}

void settle_stages(RunConfig& config, const Entries& entries, Told& told) {
  const Entry* entry = entries.find("run", "stage");
  if (entry == nullptr) return;
  const toml::array* array = entry->value->as_array();
  if (array == nullptr || array->empty())
    throw ConfigError(
        fmt::format("{}: run.stage: must be tables [[run.stage]], each with steps", entry->where));
  check_kinds(config, *entry);
  const Entry* given = entries.find("run", "steps");
  const bool shorter = given != nullptr && !given->raw.empty();  // by --set
  constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
  std::int64_t left = shorter ? config.run.steps : kAll;
  std::size_t number = 0;
  std::int64_t tokens = 0, all = 0;
  for (const toml::node& node : *array) {
    const toml::table* table = node.as_table();
    if (table == nullptr)
      throw ConfigError(
          fmt::format("{}: run.stage: must be tables [[run.stage]], each with steps", entry->where));
    const StageReader reader(*entry, *table, ++number);
    all += reader.whole("steps", "run", std::nullopt);
    if (left == 0) continue;  // after the run's last step
    Stage stage = read_stage(reader, config, tokens, left, told);
    if (left != kAll) left -= stage.steps;
    if (tokens == 0) tokens = stage.micro_batch_size * stage.sequence_length;
    config.run.stages.push_back(std::move(stage));
  }
  const std::int64_t steps = config.run.steps;
  begin_with_first(config);
  if (shorter && config.run.steps < all) {
    told.notes.push_back(fmt::format("--set run.steps={}: the run has the first {} of the {} of its stages",
                                     steps, counted(steps, "step"), all));
  }
  if (steps == 0 || steps == config.run.steps) return;
  throw ConfigError(fmt::format("{}: run.steps = {}: the stages have {} steps together. Fix: remove the key",
                                entries.where("run", "steps"), steps, config.run.steps));
}

std::string stages_text(const std::vector<Stage>& stages) {
  std::string text;
  for (const Stage& stage : stages) {
    std::vector<std::string> files;
    for (const std::string& file : stage.source) files.push_back(toml_text(file));
    text += fmt::format("\n[[run.stage]]\nsteps = {}\nsequence_length = {}\n", stage.steps,
                        stage.sequence_length);
    if (stage.rope_theta) text += fmt::format("rope_theta = {}\n", toml_text(*stage.rope_theta));
    text += fmt::format(
        "global_batch_size = {}\nmicro_batch_size = {}\nlr = {}\nwarmup_steps = {}\nsource = [{}]\n",
        stage.global_batch_size, stage.micro_batch_size, toml_text(stage.lr), stage.warmup_steps,
        fmt::join(files, ", "));
  }
  return text;
}

std::size_t stage_count(const RunConfig& config) {
  return std::max<std::size_t>(1, config.run.stages.size());
}

std::int64_t first_step(const RunConfig& config, std::size_t stage) {
  std::int64_t steps = 0;
  for (std::size_t s = 0; s < stage; ++s) steps += config.run.stages.at(s).steps;
  return steps;
}

std::size_t stage_at(const RunConfig& config, std::int64_t done) {
  std::size_t stage = 0;
  while (stage + 1 < stage_count(config) && first_step(config, stage + 1) <= done) ++stage;
  return stage;
}

RunConfig stage_config(const RunConfig& config, std::size_t stage) {
  RunConfig own = config;
  if (config.run.stages.empty()) return own;
  own.run.stages = {config.run.stages.at(stage)};
  begin_with_first(own);
  return own;
}

model::ModelConfig stage_model(const RunConfig& config, const model::ModelConfig& model, std::size_t stage) {
  if (config.run.stages.empty()) return model;
  const Stage& own = config.run.stages.at(stage);
  const std::string where = fmt::format("run.stage {}", stage + 1);
  if (model.positions_are_limited) {
    if (own.sequence_length > model.max_position_embeddings) {
      throw ConfigError(
          fmt::format("{}: sequence_length = {} exceeds the model's {} learned positions. Fix: a shorter "
                      "sequence_length",
                      where, own.sequence_length, model.max_position_embeddings));
    }
    if (!own.rope_theta) return model;
  }
  return model::with_rope(model, own.rope_theta.value_or(0), own.sequence_length, where);
}

model::ModelConfig overridden(const RunConfig& config, const model::ModelConfig& model) {
  const auto theta = config.model.fields.find(kTheta);
  if (theta == config.model.fields.end()) return model;
  const bool apart = config.model.path.empty() && config.model.config.empty();
  if (apart && !theta->is_string()) return model;  // one of the fields that define the model
  const std::int64_t length = config.data.sequence_length;
  return model::with_rope(model, theta->is_string() ? model::lwm_theta(length) : theta->get<double>(), length,
                          "model.rope_theta");
}

}  // namespace mantissa::config
