// Runs that train an adapter on a base of their own.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "app/cli/run_program.h"

namespace mantissa::testing {

/// A base of two layers with grouped queries, and runs that adapt it.
class Adapter : public ::testing::Test {
 protected:
  void SetUp() override {
    write(folder / "base.toml",
          "[run]\nsteps = 2\n[model]\nhidden_size = 32\nintermediate_size = 48\nnum_hidden_layers = 2\n"
          "num_attention_heads = 4\nnum_key_value_heads = 2\nvocab_size = 256\n[data]\nsource = \"kk\"\n"
          "sequence_length = 32\n[batch]\nglobal_batch_size = 4\n");
    ASSERT_EQ(mantissa(folder, "train base.toml --out b --quiet").code, 0) << read_all(folder / "err");
    put_run("");
  }

  void put_run(const std::string& adapter, const std::string& more = "") {
    write(folder / "run.toml",
          "[run]\nsteps = 4\n[model]\npath = \"b/model\"\n[data]\nsource = \"kk\"\ntokenizer = \"byte\"\n"
          "sequence_length = 32\nvalidation = 0.05\n[batch]\nglobal_batch_size = 4\nmicro_batch_size = 2\n"
          "[optimizer]\nlr = 2e-2\n[schedule]\nwarmup_steps = 1\n[checkpoint]\ninterval = 2\nkeep = 9\n"
          "[adapter]\nkind = \"lora\"\nrank = 4\nalpha = 6\n" +
              adapter + more);
  }

  Result train(const std::string& out, const std::string& options = "") {
    return mantissa(folder, "train run.toml --quiet --out " + out + " " + options);
  }
  std::string weights(const std::string& run) {
    return read_all(folder / (run + "/adapter/adapter_model.safetensors"));
  }
  std::string refusal(const std::string& arguments) {
    const Result r = mantissa(folder, arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    return r.err;
  }

  TemporaryFolder folder;
};

}  // namespace mantissa::testing
