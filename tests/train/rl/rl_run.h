// Runs of reinforcement learning by the program.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "app/cli/run_program.h"

namespace mantissa::testing {

/// A tiny model that is rewarded for letters, by a program.
class Rl : public ::testing::Test {
 protected:
  void SetUp() override {
    put("");
    // One line of output for each line of input: the number of letters of the response.
    write(folder / "letters.sh",
          "#!/bin/sh\nwhile read -r line; do\n  response=${line#*'\"response\":\"'}\n"
          "  response=${response%%'\",\"row\"'*}\n"
          "  letters=$(printf %s \"$response\" | tr -cd a-m | wc -c)\n"
          "  echo \"{\\\"reward\\\":$letters,\\\"parts\\\":{\\\"letters\\\":$letters}}\"\ndone\n");
  }
  /// Writes run.toml with lines of [rl], and other sections.
  void put(const std::string& rl, const std::string& more = "", int steps = 6) {
    write(folder / "run.toml",
          "[run]\nsteps = " + std::to_string(steps) +
              "\n[model]\nhidden_size = 32\nintermediate_size = 48\nnum_hidden_layers = 2\n"
              "num_attention_heads = 4\nnum_key_value_heads = 2\nvocab_size = 256\n"
              "[data]\nsource = \"kk\"\npeople_max = 2\ntemplate = \"none\"\nvalidation = 0.0\n"
              "[optimizer]\nlr = 1e-2\n[schedule]\nwarmup_steps = 1\n[checkpoint]\ninterval = 2\nkeep = 9\n"
              "[rl]\nreward = \"program:sh letters.sh\"\nprompts_per_step = 3\nsamples_per_prompt = 4\n"
              "max_new_tokens = 12\n" +
              rl + more);
  }
  Result run(const std::string& out, const std::string& options = "") {
    return mantissa(folder, "rl run.toml --quiet --allow-programs --out " + out + " " + options);
  }
  std::string refusal(const std::string& arguments) {
    const Result r = mantissa(folder, arguments);
    EXPECT_EQ(r.code, 2) << arguments << r.err;
    return r.err;
  }
  std::vector<nlohmann::json> metrics(const std::string& out) {
    std::vector<nlohmann::json> all;
    std::istringstream lines(read_all(folder / (out + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
  std::string model(const std::string& out) { return read_all(folder / (out + "/model/model.safetensors")); }

  TemporaryFolder folder;
};

}  // namespace mantissa::testing
