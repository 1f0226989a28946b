#include "mantissa/app/api/data.h"

#include <utility>

#include "mantissa/app/api/internal.h"
#include "mantissa/setup/data/inspect.h"
#include "mantissa/setup/data/shard.h"
#include "mantissa/text/puzzles/kk.h"
#include "mantissa/text/puzzles/kk_file.h"
#include "mantissa/text/rows/file_kinds.h"

namespace mantissa::api {

namespace {

std::vector<text::Row> rows_of(const std::vector<Row>& rows) {
  std::vector<text::Row> out;
  out.reserve(rows.size());
  for (const Row& row : rows) out.push_back({row.ids, row.labels, row.weights, row.documents});
  return out;
}

text::KkOptions options_of(const PuzzleOptions& o) {
  text::KkOptions k;
  k.seed = o.seed;
  k.people_min = o.people_min;
  k.people_max = o.people_max;
  k.count = o.count;
  k.split = o.held_out ? text::KkSplit::test : text::KkSplit::train;
  k.style = text::parse_kk_style(o.style);
  return k;
}

DataDescription description_of(data::DataDescription d) {
  DataDescription of{d.tokens,
                     d.documents,
                     d.lengths.min,
                     d.lengths.median,
                     d.lengths.p90,
                     d.lengths.max,
                     d.lengths.mean,
                     d.sequence_length,
                     d.rows,
                     d.held_out_rows,
                     d.padding,
                     d.masked,
                     d.vocabulary,
                     d.entries,
                     std::move(d.samples),
                     std::move(d.sample_ids),
                     {},
                     {},
                     std::move(d.notes)};
  for (const data::DataDescription::Stage& s : d.stages)
    of.stages.push_back({s.steps, s.sequence_length, s.global_batch_size, s.rows, s.repeats});
  for (data::DataDescription::Source& s : d.sources) {
    of.sources.push_back({std::move(s.counts.name), s.counts.share, s.counts.rows, s.counts.held_out,
                          s.counts.tokens, s.repeats});
  }
  return of;
}

}  // namespace

data::Memory memory_of(const Data& data) {
  data::Memory memory{data.tokens, rows_of(data.rows), {}, rows_of(data.held_out)};
  if (data.next) memory.source = [next = data.next](std::int64_t step) { return rows_of(next(step)); };
  return memory;
}

bool in_memory(const Data& data) {
  return !data.tokens.empty() || !data.rows.empty() || data.next;
}

std::vector<std::string> data_formats(bool only_text) {
  return text::format_names(only_text ? text::Formats::text : text::Formats::all);
}

std::vector<std::string> puzzles(const PuzzleOptions& o) {
  std::vector<std::string> rows;
  for (const text::KkPuzzle& p : text::generate(options_of(o))) rows.push_back(text::to_jsonl_row(p));
  return rows;
}

void write_puzzles(const PuzzleOptions& options, const std::filesystem::path& out, bool overwrite) {
  text::write_kk(options_of(options), out, overwrite);
}

ShardReport write_shards(const ShardOptions& o, const std::function<void(const ShardProgress&)>& on_progress,
                         std::stop_token stop) {
  std::function<void(const data::ShardProgress&)> progress;
  if (on_progress) {
    progress = [&](const data::ShardProgress& p) { on_progress({p.tokens, p.documents, p.share, p.file}); };
  }
  const data::ShardReport report = data::write_shards(
      {o.files, o.format, o.fields, o.tokenizer, o.out, o.shard_tokens, o.threads, o.overwrite}, progress,
      stop);
  return {report.tokens, report.documents, report.shards, report.interrupted};
}

DataDescription inspect_data(const InspectOptions& o) {
  return description_of(data::describe_files({o.files, o.format, o.fields, o.id_type, o.tokenizer,
                                              o.vocabulary, o.sequence_length, o.packing, o.samples}));
}

DataDescription inspect_data(const Config& config, std::int64_t samples) {
  const config::RunConfig& run = config.impl().run;
  return description_of(data::describe_run(run, weights::find_run_model(run).config, samples));
}

}  // namespace mantissa::api
