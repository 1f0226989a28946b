// The commands that use an adapter.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/cli/adapter_run.h"

namespace mantissa {
namespace {

using testing::Adapter;
using testing::has;
using testing::mantissa;
using testing::read_all;
using testing::Result;
using testing::write;

/// A run of eight-bit blocks: the hash of the base is that of its files, under any policy.
TEST_F(Adapter, CommandsThatUseItWarnOfABaseThatHasChanged) {
  put_run("base = \"int8\"\n");
  ASSERT_EQ(train("r").code, 0) << read_all(folder / "err");
  write(folder / "t.txt", "A line of forty characters, or so it seems.\n");
  const std::string use = " --prompt-ids 1,2,3 --max-new-tokens 2 --precision ";
  const std::string commands[] = {"generate r" + use + "bf16-true",
                                  "generate r/adapter/" + use + "32-true",
                                  "generate r/state/step-00000004" + use + "32-true",
                                  "generate b/model --adapter r" + use + "32-true",
                                  "eval r --data t.txt --sequence-length 16",
                                  "chat r --max-new-tokens 1 --template chatml < t.txt",
                                  "merge b/model r m --overwrite"};
  const auto warns = [&](const std::string& command) {
    return has(mantissa(folder, command).err, "warning: r");
  };
  for (const std::string& command : commands) EXPECT_FALSE(warns(command)) << command;
  ASSERT_EQ(mantissa(folder, "train base.toml --out c --quiet --set run.seed=2").code, 0);
  std::filesystem::copy(
      folder / "c/model", folder / "b/model",
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  for (const std::string& command : commands) {
    const Result r = mantissa(folder, command);
    EXPECT_EQ(r.code, 0) << command << r.err;
    EXPECT_TRUE(has(r.err, "expected the base with which the run began, ") &&
                has(r.err, "Fix: restore the base, or train the adapter on this one"))
        << command << r.err;
  }
  EXPECT_EQ(nlohmann::json::parse(mantissa(folder, commands[6] + " --json").out)["warnings"].size(), 1U);
}

TEST_F(Adapter, ConvertNamesTheCommandThatMergesItIntoItsBase) {
  ASSERT_EQ(train("r").code, 0) << read_all(folder / "err");
  EXPECT_TRUE(
      has(refusal("convert r x.pth"), "mantissa merge " + (folder / "b/model").string() + " r MERGED"));
}

TEST_F(Adapter, ANewOneChangesNoLogitAndATrainedOneDoes) {
  const std::string prompt = "generate b/model --prompt Alice --max-new-tokens 8 --json";
  for (const std::string settings : {"rslora = true\n", "dora = true\n"}) {
    put_run(settings);
    ASSERT_EQ(train("new",
                    "--overwrite --set run.steps=1 --set schedule.warmup_steps=0 --set "
                    "optimizer.lr=1e-30 --set optimizer.weight_decay=0")
                  .code,
              0)
        << read_all(folder / "err");
    ASSERT_EQ(train("r", "--overwrite --set run.steps=2").code, 0);
    const auto log_probs = [&](const std::string& options) {
      const Result r = mantissa(folder, prompt + options);
      EXPECT_EQ(r.code, 0) << r.err;
      return nlohmann::json::parse(r.out)["log_probs"];
    };
    const auto base = log_probs("");
    EXPECT_EQ(log_probs(" --adapter new"), base) << settings;
    EXPECT_NE(log_probs(" --adapter r/adapter"), base) << settings;
  }
}

TEST_F(Adapter, ARunAndItsStatesStandForTheBaseWithTheAdapter) {
  ASSERT_EQ(train("r").code, 0);
  const auto generated = [&](const std::string& model) {
    const Result r = mantissa(folder, "generate " + model + " --prompt Alice --max-new-tokens 8 --json");
    EXPECT_EQ(r.code, 0) << r.err;
    auto json = nlohmann::json::parse(r.out);
    json.erase("tokens_per_second");
    return json;
  };
  const auto expected = generated("b/model --adapter r");
  EXPECT_EQ(generated("r"), expected);
  EXPECT_EQ(generated("r/state/step-00000004"), expected);
  EXPECT_NE(generated("r/state/step-00000002"), expected);
  EXPECT_TRUE(has(refusal("generate r --adapter r --prompt a"), "has an adapter already"));
}

TEST_F(Adapter, EvalOfARunRepeatsItsLossOnHeldOutRows) {
  for (const std::string settings :
       {"base = \"bf16\"\n", "base = \"int8\"\n", "base = \"int8\"\ndora = true\n"}) {
    put_run(settings);
    ASSERT_EQ(train("r", "--precision bf16-mixed --overwrite").code, 0) << read_all(folder / "err");
    const auto summary = nlohmann::json::parse(read_all(folder / "r/summary.json"));
    const Result r = mantissa(folder, "eval r --json --puzzles 0");
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(nlohmann::json::parse(r.out)["loss"], summary["validation_loss"]) << settings;
  }
}

TEST_F(Adapter, CommandsHoldTheBaseInTheBlocksThatItWasTrainedOn) {
  put_run("base = \"int8\"\ntarget = [\"*.q_proj\", \"*.down_proj\"]\n");
  ASSERT_EQ(train("r").code, 0) << read_all(folder / "err");
  const auto log_probs = [&](const std::string& model) {
    const Result g = mantissa(folder, "generate " + model + " --prompt Alice --max-new-tokens 4 --json");
    EXPECT_EQ(g.code, 0) << g.err;
    return nlohmann::json::parse(g.out)["log_probs"].get<std::vector<double>>();
  };
  const std::vector<double> trained = log_probs("r");
  EXPECT_EQ(log_probs("b/model --adapter r"), trained);
  EXPECT_EQ(log_probs("b/model --adapter r --base int8"), trained);
  const std::vector<double> original = log_probs("b/model --adapter r --base params");
  EXPECT_NE(original, trained);
  EXPECT_NE(log_probs("b/model --base int8"), log_probs("b/model"));
  // A merge adds to the same weights.
  for (const bool params : {false, true}) {
    const Result m = mantissa(
        folder, std::string("merge b/model r m --overwrite --json") + (params ? " --base params" : ""));
    ASSERT_EQ(m.code, 0) << m.err;
    const auto json = nlohmann::json::parse(m.out);
    EXPECT_EQ(json["layers"], 4);
    EXPECT_EQ(has(json["notes"].dump(), "have their values in int8"), !params);
    // A merged weight is rounded once more, to f32: 2^-24 of it. The layers are shallow, so the sums of a few
    // such errors are steps of f32 near 5.
    const std::vector<double> merged = log_probs("m"), &beside = params ? original : trained;
    for (std::size_t i = 0; i < merged.size(); ++i) EXPECT_NEAR(merged[i], beside[i], 8 * 0x1p-21);
  }
}

TEST_F(Adapter, CommandsHoldBaseAndAdapterInTheFormatsOfTheirTraining) {
  // What is trained changes nothing, so the commands must repeat the log-probabilities of the step.
  write(folder / "rows.jsonl", "{\"input_ids\": [65, 108, 105, 99, 101, 32, 115, 97, 105, 100, 46]}\n");
  write(folder / "text.txt", "Alice said.");
  ASSERT_EQ(train("r").code, 0) << read_all(folder / "err");  // an adapter that is not zero
  const std::string config =
      "[run]\nsteps = 1\n[model]\npath = \"b/model\"\n[train]\nobjective = \"sft\"\n[data]\n"
      "source = \"rows.jsonl\"\nsequence_length = 32\nvalidation = 0.0\n[batch]\nglobal_batch_size = 1\n"
      "[optimizer]\nlr = 1e-30\nweight_decay = 0.0\n[adapter]\nkind = \"lora\"\npath = \"r/adapter\"\n";
  const auto json_of = [&](const std::string& command) {
    const Result r = mantissa(folder, command);
    EXPECT_EQ(r.code, 0) << command << ": " << r.err;
    return nlohmann::json::parse(r.out);
  };
  const auto loss = [&](const std::string& command) {
    return json_of("eval " + command + " --data text.txt --sequence-length 10 --json")["loss"].get<double>();
  };
  for (const std::string base : {"bf16", "f16"}) {
    write(folder / "run.toml", config + "base = \"" + base + "\"\n");
    ASSERT_EQ(train("s", "--overwrite").code, 0) << read_all(folder / "err");
    const auto trained =
        nlohmann::json::parse(read_all(folder / "s/summary.json"))["final_loss"].get<double>();
    EXPECT_EQ(loss("s"), trained) << base;
    EXPECT_EQ(loss("b/model --adapter s"), trained) << base;
    EXPECT_EQ(loss("b/model --adapter r --base " + base), trained) << base;
    EXPECT_NE(loss("b/model --adapter s --base params"), trained) << base;
    const auto merged = json_of("merge b/model s m --overwrite --json");
    EXPECT_TRUE(has(merged["notes"].dump(), "was trained on a base in " + base));
  }
  // The policy's format of weights holds for the base; the adapter stays in f32.
  write(folder / "run.toml", config);
  for (const std::string policy : {"'32-true params=bf16'", "bf16-true"}) {
    ASSERT_EQ(train("s", "--overwrite --precision " + policy).code, 0) << read_all(folder / "err");
    const auto trained =
        nlohmann::json::parse(read_all(folder / "s/summary.json"))["final_loss"].get<double>();
    EXPECT_EQ(loss("s --precision " + policy), trained) << policy;
  }
  EXPECT_TRUE(has(refusal("merge b/model s m --base bf16 --overwrite"), "--base \"bf16\": must be one of"));
}

TEST_F(Adapter, MergeReportsWhatRoundingLost) {
  for (const std::string settings : {"", "dora = true\n"}) {
    put_run("target = \"*\"\n" + settings);
    ASSERT_EQ(train("r", "--overwrite").code, 0);
    const Result r = mantissa(folder, "merge b/model r m --overwrite --json");
    ASSERT_EQ(r.code, 0) << r.err;
    const auto exact = nlohmann::json::parse(r.out);
    EXPECT_EQ(exact["layers"], 14);
    EXPECT_LT(exact["lost"], 1e-4);
    EXPECT_TRUE(exact["warnings"].empty());
    const Result rounded = mantissa(folder, "merge b/model r n --overwrite --dtype bf16 --json");
    ASSERT_EQ(rounded.code, 0) << rounded.err;
    const auto lost = nlohmann::json::parse(rounded.out);
    EXPECT_GT(lost["lost"], 1e-3);
    EXPECT_GE(lost["vanished"], exact["vanished"]);
    EXPECT_TRUE(std::filesystem::exists(folder / "n/config.json"));
    const auto log_probs = [&](const std::string& model) {
      const Result g = mantissa(folder, "generate " + model + " --prompt Alice --max-new-tokens 4 --json");
      EXPECT_EQ(g.code, 0) << g.err;
      return nlohmann::json::parse(g.out)["log_probs"].get<std::vector<double>>();
    };
    const std::vector<double> beside = log_probs("b/model --adapter r"), merged = log_probs("m");
    for (std::size_t i = 0; i < beside.size(); ++i) EXPECT_NEAR(beside[i], merged[i], 1e-4);
  }
  EXPECT_TRUE(has(refusal("merge b/model r m"), "exists already"));
  EXPECT_TRUE(has(refusal("merge b/model b/model x"), "is not an adapter"));
}

TEST_F(Adapter, MergeWarnsIfRoundingLostALargeShare) {
  put_run("");
  ASSERT_EQ(train("r", "--set optimizer.lr=1e-5").code, 0);
  const Result r = mantissa(folder, "merge b/model r m --dtype bf16");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(has(r.err, "keep its numbers with --dtype f32")) << r.err;
  EXPECT_TRUE(has(r.out, "of the changed elements round to")) << r.out;
}

TEST_F(Adapter, ExplainShowsWhatIsTrainedAndFrozen) {
  const auto explained = [&](const std::string& options) {
    const Result r = mantissa(folder, "explain run.toml --json " + options);
    EXPECT_EQ(r.code, 0) << r.err;
    return nlohmann::json::parse(r.out);
  };
  const auto adapted = explained("--precision bf16-mixed --set adapter.base=bf16");
  EXPECT_EQ(adapted["adapter"]["layers"], 4);
  // Rank 4 of 32 inputs, and of 32 and 16 outputs, in two layers.
  EXPECT_EQ(adapted["adapter"]["parameters"], 2 * 4 * (32 + 32 + 32 + 16));
  write(folder / "run.toml",
        read_all(folder / "run.toml").substr(0, read_all(folder / "run.toml").find("[adapter]")));
  const auto whole = explained("--precision bf16-mixed");
  EXPECT_FALSE(whole.contains("adapter"));
  EXPECT_LT(adapted["memory"]["moments"], whole["memory"]["moments"].get<double>() / 10);
  EXPECT_LT(adapted["memory"]["gradients"], whole["memory"]["gradients"].get<double>() / 10);
  EXPECT_LT(adapted["memory"]["activations"], whole["memory"]["activations"]);
  // One copy of the base, in two bytes.
  const double base = adapted["memory"]["frozen"];
  EXPECT_LT(base, whole["memory"]["masters"].get<double>() * 0.55);
  EXPECT_EQ(whole["memory"]["frozen"], 0);
}

}  // namespace
}  // namespace mantissa
