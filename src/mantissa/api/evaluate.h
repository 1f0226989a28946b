// Loss over held-out text, and answers to held-out puzzles.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/api/config.h"
#include "mantissa/api/data.h"
#include "mantissa/api/hardware.h"
#include "mantissa/api/model.h"
#include "mantissa/api/precision.h"

namespace mantissa::api {

struct Evaluation {
  std::int64_t tokens = 0;  // predicted tokens
  double loss = 0;          // nats per token; for weighted rows Σ weight · (−log p) / Σ weight
  double perplexity = 0;
  double bits_per_byte = 0;  // 0 if the tokens are not known to be bytes
  std::int64_t puzzles = 0;  // number of answered Knights-and-Knaves puzzles
  double well_formed = 0;    // share of answers in the right form
  double accuracy = 0;       // share of right answers
  // by a stop: the loss is over the completed rows (0 without any), and no puzzles were scored
  bool interrupted = false;
};

/// Evaluates a model over files, or over held-out puzzles if `data` is {"kk"}; then `puzzles` of them are
/// also answered. All overloads throw ConfigError, FileError, and RunStopped for a non-finite loss, with the
/// row and the first such value.
Evaluation evaluate(const Model& model, const std::vector<std::string>& data, const std::string& format,
                    std::int64_t sequence_length, std::int64_t puzzles, const Precision& precision,
                    const Hardware& hardware = {}, std::stop_token stop = {});
/// Evaluates a model over tokens or rows in memory: sequences of `sequence_length` tokens, or rows with at
/// most one more. `data.next` and `data.held_out` are only for training.
Evaluation evaluate(const Model& model, const Data& data, std::int64_t sequence_length,
                    const Precision& precision = {}, const Hardware& hardware = {},
                    std::stop_token stop = {});
/// Evaluates the model of the config's run, or its newest state without one, over the held-out rows of the
/// config. If the config's source is "kk", `puzzles` held-out puzzles are also answered. `data` is the data
/// given to train() in place of the source.
Evaluation evaluate(const Config& config, std::int64_t puzzles, const Hardware& hardware = {},
                    const Data& data = {}, std::stop_token stop = {});

}  // namespace mantissa::api
