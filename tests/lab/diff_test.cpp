// Traces, configs and metrics: the first difference in the order of the computation.
#include "mantissa/lab/diff/diff.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"
#include "mantissa/lab/diff/trace_order.h"

namespace mantissa::lab {
namespace {

using Values = std::vector<std::pair<std::string, std::vector<float>>>;

class Traces : public test::TemporaryFolder {
 protected:
  std::filesystem::path write(const std::string& file, const Values& tensors, bool ours = true) const {
    std::vector<io::TensorToWrite> out;
    for (const auto& [name, values] : tensors) {
      out.push_back({name,
                     io::Dtype::f32,
                     {static_cast<std::int64_t>(values.size())},
                     std::as_bytes(std::span(values)),
                     nullptr});
    }
    std::map<std::string, std::string> metadata;
    if (ours) metadata["mantissa.policy"] = "compute=f32";
    io::write_safetensors(folder / file, out, metadata);
    return folder / file;
  }
  Diff compare(const Values& a, const Values& b, bool a_is_ours = true, bool b_is_ours = true) const {
    return diff(write("a.safetensors", a, a_is_ours), write("b.safetensors", b, b_is_ours), false,
                *runtime::cpu({}));
  }
};

TEST_F(Traces, FirstOpInTheOrderOfThePlanIsNamed) {
  const Values a = {{"logits", {1}},
                    {"log_probs", {1}},
                    {"value.model.layers.10.mlp.down_proj.matmul", {1, 2}},
                    {"value.model.layers.2.mlp.up_proj.matmul", {1.0078125F, 2}},
                    {"value.lm_head.log_prob.grad.x", {1}},
                    {"loss", {1}},
                    {"grad.model.embed_tokens.weight", {1}},
                    {"grad.lm_head.weight", {1}}};
  Values b = a;
  EXPECT_EQ(verdict(compare(a, b)), "equal: 8 tensors, every byte");
  b[7].second = {2};
  b[6].second = {2};
  EXPECT_EQ(compare(a, b).tensors->differing(false)[0]->name, "grad.lm_head.weight")
      << "the backward pass begins at the end";
  b[4].second = {2};
  EXPECT_EQ(compare(a, b).tensors->differing(false)[0]->name, "value.lm_head.log_prob.grad.x");
  b[0].second = {2};
  EXPECT_EQ(compare(a, b).tensors->differing(false)[0]->name, "logits");
  b[3].second = {1, 2};
  EXPECT_EQ(
      verdict(compare(a, b)),
      "different: the first op that differs is model.layers.2.mlp.up_proj matmul: 1 of 2 values, at most 1 "
      "ulp of bf16");
  b[2].second = {1, 3};
  EXPECT_EQ(compare(a, b).tensors->differing(false)[0]->name, "value.model.layers.10.mlp.down_proj.matmul");
  const nlohmann::json json = nlohmann::json::parse(to_json(compare(a, b)));
  EXPECT_EQ(json["first_op"]["scope"], "model.layers.10.mlp.down_proj");
  EXPECT_EQ(json["first_op"]["op"], "matmul");
}

TEST_F(Traces, OfAnotherProgramFollowTheOrderOfThePlan) {
  const Values sorted = {{"logits", {1}}, {"value.a.matmul", {1}}, {"value.z.matmul", {1}}};
  const Values plan = {{"logits", {1}}, {"value.z.matmul", {2}}, {"value.a.matmul", {2}}};
  EXPECT_EQ(compare(sorted, plan, false, true).tensors->differing(false)[0]->name, "value.z.matmul");
  EXPECT_EQ(compare(plan, sorted, true, false).tensors->differing(false)[0]->name, "value.z.matmul");
  EXPECT_EQ(compare(sorted, plan, false, false).tensors->differing(false)[0]->name, "value.a.matmul");
}

TEST_F(Traces, NamesOfOpsAreSplitAtTheOp) {
  const auto split = [](const char* name) {
    const TracedOp op = traced_op(name);
    return op.scope + " " + op.op;
  };
  EXPECT_EQ(split("value.model.norm.rmsnorm.rstd"), "model.norm rmsnorm.rstd");
  EXPECT_EQ(split("value.model.layers.0.self_attn.rope.grad.q"), "model.layers.0.self_attn rope.grad.q");
  EXPECT_EQ(split("value.model.layers.0.self_attn.k_proj.unknown"),
            "model.layers.0.self_attn.k_proj unknown");
  EXPECT_EQ(split("logits"), "logits ");
  EXPECT_EQ(split("value."), " ");
  EXPECT_EQ(split("value...."), "... ");
  EXPECT_EQ(split("value.x"), "x ");
}

TEST_F(Traces, OpsAndTheirResultsAreFoundByName) {
  const TracedOp query = traced_op("value.model.layers.0.self_attn.attention.grad.q");
  ASSERT_NE(query.def, nullptr);
  EXPECT_EQ(query.def->id, "attention.grad");
  EXPECT_EQ(query.result, "q");
  const TracedOp out = traced_op("value.model.layers.0.self_attn.attention");
  ASSERT_NE(out.def, nullptr);
  EXPECT_EQ(out.def->id, "attention");
  EXPECT_EQ(out.result, "");
  EXPECT_EQ(traced_op("value.model.layers.0.k_proj.unknown").def, nullptr);
  EXPECT_EQ(traced_op("logits").def, nullptr);
}

TEST_F(Traces, ControlCharactersInNamesAreNotPrinted) {
  const Diff found = compare({{"value.a\nb.\x1b[2J", {1}}}, {{"value.a\nb.\x1b[2J", {2}}});
  EXPECT_EQ(
      verdict(found),
      "different: the first op that differs is a\\x0ab \\x1b[2J: 1 of 1 values, at most 4.19e+06 ulp of f32");
  EXPECT_EQ(to_text(found, 6).find('\x1b'), std::string::npos);
}

TEST_F(Traces, AndCheckpointsAreNotComparable) {
  write("trace.safetensors", {{"logits", {1}}});
  write("weights.safetensors", {{"w", {1}}});
  const std::string message = test::message_of<FileError>(
      [&] { diff(folder / "trace.safetensors", folder / "weights.safetensors", false, *runtime::cpu({})); });
  EXPECT_NE(message.find("is a trace and"), std::string::npos) << message;
  EXPECT_NE(message.find("Fix: "), std::string::npos) << message;
}

TEST(ConfigDifferences, CountUnlessTheKeyChangesNoBit) {
  const std::vector<ConfigDifference> found = compare_configs(
      "[run]\nname = 'a'\nthreads = 1\n[optimizer]\nbetas = [0.9, 0.95]\nlr = 0.001\n[data]\nsource = "
      "['/here/x']\n[precision]\npolicy = 'compute=f32 kv=f32'\n",
      "a.toml",
      "[run]\nname = 'b'\nthreads = 4\n[optimizer]\nbetas = [0.9, 0.99]\nlr = 1e-3\n[data]\nsource = "
      "['/there/x']\n[precision]\npolicy = 'compute=bf16 kv=f32'\n[batch]\nleaf = 2\n",
      "b.toml");
  std::map<std::string, bool> counts;
  for (const ConfigDifference& d : found) counts[d.key] = d.counts();
  EXPECT_EQ(counts, (std::map<std::string, bool>{{"run.threads", false},
                                                 {"optimizer.betas", true},
                                                 {"data.source", false},
                                                 {"precision.compute", true},
                                                 {"batch.leaf", true}}));
  EXPECT_THROW(compare_configs("[", "a.toml", "", "b.toml"), ConfigError);
}

class Metrics : public test::TemporaryFolder {
 protected:
  MetricsDifferences compare(const std::string& a, const std::string& b) const {
    test::put(folder / "a", a);
    test::put(folder / "b", b);
    return compare_metrics(folder / "a", folder / "b");
  }
};

TEST_F(Metrics, FirstStepThatDiffersIsFoundWithItsFields) {
  const std::string start =
      "{\"step\":1,\"loss\":5.5,\"seconds\":1}\n{\"step\":2,\"loss\":5.4,\"seconds\":1}\n";
  const std::string same = "{\"step\":1,\"loss\":5.5,\"seconds\":3}\n{\"step\":2,\"loss\":5.4}\n";
  EXPECT_TRUE(compare(start, same).equal());
  const MetricsDifferences found =
      compare(start + "{\"step\":3,\"lr\":1,\"loss\":5.3,\"health\":{\"w\":{\"updates_lost\":0.5}}}\n",
              same + "{\"step\":3,\"lr\":2,\"loss\":5.2,\"health\":{\"w\":{\"updates_lost\":0.25}}}\n");
  EXPECT_EQ(found.compared, 3);
  EXPECT_EQ(found.different, 1);
  EXPECT_EQ(found.last_equal, 2);
  EXPECT_EQ(found.first_different, 3);
  ASSERT_EQ(found.first.size(), 3U);
  EXPECT_EQ(found.first[0].metric, "loss");
  EXPECT_EQ(found.first[1].metric, "lr");
  EXPECT_EQ(found.first[2].metric, "health.w.updates_lost");
}

TEST_F(Metrics, HealthIsReadFromItsFileAndFromMetricsOfEarlierVersions) {
  const std::string lines = "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n";
  const auto health = [](const char* share) {
    return fmt::format("{{\"step\":2,\"health\":{{\"w\":{{\"updates_lost\":{}}}}}}}\n", share);
  };
  const auto compare_runs_of = [&](const std::string& health_a, const std::string& health_b) {
    for (const char* run : {"x", "y"}) {
      std::filesystem::create_directories(folder / run);
      test::put(folder / run / "metrics.jsonl", lines);
    }
    test::put(folder / "x/health.jsonl", health_a);
    test::put(folder / "y/health.jsonl", health_b);
    return compare_metrics(folder / "x/metrics.jsonl", folder / "y/metrics.jsonl");
  };
  EXPECT_TRUE(compare_runs_of(health("0.5"), health("0.5")).equal());
  EXPECT_TRUE(compare_runs_of(health("0.5"), "").equal()) << "a file that has no measurements";
  const MetricsDifferences found = compare_runs_of(health("0.5"), health("0.25"));
  EXPECT_EQ(found.first_different, 2);
  ASSERT_EQ(found.first.size(), 1U);
  EXPECT_EQ(found.first[0].metric, "health.w.updates_lost");
  // An earlier version wrote the same to metrics.jsonl.
  test::put(folder / "y/metrics.jsonl",
            "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4,\"health\":{\"w\":{\"updates_lost\":0.5}}}\n");
  std::filesystem::remove(folder / "y/health.jsonl");
  EXPECT_TRUE(compare_metrics(folder / "x/metrics.jsonl", folder / "y/metrics.jsonl").equal());
  EXPECT_THROW(compare_runs_of(health("0.5"), "{\n{\n"), FileError);
}

TEST_F(Metrics, ValidationBelongsToItsStepAndOtherIntervalsAreNotADifference) {
  const std::string all =
      "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n{\"step\":2,\"validation_loss\":4}\n";
  EXPECT_TRUE(compare(all, "{\"step\":2,\"loss\":4}\n").equal()) << "log.interval = 2";
  const MetricsDifferences found =
      compare(all, "{\"step\":2,\"loss\":4}\n{\"step\":2,\"validation_loss\":3}\n");
  EXPECT_EQ(found.first_different, 2);
  EXPECT_EQ(found.first.at(0).metric, "validation_loss");
  EXPECT_FALSE(compare(all, "{\"step\":1,\"loss\":5}\n").equal()) << "a run that ended earlier";
}

TEST_F(Metrics, DamagedFilesAreErrorsWithTheirLine) {
  const std::string line = "{\"step\":1,\"loss\":5}\n";
  EXPECT_TRUE(compare(line + "{\"step\":2,\"lo", line).equal()) << "a crash truncated the last line";
  for (const std::string& broken :
       {std::string("{\n"), std::string("[]\n"), std::string("{\"step\":\"2\"}\n"),
        std::string("{\"step\":0}\n"), std::string(100'000, '[') + "\n"}) {
    const std::string message = test::message_of<FileError>([&] { compare(line + broken, line); });
    EXPECT_NE(message.find("a:2"), std::string::npos) << message;
  }
}

/// Changes up to five bytes of `text`.
std::string mutated(std::string text, std::mt19937& random) {
  for (auto left = 1 + random() % 5; left > 0; --left) {
    const std::size_t at = random() % text.size();
    constexpr std::string_view kSigns = "\"{}[],:-e9\n";
    if (random() % 2 == 0) text[at] = static_cast<char>(random() % 256);
    if (random() % 2 == 0) text.insert(at, 1, kSigns[random() % kSigns.size()]);
    if (random() % 4 == 0) text.resize(at + 1);
  }
  return text;
}

TEST_F(Metrics, DamagedFilesEqualThemselvesOrAreErrors) {
  const std::string good =
      "{\"step\":1,\"loss\":5.5,\"health\":{\"w\":{\"updates_lost\":0.5}}}\n{\"step\":2,\"loss\":null}\n"
      "{\"step\":2,\"validation_loss\":4}\n";
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    const std::string text = mutated(good, random);
    try {
      EXPECT_TRUE(compare(text, text).equal()) << text;
    } catch (const Error&) {
    }
  }
}

TEST_F(Traces, DamagedFilesEqualThemselvesOrAreErrors) {
  write("a.safetensors", {{"logits", {1, 2}}, {"value.lm_head.matmul", {3}}, {"grad.w", {}}});
  const std::string good = test::contents_of(folder / "a.safetensors");
  std::mt19937 random(2);
  for (int i = 0; i < 500; ++i) {
    test::put(folder / "b.safetensors", mutated(good, random));
    for (const bool bitwise : {false, true}) {
      try {
        const Diff same =
            diff(folder / "b.safetensors", folder / "b.safetensors", bitwise, *runtime::cpu({}));
        EXPECT_TRUE(same.equal()) << i;
        const Diff other =
            diff(folder / "a.safetensors", folder / "b.safetensors", bitwise, *runtime::cpu({}));
        EXPECT_TRUE(nlohmann::json::accept(to_json(other)) && !to_text(other, 6).empty()) << i;
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace
}  // namespace mantissa::lab
