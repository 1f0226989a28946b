// Runs that train an adapter, and the commands that use it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "app/cli/run_program.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa {
namespace {

using testing::has;
using testing::mantissa;
using testing::read_all;
using testing::Result;
using testing::TemporaryFolder;
using testing::timeless;
using testing::write;

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

TEST_F(Adapter, ARunWritesItAsAPeftDirectoryInsteadOfAModel) {
  ASSERT_EQ(train("r").code, 0) << read_all(folder / "err");
  EXPECT_FALSE(std::filesystem::exists(folder / "r/model"));
  const auto config = nlohmann::json::parse(read_all(folder / "r/adapter/adapter_config.json"));
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["target_modules"], nlohmann::json({"q_proj", "v_proj"}));
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["lora_alpha"], 6);
  EXPECT_EQ(config["base_model_name_or_path"], (folder / "b/model").string());
  const io::SafetensorsReader file(folder / "r/adapter/adapter_model.safetensors");
  ASSERT_EQ(file.tensors().size(), 8U) << "A and B of two projections of two layers";
  const io::TensorInfo* b = file.find("base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (std::vector<std::int64_t>{16, 4}));
}

TEST_F(Adapter, AStateHoldsNothingOfTheFrozenWeights) {
  ASSERT_EQ(train("r").code, 0);
  const io::SafetensorsReader state(folder / "r/state/step-00000004/state.safetensors");
  std::size_t masters = 0;
  for (const io::TensorInfo& t : state.tensors()) {
    EXPECT_TRUE(has(t.name, ".lora_")) << t.name;
    masters += t.name.starts_with("master.") ? 1 : 0;
  }
  EXPECT_EQ(masters, 8U);
  EXPECT_EQ(state.tensors().size(), 3 * masters) << "a master and two moments of each";
}

/// The file of the weights before training refers to the base.
TEST_F(Adapter, TheStartOfARunHoldsOnlyWhatIsTrained) {
  for (const std::string base : {"params", "int8"}) {
    put_run("base = \"" + base + "\"\n");
    ASSERT_EQ(train("r", "--overwrite --set log.health_interval=1").code, 0) << read_all(folder / "err");
    const io::SafetensorsReader start(folder / "r/start.safetensors");
    EXPECT_EQ(start.tensors().size(), 8U);
    for (const io::TensorInfo& t : start.tensors()) EXPECT_TRUE(has(t.name, ".lora_")) << t.name;
    EXPECT_EQ(start.metadata().at("mantissa.base"), (folder / "b/model").string());
    EXPECT_EQ(start.metadata().at("mantissa.fixed_xxh64").size(), 16U);
    EXPECT_EQ(start.metadata().contains("mantissa.frozen_xxh64"), base == "int8");
    std::istringstream lines(read_all(folder / "r/health.jsonl"));
    std::string line;
    std::getline(lines, line);
    for (const auto& [name, health] : nlohmann::json::parse(line)["health"].items())
      EXPECT_TRUE(health.contains("never_moved")) << name;
  }
  ASSERT_EQ(mantissa(folder, "audit r --steps 2 --no-cures").code, 0) << read_all(folder / "err");
}

TEST_F(Adapter, ABaseThatMovedOrChangedIsAnErrorThatNamesIt) {
  ASSERT_EQ(train("r").code, 0) << read_all(folder / "err");
  std::filesystem::rename(folder / "b/model", folder / "moved");
  EXPECT_TRUE(has(refusal("train run.toml --out r --resume=2"),
                  "b/model, which does not exist. Fix: put the model there, or give its place with --set "
                  "model.path=PATH"));
  EXPECT_EQ(train("r", "--resume=2 --set model.path=moved").code, 0) << read_all(folder / "err");
  std::filesystem::rename(folder / "moved", folder / "b/model");
  EXPECT_EQ(train("r", "--resume=2").code, 0) << read_all(folder / "err");
  // Another base with the same shapes.
  ASSERT_EQ(mantissa(folder, "train base.toml --out c --quiet --set run.seed=2").code, 0);
  std::filesystem::copy(
      folder / "c/model", folder / "b/model",
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(has(refusal("train run.toml --out r --resume=2"), "the model has changed"));
  std::filesystem::remove_all(folder / "r/state");
  const std::string audit = refusal("audit r --steps 1 --no-cures");
  EXPECT_TRUE(has(audit, "r/start.safetensors: expected the frozen weights with which the run began, ") &&
              has(audit, "the base has changed. Fix: restore it, or start over with --overwrite"))
      << audit;
}

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
      has(refusal("convert r x.gguf"), "mantissa merge " + (folder / "b/model").string() + " r MERGED"));
}

