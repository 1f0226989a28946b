// mantissa data kk, inspect, shard
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/output.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

constexpr std::int64_t kMostRows = std::int64_t{1} << 40;

std::vector<std::string> files_of(const Arguments& a) {
  return {a.given().begin(), a.given().end()};
}

nlohmann::ordered_json to_json(const api::DataDescription& d) {
  nlohmann::ordered_json sources = nlohmann::ordered_json::array();
  for (const api::DataDescription::Source& s : d.sources) {
    sources.push_back({{"name", s.name},
                       {"share", s.share},
                       {"rows", s.rows},
                       {"held_out_rows", s.held_out_rows},
                       {"tokens", s.tokens},
                       {"repeats", s.repeats}});
  }
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const api::DataDescription::Stage& s : d.stages) {
    stages.push_back({{"steps", s.steps},
                      {"sequence_length", s.sequence_length},
                      {"global_batch_size", s.global_batch_size},
                      {"rows", s.rows},
                      {"repeats", s.repeats}});
  }
  return {{"tokens", d.tokens},
          {"documents", d.documents},
          {"lengths",
           {{"min", d.shortest}, {"median", d.median}, {"p90", d.p90}, {"max", d.longest}, {"mean", d.mean}}},
          {"sequence_length", d.sequence_length},
          {"rows", d.rows},
          {"held_out_rows", d.held_out_rows},
          {"padding", d.padding},
          {"masked", d.masked},
          {"vocabulary", d.vocabulary},
          {"entries", d.entries},
          {"sources", sources},
          {"stages", stages},
          {"notes", d.notes},
          {"samples", d.samples},
          {"sample_ids", d.sample_ids}};
}

/// Returns the sources of a mixture, or how often a run repeats its only one.
std::string sources_text(const api::DataDescription& d) {
  if (d.sources.size() == 1) {
    const double repeats = d.sources.front().repeats;
    return repeats > 0 ? fmt::format("repeats     {:.2f} times each row in this run\n", repeats) : "";
  }
  std::size_t width = std::string_view("source").size();
  for (const api::DataDescription::Source& s : d.sources) width = std::max(width, width_of(s.name));
  std::string text = fmt::format("\n{:<{}}  share    tokens      rows  held out  repeats\n", "source", width);
  for (const api::DataDescription::Source& s : d.sources) {
    text += fmt::format("{}{}  {:>5.1f}  {:>8}  {:>8}  {:>8}  {:>7.2f}\n", s.name,
                        std::string(width - width_of(s.name), ' '), 100 * s.share, s.tokens, s.rows,
                        s.held_out_rows, s.repeats);
  }
  return text + "share: % of the training rows; repeats: times the run uses each row of the source\n\n";
}

/// Returns the stages of a run, or "".
std::string stages_text(const api::DataDescription& d) {
  if (d.stages.empty()) return "";
  std::string text = fmt::format("\nstage  steps  tokens a row  sequences a step      rows  repeats\n");
  for (std::size_t i = 0; i < d.stages.size(); ++i) {
    const api::DataDescription::Stage& s = d.stages[i];
    text += fmt::format("{:<5}  {:>5}  {:>12}  {:>16}  {:>8}  {:>7.2f}\n", i + 1, s.steps, s.sequence_length,
                        s.global_batch_size, s.rows, s.repeats);
  }
  return text + "the other figures are those of stage 1; repeats: times the stage uses each of its rows\n\n";
}

/// Returns the first ids of a sample on one line, under its text.
std::string ids_text(const std::vector<std::int32_t>& ids) {
  constexpr std::size_t kColumns = 80;
  std::string line = "  ids       ";
  for (const std::int32_t id : ids) {
    const std::string next = fmt::format("{} ", id);
    if (line.size() + next.size() + 1 > kColumns) return line + "…\n";
    line += next;
  }
  return line + "\n";
}

