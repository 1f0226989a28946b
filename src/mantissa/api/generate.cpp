// Generation, traces and puzzles: what commands do with a model directory.
#include <fmt/format.h>

#include "mantissa/api/internal.h"
#include "mantissa/base/error.h"
#include "mantissa/io/file.h"
#include "mantissa/plan/compile.h"
#include "mantissa/rollout/generate.h"
#include "mantissa/runtime/executor.h"
#include "mantissa/text/kk.h"
#include "mantissa/train/model_io.h"
#include "mantissa/train/trace.h"

namespace mantissa::api {
namespace {

std::vector<std::int32_t> prompt_ids(const GenerateOptions& o, const text::Tokenizer* tokenizer,
                                     const std::filesystem::path& model) {
  if (!o.prompt_ids.empty()) return o.prompt_ids;
  if (tokenizer == nullptr) {
    throw ConfigError(
        fmt::format("{}: has no tokenizer that this version reads (only models of bytes have one built in); "
                    "give --prompt-ids",
                    model.string()));
  }
  return tokenizer->encode(o.prompt);
}

/// Ids that end a text: config.json's eos_token_id, one or several.
std::vector<std::int32_t> stop_ids(const model::ModelConfig& config) {
  std::vector<std::int32_t> ids;
  const auto it = config.source.find("eos_token_id");
  if (it == config.source.end()) return ids;
  if (it->is_number_integer()) ids.push_back(it->get<std::int32_t>());
  if (it->is_array()) {
    for (const auto& id : *it) {
      if (id.is_number_integer()) ids.push_back(id.get<std::int32_t>());
    }
  }
  return ids;
}

}  // namespace

std::string read_prompt(const std::filesystem::path& file) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 24U;
  return io::read_text_file(file, kMost);
}

Generation generate(const std::filesystem::path& model, const GenerateOptions& o) {
  const kernels::Context ctx = context_for(o.hardware);
  const train::ModelSource source = train::find_model(model);
  const std::unique_ptr<text::Tokenizer> tokenizer = tokenizer_of(model, source.config);
  Generation out;
  out.prompt_ids = prompt_ids(o, tokenizer.get(), model);
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
  if (o.max_new_tokens < 1 || o.max_new_tokens > kMostTokens) {
    throw ConfigError(
        fmt::format("--max-new-tokens {}: must be between 1 and {}", o.max_new_tokens, kMostTokens));
  }
  const std::int64_t capacity = static_cast<std::int64_t>(out.prompt_ids.size()) + o.max_new_tokens;
  const plan::Program program =
      rollout::compile_decode(source.config, policy_for(o.precision), capacity, ctx);
  check_plan(program);
  runtime::WeightSet weights(program);
  train::load_weights(weights, source, ctx);
  runtime::Executor executor(program, weights, ctx);
  rollout::GenerateOptions options;
  options.max_new_tokens = o.max_new_tokens;
  options.stop = stop_ids(source.config);
  options.sampling = {o.temperature, o.top_k, o.top_p, o.seed};
  const rollout::Generation g = rollout::generate(executor, source.config, out.prompt_ids, options);
  out.ids = g.ids;
  out.log_probs = g.log_probs;
  out.tokens_per_second = g.seconds > 0 ? static_cast<double>(g.ids.size()) / g.seconds : 0;
  if (tokenizer != nullptr) {
    std::vector<std::int32_t> shown = g.ids;
    if (!shown.empty() &&
        std::find(options.stop.begin(), options.stop.end(), shown.back()) != options.stop.end())
      shown.pop_back();
    out.text = tokenizer->decode(shown);
  }
  return out;
}

Trace trace(const TraceOptions& o) {
  train::TraceOptions t;
  t.model = o.model;
  t.tokens = o.tokens;
  t.out = o.out;
  t.grads = o.grads;
  t.values = o.values;
  t.policy = policy_for(o.precision);
  t.check = check_plan;
  const train::TraceSummary s = train::write_trace(t, context_for(o.hardware));
  return {s.loss, s.predicted};
}

std::vector<std::string> puzzles(const PuzzleOptions& o) {
  text::KkOptions k;
  k.seed = o.seed;
  k.people_min = o.people_min;
  k.people_max = o.people_max;
  k.count = o.count;
  k.split = o.held_out ? text::KkSplit::test : text::KkSplit::train;
  k.style = text::parse_kk_style(o.style);
  std::vector<std::string> rows;
  for (const text::KkPuzzle& p : text::generate(k)) rows.push_back(text::to_jsonl_row(p));
  return rows;
}

}  // namespace mantissa::api
