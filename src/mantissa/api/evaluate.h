// Loss over held-out text, and the answers to held-out puzzles.
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
  std::int64_t tokens = 0;  // that were predicted
  double loss = 0;          // nats per token; of weighted rows Σ weight · (−log p) / Σ weight
  double perplexity = 0;
  double bits_per_byte = 0;  // 0 where the tokens are not known to be bytes
  std::int64_t puzzles = 0;  // Knights-and-Knaves rows that were answered
  double well_formed = 0;    // share with the right form
  double accuracy = 0;       // share answered right
  bool interrupted = false;  // by the stop: the loss is that of the rows before it, and no puzzle is answered
};

/// Evaluates over files, or over held-out puzzles where `data` is {"kk"}, of which `puzzles` are answered
/// too. Throws ConfigError, FileError; RunStopped where the loss is not finite, naming the row and the first
/// such value; all below do.
Evaluation evaluate(const Model& model, const std::vector<std::string>& data, const std::string& format,
                    std::int64_t sequence_length, std::int64_t puzzles, const Precision& precision,
                    const Hardware& hardware = {}, std::stop_token stop = {});
/// Evaluates over tokens or rows in memory: sequences of `sequence_length` tokens, or rows of up to one more.
/// `data.next` and `data.held_out` are for training.
Evaluation evaluate(const Model& model, const Data& data, std::int64_t sequence_length,
                    const Precision& precision = {}, const Hardware& hardware = {},
                    std::stop_token stop = {});
/// Evaluates over the held-out rows of a run's config the model that the run wrote. `data`: what train() was
/// given in place of the config's source.
Evaluation evaluate(const Config& config, std::int64_t puzzles, const Hardware& hardware = {},
                    const Data& data = {}, std::stop_token stop = {});

}  // namespace mantissa::api
