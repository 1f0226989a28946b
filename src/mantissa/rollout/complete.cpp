#include "mantissa/rollout/complete.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mantissa/plan/rules.h"
#include "mantissa/runtime/process.h"

namespace mantissa::rollout {

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

std::vector<Generation> complete(const weights::ModelSource& source, const precision::Policy& policy,
                                 std::span<const Request> requests, const GenerateOptions& options,
                                 std::int64_t streams, const runtime::Device& device) {
  std::size_t longest = 0;
  for (const Request& r : requests) longest = std::max(longest, r.prompt.size());
  auto program =
      compile_decode_within(runtime::machine_memory_bytes(), source.config, policy,
                            static_cast<std::int64_t>(longest) + options.max_new_tokens, device,
                            std::clamp<std::int64_t>(static_cast<std::int64_t>(requests.size()), 1, streams));
  plan::check_rules(*program);
  runtime::Session session = weights::open_session(std::move(program), source, device);
  return generate(session, source.config, requests, options);
}

}  // namespace mantissa::rollout
