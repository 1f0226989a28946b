// The bytes as the body of a request for text, of both kinds.
#include <cmath>
#include <string_view>

#include "check.h"
#include "mantissa/app/serve/request.h"
#include "target.h"

using namespace mantissa;

namespace {

void check(const serve::TextRequest& r, const serve::Limits& limits) {
  fuzz::require(r.sequences() >= 1 && r.sequences() <= limits.sequences,
                "a request has some sequences, not too many");
  fuzz::require(std::isfinite(r.sampling.temperature) && r.sampling.temperature >= 0, "a temperature");
  fuzz::require(r.sampling.top_p > 0 && r.sampling.top_p <= 1, "a share of the probability");
  fuzz::require(!r.max_tokens || *r.max_tokens >= 0, "a number of tokens");
  fuzz::require(r.most_likely >= 0 && (r.log_probs || r.most_likely == 0),
                "most likely tokens with their values");
  for (const auto& stop : r.stop) fuzz::require(!stop.empty(), "a stop string is not empty");
  for (const auto& prompt : r.prompts) {
    for (const std::int32_t id : prompt.ids) fuzz::require(id >= 0, "an id");
  }
}

}  // namespace

MANTISSA_FUZZ_TARGET(serve, fuzz::mutate_json) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const serve::Limits limits;
  fuzz::expect_only_errors([&] { check(serve::read_completion(body, {}, limits), limits); });
  fuzz::expect_only_errors([&] { check(serve::read_chat(body, {}, limits), limits); });
  return 0;
}