std::string to_text(const api::DataDescription& d) {
  constexpr std::size_t kSample = 480;
  std::string text = fmt::format(
      "tokens      {}\ndocuments   {}, of {} to {} tokens: median {}, 90 % up to {}, mean {:.1f}\n"
      "rows        {} of {} tokens",
      d.tokens, d.documents, d.shortest, d.longest, d.median, d.p90, d.mean, d.rows, d.sequence_length);
  if (d.held_out_rows > 0) text += fmt::format(", and {} held out", d.held_out_rows);
  text += fmt::format("\npadding     {:.1f} %\nmasked      {:.1f} %\nvocabulary  {} of {} entries occur\n",
                      100 * d.padding, 100 * d.masked, d.entries, d.vocabulary);
  text += sources_text(d) + stages_text(d);
  for (std::size_t s = 0; s < d.samples.size(); ++s) {
    const nlohmann::json shown = d.samples[s].substr(0, kSample);  // escaped, and safe for a terminal
    text +=
        fmt::format("sample      {}\n", shown.dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore));
    const std::string ids = fmt::format("{}", fmt::join(d.sample_ids[s], " "));
    if (!d.samples[s].starts_with(ids)) text += ids_text(d.sample_ids[s]);  // else the sample shows them
  }
  const auto marked = [](const std::string& sample) { return sample.find("[[") != std::string::npos; };
  if (d.masked > 0 && std::ranges::any_of(d.samples, marked))
    text += "[[…]]       is masked: read, but not trained\n";
  return text;
}

/// Prints the progress of a long command on standard error, every few seconds.
class Progress {
 public:
  explicit Progress(bool quiet) : quiet_(quiet) {}
  void show(const api::ShardProgress& p) {
    constexpr std::chrono::seconds kInterval(5);
    const auto now = std::chrono::steady_clock::now();
    if (quiet_ || now - last_ < kInterval) return;
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    print_error(fmt::format("{:.0f} %, {} tokens of {} documents, {:.0f} tokens/s\n", 100 * p.share, p.tokens,
                            p.documents, static_cast<double>(p.tokens) / seconds));
  }

 private:
  bool quiet_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), last_ = start_;
};

int data_kk(const Arguments& a) {
  const std::string out = a.text("--out");
  api::PuzzleOptions options;
  options.count = a.integer("--count", 0, kMostRows);
  options.people_min = static_cast<int>(a.integer("--people-min", 2, 8));
  options.people_max = static_cast<int>(a.integer("--people-max", 2, 8));
  options.seed = a.seed();
  options.held_out = a.text("--split") == "test";
  options.style = a.text("--style");
  if (!out.empty()) {
    api::write_puzzles(options, out, a.has("--overwrite"));
    return 0;
  }
  if (a.has("--overwrite"))
    throw ConfigError("--overwrite: standard output replaces no file; give --out FILE");
  for (const std::string& row : api::puzzles(options)) fmt::print("{}\n", row);
  return 0;
}

int data_inspect(const Arguments& a) {
  const std::int64_t samples = a.integer("--samples", 0, 1000);
  const bool config = is_config(a.at(0));
  api::DataDescription d;
  if (config) {
    refuse_given(a,
                 {"--tokenizer", "--format", "--fields", "--id-type", "--sequence-length", "--packing",
                  "--vocab-size"},
                 "{0}: a config has its own data; use --set, or give files");
    if (a.given().size() > 1) throw ConfigError("data inspect: give one config, or files");
    d = api::inspect_data(api::Config::load(a.at(0), a.texts("--set")), samples);
  } else {
    refuse_given(a, {"--set"}, "{0}: files have no config; give CONFIG.toml, or remove it");
    api::InspectOptions options;
    options.files = files_of(a);
    options.format = a.text("--format");
    options.fields = a.text("--fields");
    options.id_type = a.text("--id-type");
    options.tokenizer = a.text("--tokenizer");
    if (a.has("--vocab-size")) options.vocabulary = a.integer("--vocab-size", 1, 2147483647);
    options.sequence_length = a.integer("--sequence-length", 1, std::int64_t{1} << 24);
    options.packing = a.has("--packing");
    options.samples = samples;
    d = api::inspect_data(options);
  }
  tell(a, d.notes, {});
  const auto json = [&] { return to_json(d).dump(1, ' ', false, nlohmann::json::error_handler_t::replace); };
  fmt::print("{}", a.has("--json") ? json() + "\n" : to_text(d));
  return 0;
}

