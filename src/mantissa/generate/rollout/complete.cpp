#include "mantissa/generate/rollout/complete.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "mantissa/engine/comm/deal.h"
#include "mantissa/engine/model/network.h"
#include "mantissa/engine/plan/rules.h"
#include "mantissa/engine/runtime/process.h"
#include "mantissa/files/io/json.h"
#include "mantissa/generate/rollout/generation_bytes.h"
#include "mantissa/setup/programs/decoding.h"

namespace mantissa::rollout {

namespace {

/// The fewest tokens of a sequence for which weights are interleaved. On two cores of a Zen 4 server, where
/// new pages are slow, commands of 64 tokens took 12 to 15 % less time in bf16 and f32, 9 % less in Q4_1 and
/// the same in Q8_0, and those of 96 to 192 tokens up to 25 % less in every format.
constexpr std::int64_t kInterleaveTokens = 64;

std::vector<std::int32_t> ids_in(const nlohmann::json& config) {
  std::vector<std::int32_t> ids;
  const auto it = config.find("eos_token_id");
  if (it == config.end()) return ids;
  if (it->is_number_integer()) ids.push_back(it->get<std::int32_t>());
  if (it->is_array()) {
    for (const auto& id : *it) {
      if (id.is_number_integer()) ids.push_back(id.get<std::int32_t>());
    }
  }
  return ids;
}

std::vector<Generation> complete_together(const weights::ModelSource& source, const precision::Policy& policy,
                                          std::span<const Request> requests, const GenerateOptions& options,
                                          std::int64_t streams, const runtime::Device& device) {
  std::size_t longest = 0;
  for (const Request& r : requests) longest = std::max(longest, r.prompt.size());
  auto program = compile_decode_within(
      runtime::machine_memory_bytes(), source, policy,
      static_cast<std::int64_t>(longest) + options.max_new_tokens,
      std::clamp<std::int64_t>(static_cast<std::int64_t>(requests.size()), 1, streams), device);
  plan::check_rules(*program);
  auto weights = std::make_shared<runtime::WeightSet>(weights::open_weights(*program, source, device));
  if (options.max_new_tokens >= kInterleaveTokens) interleave_weights(*weights, *program);
  runtime::Session session(std::move(program), std::move(weights));
  return generate(session, source.config, requests, options);
}

/// Returns `options` for some of the requests: request r of them is number_of(r) of all.
template <class NumberOf>
GenerateOptions options_for(const GenerateOptions& options, const NumberOf& number_of) {
  GenerateOptions some = options;
  if (options.on_token) {
    some.on_token = [&options, number_of](std::size_t r, std::int32_t id, double log_prob) {
      return options.on_token(number_of(r), id, log_prob);
    };
  }
  if (options.process_logits) {
    some.process_logits = [&options, number_of](std::size_t r, std::span<const std::int32_t> ids,
                                                std::span<double> logits) {
      options.process_logits(number_of(r), ids, logits);
    };
  }
  if (options.name_of) {
    some.name_of = [&options, number_of](std::size_t r) { return options.name_of(number_of(r)); };
  }
  return some;
}

/// Continues the prompts of one length at a time.
std::vector<Generation> complete_by_length(const weights::ModelSource& source,
                                           const precision::Policy& policy, std::span<const Request> requests,
                                           const GenerateOptions& options, std::int64_t streams,
                                           const runtime::Device& device) {
  std::map<std::size_t, std::vector<std::size_t>> by_length;
  for (std::size_t r = 0; r < requests.size(); ++r) by_length[requests[r].prompt.size()].push_back(r);
  std::vector<Generation> all(requests.size());
  for (const auto& [length, group] : by_length) {
    std::vector<Request> some;
    for (const std::size_t r : group) some.push_back(requests[r]);
    const GenerateOptions of_group = options_for(options, [&group](std::size_t r) { return group[r]; });
    std::vector<Generation> some_done = complete_together(source, policy, some, of_group, streams, device);
    for (std::size_t i = 0; i < group.size(); ++i) all[group[i]] = std::move(some_done[i]);
  }
  return all;
}

/// Continues the prompts in this process.
std::vector<Generation> complete_here(const weights::ModelSource& source, const precision::Policy& policy,
                                      std::span<const Request> requests, const GenerateOptions& options,
                                      std::int64_t streams, const runtime::Device& device) {
  std::size_t longest = 0;
  for (const Request& r : requests) longest = std::max(longest, r.prompt.size());
  // Such a model's results depend on the longest sequence of the program.
  const bool by_length =
      source.config.network->depends_on_length(static_cast<std::int64_t>(longest) + options.max_new_tokens);
  return (by_length ? complete_by_length : complete_together)(source, policy, requests, options, streams,
                                                              device);
}

}  // namespace

std::vector<std::int32_t> stop_ids(const weights::ModelSource& source) {
  constexpr const char* kFile = "generation_config.json";
  if (const std::optional<std::string> text = weights::beside_weights(source, kFile)) {
    const std::filesystem::path where = source.files == nullptr ? source.directory / kFile : source.weights;
    const nlohmann::json settings = io::parse_json(*text, where);
    std::vector<std::int32_t> ids = settings.is_object() ? ids_in(settings) : std::vector<std::int32_t>();
    if (!ids.empty()) return ids;
  }
  return ids_in(source.config.source);
}

bool depends_on_others(const weights::ModelSource& source, const precision::Policy& policy,
                       const runtime::Device& device) {
  constexpr std::int64_t kAnyCapacity = 2;
  return std::ranges::any_of(programs::compile_decode(source.config, policy, kAnyCapacity, device, 1)->scales,
                             &plan::ScaleSlot::current);
}

std::shared_ptr<const plan::Program> compile_decode_within(std::size_t bytes,
                                                           const weights::ModelSource& source,
                                                           const precision::Policy& policy,
                                                           std::int64_t capacity, std::int64_t streams,
                                                           const runtime::Device& device) {
  for (;; streams /= 2) {
    auto program = programs::compile_decode(source.config, policy, capacity, device, streams);
    if (streams == 1 || weights::read_bytes(*program, source).all + program->memory.arena() <= bytes)
      return program;
  }
}

std::vector<Generation> complete(const weights::ModelSource& source, const precision::Policy& policy,
                                 std::span<const Request> requests, const GenerateOptions& options,
                                 std::int64_t streams, const runtime::Device& device,
                                 comm::Communicator* ranks) {
  if (ranks == nullptr || ranks->alone())
    return complete_here(source, policy, requests, options, streams, device);
  const std::size_t parts =
      depends_on_others(source, policy, device) ? 1 : static_cast<std::size_t>(ranks->size());
  std::vector<std::int32_t> ids;
  for (const Request& r : requests) ids.insert(ids.end(), r.prompt.begin(), r.prompt.end());
  const auto of_part = [&](std::int64_t part, const std::stop_token& stop) -> std::optional<comm::Bytes> {
    const std::size_t first = requests.size() * static_cast<std::size_t>(part) / parts,
                      end = requests.size() * (static_cast<std::size_t>(part) + 1) / parts;
    if (first == end) return comm::Bytes();
    GenerateOptions own = options_for(options, [first](std::size_t r) { return first + r; });
    own.interrupt = stop;
    const std::vector<Generation> made =
        complete_here(source, policy, requests.subspan(first, end - first), own, streams, device);
    if (!std::ranges::all_of(made, &Generation::ended)) return std::nullopt;
    return bytes_of(made);
  };
  std::vector<Generation> all;
  for (const comm::Bytes& made :
       comm::deal(ranks, static_cast<std::int64_t>(parts), {policy.line(), comm::memory_of(ids)},
                  options.interrupt, of_part)) {
    for (Generation& g : generations_of(made)) all.push_back(std::move(g));
  }
  if (all.size() < requests.size()) all.assign(requests.size(), {});
  return all;
}

}  // namespace mantissa::rollout