TEST_F(Adapter, AResumedRunEndsWithTheSameBytes) {
  for (const std::string settings :
       {"", "dora = true\nbase = \"bf16\"\n", "dora = true\nbase = \"int8\"\n"}) {
    put_run(settings);
    ASSERT_EQ(train("r", "--overwrite --precision bf16-mixed").code, 0) << read_all(folder / "err");
    const std::string whole = weights("r"), metrics = timeless(read_all(folder / "r/metrics.jsonl"));
    ASSERT_EQ(train("r", "--resume=2 --precision bf16-mixed").code, 0) << read_all(folder / "err");
    EXPECT_EQ(weights("r"), whole) << settings;
    EXPECT_EQ(timeless(read_all(folder / "r/metrics.jsonl")), metrics) << settings;
  }
}

TEST_F(Adapter, ThreadsSplitsRecomputationAndInstructionSetsChangeNoBitOfPackedAndPlainRows) {
  const std::string common = " --overwrite --precision bf16-mixed --set run.steps=2 --set data.packing=";
  for (const std::string packing : {"false", "true"}) {
    put_run(packing == "true" ? "target = \"*\"\ndora = true\n" : "target = \"*\"\n");
    ASSERT_EQ(train("r", "--threads 2" + common + packing).code, 0) << read_all(folder / "err");
    const std::string expected = weights("r");
    for (const std::string change :
         {"--threads 1 --set batch.micro_batch_size=1", "--set batch.micro_batch_size=4 --simd avx2",
          "--set batch.recompute=block"}) {
      ASSERT_EQ(train("s", change + common + packing).code, 0) << read_all(folder / "err");
      EXPECT_EQ(weights("s"), expected) << packing << change;
    }
  }
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

TEST_F(Adapter, ARunThatReplacesAnotherLeavesNothingOfItThatTheDirectoryWouldStandFor) {
  put_run("");
  const std::string with = read_all(folder / "run.toml");
  const auto train_without = [&] {
    write(folder / "run.toml", with.substr(0, with.find("[adapter]")));
    ASSERT_EQ(train("r", "--overwrite").code, 0) << read_all(folder / "err");
  };
  train_without();
  EXPECT_TRUE(std::filesystem::exists(folder / "r/model"));
  write(folder / "run.toml", with);
  ASSERT_EQ(train("r", "--overwrite").code, 0) << read_all(folder / "err");
  EXPECT_FALSE(std::filesystem::exists(folder / "r/model")) << "generate would use it";
  EXPECT_TRUE(std::filesystem::exists(folder / "r/adapter"));
  train_without();
  EXPECT_FALSE(std::filesystem::exists(folder / "r/adapter"));
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

TEST_F(Adapter, AnotherRunContinuesIt) {
  put_run("target = [\"*.q_proj\", \"*.down_proj\"]\nrslora = true\n");
  ASSERT_EQ(train("r").code, 0);
  const auto config = nlohmann::json::parse(read_all(folder / "r/adapter/adapter_config.json"));
  write(folder / "run.toml",
        "[run]\nsteps = 1\n[model]\npath = \"b/model\"\n[data]\nsource = \"kk\"\ntokenizer = \"byte\"\n"
        "sequence_length = 32\n[batch]\nglobal_batch_size = 4\n[optimizer]\nlr = 1e-30\nweight_decay = 0.0\n"
        "[adapter]\nkind = \"lora\"\npath = \"r/adapter\"\n");
  ASSERT_EQ(train("s").code, 0) << read_all(folder / "err");
  EXPECT_EQ(nlohmann::json::parse(read_all(folder / "s/adapter/adapter_config.json")), config);
  const io::SafetensorsReader before(folder / "r/adapter/adapter_model.safetensors"),
      after(folder / "s/adapter/adapter_model.safetensors");
  for (const io::TensorInfo& t : before.tensors()) {
    std::vector<std::byte> a(t.end - t.begin), b(t.end - t.begin);
    before.read(t, a);
    after.read(*after.find(t.name), b);
    EXPECT_EQ(a, b) << t.name;
  }
  EXPECT_TRUE(has(refusal("train run.toml --out r --overwrite"), "the run would replace adapter.path"));
  EXPECT_TRUE(has(refusal("train run.toml --out t --set adapter.rank=3"), "adapter.path has its own"));
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

TEST_F(Adapter, WrongSettingsAreErrorsThatNameTheCure) {
  const std::string set = "train run.toml --out x --set adapter.";
  EXPECT_TRUE(has(refusal(set + "target=*.q_prj"), "did you mean \"*.q_proj\"?"));
  EXPECT_TRUE(has(refusal(set + "target=lm_head"), "matches no linear layer of this llama model"));
  EXPECT_TRUE(has(refusal(set + "rank=17"), "rank 17 is too large for model.layers.0.self_attn.v_proj"));
  EXPECT_TRUE(has(refusal(set + "rank=0"), "must be"));
  EXPECT_TRUE(has(refusal(set + "base=int4"), "nf4-double"));
  EXPECT_TRUE(has(refusal(set + "base=nf4"), "its rows have 32 elements, and nf4 needs a multiple of 64"));
  EXPECT_TRUE(has(refusal(set + "base=int8 --precision 64-true"), "the policy computes in f64"));
  EXPECT_TRUE(has(refusal(set + "base=int8 --precision fp8-hybrid"), "multiplies it under scales"));
  EXPECT_TRUE(has(refusal("generate b/model --base q8 --prompt a"), "--base \"q8\": must be one of int8"));
  EXPECT_TRUE(has(refusal(set + "kind=none"), "set adapter.kind = \"lora\""));
  EXPECT_TRUE(
      has(refusal("train run.toml --out x --set 'model.path=' --set model.config=b/model/config.json"),
          "has no weights to adapt"));
  EXPECT_TRUE(has(refusal("generate b/model --adapter b --prompt a"), "is not an adapter"));
}

TEST_F(Adapter, OnlyItsOwnParametersBelongToGroupsAndRulesApplyToIt) {
  put_run("", "[[optimizer.group]]\nmatch = \"*.lora_A\"\nfreeze = true\n");
  ASSERT_EQ(train("r").code, 0) << read_all(folder / "err");
  ASSERT_EQ(train("s", "--set run.seed=1 --set optimizer.lr=1e-3").code, 0);
  const io::SafetensorsReader one(folder / "r/adapter/adapter_model.safetensors"),
      other(folder / "s/adapter/adapter_model.safetensors");
  for (const io::TensorInfo& t : one.tensors()) {
    std::vector<std::byte> a(t.end - t.begin), b(t.end - t.begin);
    one.read(t, a);
    other.read(*other.find(t.name), b);
    EXPECT_EQ(a == b, has(t.name, "lora_A")) << t.name << ": frozen at its start";
  }
  put_run("", "[[optimizer.group]]\nmatch = \"*.o_proj\"\nlr_scale = 2.0\n");
  EXPECT_TRUE(has(refusal("train run.toml --out x"), "matches only weights of the adapter's base"));
  put_run("", "[[optimizer.group]]\nmatch = \"*.x_proj\"\nlr_scale = 2.0\n");
  EXPECT_TRUE(has(refusal("train run.toml --out x"), "matches no parameter"));
  put_run("", "[[optimizer.group]]\nmatch = \"*_proj\"\nfreeze = true\nquantize = \"nf4\"\n");
  EXPECT_TRUE(has(refusal("train run.toml --out x"), "set adapter.base = \"nf4\""));
  put_run("");
  const Result r = mantissa(folder, "explain run.toml --precision bf16-mixed --rule '*.lora_A: compute=f32'");
  EXPECT_TRUE(has(r.out, "--rule 1")) << r.err;
}

}  // namespace
}  // namespace mantissa