int data_shard(const Arguments& a) {
  api::ShardOptions options;
  options.files = files_of(a);
  options.format = a.text("--format");
  options.fields = a.text("--fields");
  options.tokenizer = a.text("--tokenizer");
  if (options.tokenizer.empty()) {
    throw ConfigError(
        "data shard: requires --tokenizer: the model's directory, or a tokenizer file, or byte");
  }
  options.out = a.text("--out");
  options.shard_tokens = a.integer("--shard-tokens", 1, 2147483647);
  options.threads = static_cast<int>(a.integer("--threads", 0, 1024));
  options.overwrite = a.has("--overwrite");
  const SignalStop signals;
  Progress progress(a.has("--quiet"));
  const api::ShardReport report = api::write_shards(
      options, [&](const api::ShardProgress& p) { progress.show(p); }, signals.token());
  if (report.interrupted) return report_interrupt(signals, "nothing was written");
  if (a.has("--json")) {
    fmt::print("{}\n",
               nlohmann::ordered_json{
                   {"tokens", report.tokens}, {"documents", report.documents}, {"shards", report.shards}}
                   .dump());
  } else {
    fmt::print("{} tokens of {} documents in {} shards: {}\n", report.tokens, report.documents, report.shards,
               options.out.string());
  }
  return 0;
}

constexpr Option kTokenizer = {"--tokenizer", one, "TOKENIZER",
                               "byte, a tokenizer file, or a directory or GGUF file with one"};

}  // namespace

Commands data_commands() {
  return {{.name = "data kk",
           .summary = "write Knights-and-Knaves puzzles as JSONL",
           .options = {{"--count", one, "N", "number of puzzles", "10"},
                       {"--people-min", one, "N", "fewest people in a puzzle", "2"},
                       {"--people-max", one, "N", "most people in a puzzle, up to 8", "8"},
                       {"--split", one, "train|test", "test is disjoint from every training set", "train"},
                       {"--style", one, "short|logic-rl", "style of the text", "short"},
                       {"--seed", one, "S", "seed of the puzzles", "1"},
                       {"--out", one, "FILE", "file to write; default: standard output"},
                       {"--overwrite", "replace an existing file"}},
           .groups = {kResults},
           .run = data_kk},
          {.name = "data inspect",
           .summary = "describe data: documents, rows, masked tokens, vocabulary, samples",
           .positionals = {{"CONFIG|FILE",
                            "a run's config (.toml), or a file or glob of text, JSON, CSV or token ids"},
                           {"[FILE…]", "more files"}},
           .details =
               "A config is described by the rows of its [data]; files by rows of --sequence-length tokens.",
           .options = {kIdType,
                       kTokenizer,
                       data_format("--format", "format of the files"),
                       kFields,
                       {"--sequence-length", one, "T", "tokens per row", "256"},
                       {"--packing", "rows of several documents"},
                       {"--vocab-size", one, "N", "entries of the model; default: those of the tokenizer"},
                       {"--samples", one, "N", "rows whose beginning is printed", "3"}},
           .groups = {kSet, kResults},
           .run = data_inspect},
          {.name = "data shard",
           .summary = "tokenize text files, and write token files for data larger than memory",
           .positionals = {{"FILE", "a file or glob of text, JSON or CSV, also compressed (.gz, .zst)"},
                           {"[FILE…]", "more files"}},
           .details = "Requires --tokenizer and --out. The files are those of llm.c: a header of 256 int32, "
                      "and uint16 or uint32 ids. The directory appears complete or not at all.",
           .options = {kTokenizer,
                       data_format("--format", "format of the files", true),
                       kFields,
                       {"--out", one, "DIR", "directory to write"},
                       {"--shard-tokens", one, "N", "largest number of ids in a shard", "100000000"},
                       {"--overwrite", "replace a directory of shards"}},
           .groups = {kThreads, kResults},
           .run = data_shard}};
}

}  // namespace mantissa::cli
