// The settings of a server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/generate/rollout/sampler.h"

namespace mantissa::serve {

/// What a request may ask for, and the time that it may take.
struct Limits {
  std::size_t body_bytes = std::size_t{8} << 20U;
  std::int64_t tokens = 4096;    // of a sequence, with its prompt; at most the model's context
  std::int64_t sequences = 128;  // of a request: prompts times n
  std::int64_t streams = 8;      // sequences that grow at once
  std::int64_t queue = 256;      // requests that are in work or wait
  std::int64_t connections = 256;
  std::int64_t request_seconds = 600;  // from the request to the end of its answer
  std::int64_t client_seconds = 30;    // for a client to send a request, or to take a part of the answer
};

/// The values of fields that a request leaves out.
struct Defaults {
  rollout::SamplingOptions sampling;
  std::vector<std::string> stop;
  std::int64_t max_new_tokens = 128;
};

}  // namespace mantissa::serve
