#include "mantissa/setup/config/ranks.h"

#include <fmt/format.h>

#include <string>

#include "mantissa/core/base/error.h"

namespace mantissa::config {

void check_shards(const BatchSection& batch, int ranks) {
  if (batch.shards % ranks == 0) return;
  std::string fitting;
  for (std::int64_t shards = ranks; shards <= batch.global_batch_size; shards += ranks) {
    if (batch.global_batch_size / batch.leaf % shards == 0)
      fitting += fmt::format("{}{}", fitting.empty() ? "" : ", ", shards);
  }
  throw ConfigError(
      "batch.shards = {}: {} ranks cannot share them equally. Fix: {}", batch.shards, ranks,
      fitting.empty()
          ? fmt::format("set batch.global_batch_size to a multiple of {}, or start fewer ranks",
                        ranks * batch.leaf)
          : fmt::format("set batch.shards = {} (other shards are other bits), or start fewer ranks",
                        fitting));
}

}  // namespace mantissa::config
