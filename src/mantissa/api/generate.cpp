// Generation, traces and puzzles: what commands do with a model directory.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/api/internal.h"
#include "mantissa/base/error.h"
#include "mantissa/io/file.h"
#include "mantissa/io/safetensors.h"
#include "mantissa/plan/compile.h"
#include "mantissa/rollout/generate.h"
#include "mantissa/runtime/executor.h"
#include "mantissa/runtime/process.h"
#include "mantissa/text/kk.h"
#include "mantissa/train/trace.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::api {
namespace {

std::vector<std::int32_t> ids_of(const Prompt& prompt, const text::Tokenizer* tokenizer,
                                 const weights::ModelSource& source) {
  if (!prompt.ids.empty()) return prompt.ids;
  if (tokenizer == nullptr) {
    throw ConfigError(
        fmt::format("{}. Encode the prompt with the model's tokenizer, and give --prompt-ids 1,2,3",
                    why_no_bytes(source)));
  }
  return tokenizer->encode(prompt.text);
}

void check_option(const char* option, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most)
    throw ConfigError(fmt::format("{} {}: must be between 1 and {}", option, value, most));
}

/// A request for every sample of every prompt.
std::vector<rollout::Request> requests_of(std::span<const Prompt> prompts, const GenerateOptions& o,
                                          const text::Tokenizer* tokenizer,
                                          const weights::ModelSource& source) {
  check_option("--samples", o.samples, std::int64_t{1} << 20);
  std::vector<rollout::Request> requests;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const std::vector<std::int32_t> ids = ids_of(prompts[p], tokenizer, source);
    if (ids.empty() && prompts.size() > 1) {
      throw ConfigError(
          fmt::format("prompt {} of {} is empty; give it at least one token", p + 1, prompts.size()));
    }
    for (std::int64_t sample = 0; sample < o.samples; ++sample) requests.push_back({ids, sample});
  }
  return requests;
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

/// What is shown of a text: all but the id that ended it.
std::span<const std::int32_t> without_end(std::span<const std::int32_t> ids,
                                          const std::vector<std::int32_t>& stop) {
  const bool ended = !ids.empty() && std::find(stop.begin(), stop.end(), ids.back()) != stop.end();
  return ids.first(ids.size() - (ended ? 1 : 0));
}

}  // namespace

std::string read_prompt(const std::filesystem::path& file) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 24U;
  return io::read_text_file(file, kMost);
}

Generations generate(const std::filesystem::path& model, std::span<const Prompt> prompts,
                     const GenerateOptions& o) {
  const kernels::Context ctx = context_for(o.hardware);
  const weights::ModelSource source = weights::find_model(model);
  const std::unique_ptr<text::Tokenizer> tokenizer = tokenizer_of(source);
  const std::vector<rollout::Request> requests = requests_of(prompts, o, tokenizer.get(), source);
  check_option("--max-new-tokens", o.max_new_tokens, std::int64_t{1} << 24);
  check_option("--streams", o.streams, 1024);
  std::size_t longest = 0;
  for (const rollout::Request& r : requests) longest = std::max(longest, r.prompt.size());
  const plan::Program program = rollout::compile_decode_within(
      runtime::machine_memory_bytes(), source.config, policy_for(o.precision),
      static_cast<std::int64_t>(longest) + o.max_new_tokens, ctx,
      std::clamp<std::int64_t>(static_cast<std::int64_t>(requests.size()), 1, o.streams));
  check_plan(program);
  const runtime::WeightSet weights = weights::open_weights(program, source, ctx);
  runtime::Executor executor(program, weights, ctx);
  rollout::GenerateOptions options;
  options.max_new_tokens = o.max_new_tokens;
  options.stop = stop_ids(source.config);
  options.sampling = {o.temperature, o.top_k, o.top_p, o.seed};
  std::vector<rollout::Generation> made = rollout::generate(executor, source.config, requests, options);
  Generations out;
  double tokens = 0, seconds = 0;
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto count = static_cast<double>(made[i].ids.size());
    tokens += count;
    seconds = std::max(seconds, made[i].seconds);
    Generation g;
    g.prompt_ids = requests[i].prompt;
    g.ids = std::move(made[i].ids);
    g.log_probs = std::move(made[i].log_probs);
    g.tokens_per_second = made[i].seconds > 0 ? count / made[i].seconds : 0;
    if (tokenizer != nullptr) g.text = tokenizer->decode(without_end(g.ids, options.stop));
    out.all.push_back(std::move(g));
  }
  out.tokens_per_second = seconds > 0 ? tokens / seconds : 0;
  return out;
}

Generation generate(const std::filesystem::path& model, const GenerateOptions& o) {
  const Prompt prompt{o.prompt, o.prompt_ids};
  return std::move(generate(model, {&prompt, 1}, o).all.front());
}

Trace trace(const TraceOptions& o) {
  train::TraceOptions t;
  t.model = o.model;
  t.tokens = o.tokens;
  t.ids = o.ids;
  t.labels = o.labels;
  t.out = o.out;
  t.unconverted = o.unconverted;
  t.grads = o.grads;
  t.values = o.values;
  t.policy = policy_for(o.precision);
  t.check = check_plan;
  train::TraceSummary s = train::write_trace(t, context_for(o.hardware));
  Trace trace{s.loss, s.predicted, {}};
  for (train::TracedTensor& from : s.tensors) {
    trace.tensors.push_back({std::move(from.name), std::string(io::safetensors_name(from.dtype)),
                             std::move(from.shape), std::move(from.bytes)});
  }
  return trace;
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
