// The passes of the plan: folding and fusing change no byte, and memory is shared only with disjoint
// lifetimes.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "engine/runtime/program.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/kernels/head.h"

namespace mantissa::plan::passes_test {
namespace {

using mantissa::testing::Bytes;
using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::options_for;
using mantissa::testing::results;
using mantissa::testing::Segments;
using mantissa::testing::tiny_llama;

precision::Policy policy_of(const std::string& text) {
  const std::size_t bar = text.find('|');
  const auto policy = precision::Policy::parse(text.substr(0, bar));
  return bar == std::string::npos ? policy : policy.with_rule(text.substr(bar + 1), "test");
}

const std::string kPolicies[] = {"64-true",
                                 "32-true",
                                 "bf16-mixed",
                                 "bf16-mixed residual=bf16",
                                 "32-true compute=tf32",
                                 "32-true compute=f16 residual=f16 kv=f16",
                                 "bf16-mixed kv=f16",
                                 "bf16-mixed kv=f32",
                                 "16-mixed",
                                 "bf16-true",
                                 "16-true",
                                 "32-true params=bf16",
                                 "bf16-mixed grads=bf16",
                                 "32-true params=tf32 grads=tf32",
                                 "bf16-mixed params=e4m3 grads=e5m2",
                                 "32-true params=e5m2 grads=e4m3",
                                 "bf16-mixed|lm_head: compute=f32",
                                 "bf16-mixed|*.mlp: compute=f32"};

graph::Graph training(bool tied, std::int64_t tokens, std::int64_t vocabulary = 29) {
  return model::build_log_prob(tiny_llama(tied, vocabulary), tokens, tokens, true);
}

TEST(Passes, ChangeNoByteOfAnyResult) {
  const Segments rows({9, 4, 1}, 2);
  const Data data(rows.tokens + 1, 29, 11);
  for (const std::string& policy : kPolicies) {
    for (const bool tied : {false, true}) {
      CompileOptions options = options_for(rows);
      const graph::Graph graph = training(tied, rows.tokens);
      options.fold = options.fuse = false;
      const Compiled plain(graph, policy_of(policy), options);
      const std::vector<Bytes> want = results(plain, rows, data);
      for (const auto& [fold, fuse, join, keep] :
           {std::tuple{true, false, false, false}, std::tuple{false, true, false, false},
            std::tuple{true, true, false, false}, std::tuple{false, false, true, false},
            std::tuple{true, true, true, false}, std::tuple{true, true, true, true}}) {
        options.fold = fold;
        options.fuse = fuse;
        options.join_head = join;
        options.keep_values = keep;
        const Compiled c(graph, policy_of(policy), options);
        EXPECT_TRUE(results(c, rows, data) == want)
            << policy << (tied ? ", tied" : ", untied") << ", fold " << fold << ", fuse " << fuse << ", join "
            << join << ", keep " << keep;
        if (policy != "64-true" && policy != "32-true" && (fold || fuse)) {
          EXPECT_LT(c.program.steps.size(), plain.program.steps.size())
              << policy << " fold " << fold << " fuse " << fuse;
        }
      }
    }
  }
}

TEST(Passes, OneGradientForBothUsesOfATiedWeightChangesNoByte) {
  const Segments rows({9, 4, 1}, 2);
  const Data data(rows.tokens, 29, 11);
  const graph::Graph graph = training(true, rows.tokens);
  for (const std::string& policy : kPolicies) {
    CompileOptions options = options_for(rows);
    const Compiled two(graph, policy_of(policy), options);
    options.one_micro_batch = true;
    const Compiled one(graph, policy_of(policy), options);
    EXPECT_TRUE(results(one, rows, data, 1) == results(two, rows, data, 1)) << policy;
    const Slot& slot = one.program.slots.front();
    const std::size_t accumulator = aligned(static_cast<std::size_t>(slot.shape.count()) *
                                            bytes_of(one.program.buffer(slot.gradient).type));
    EXPECT_EQ(two.program.memory.gradients - one.program.memory.gradients, accumulator) << policy;
  }
}

TEST(Passes, LeaveNoCastInMixedPrecision) {
  for (const bool tied : {false, true}) {
    const Program p = compile(training(tied, 16), precision::Policy::parse("bf16-mixed"), {16, 16}, {});
    EXPECT_EQ(casts_left(p).count, 0) << (tied ? "tied" : "untied");
    CompileOptions unfolded{16, 16};
    unfolded.fold = unfolded.fuse = false;
    const Program q = compile(training(tied, 16), precision::Policy::parse("bf16-mixed"), unfolded, {});
    EXPECT_GT(casts_left(q).count, 40);
  }
}

TEST(Passes, NeverMakeAWeightsGradientTwice) {
  const Program p = compile(training(true, 16), precision::Policy::parse("bf16-true"), {16, 16}, {});
  bool sums_of_vectors = false;  // only products add to a gradient that is there
  for (const Buffer& b : p.buffers) {
    const bool used = std::any_of(p.steps.begin(), p.steps.end(), [&](const Step& s) {
      return std::any_of(s.outputs.begin(), s.outputs.end(), [&](BufferId o) { return &p.buffer(o) == &b; });
    });
    EXPECT_FALSE(used && b.name.ends_with(":micro") && b.shape.rank() == 2) << b.name;
    sums_of_vectors |= used && b.name.ends_with(":micro") && b.shape.rank() == 1;
  }
  EXPECT_TRUE(sums_of_vectors) << "the name of a micro-batch's own gradient has changed";
}

TEST(Passes, NeverMakeAMatrixOfTokensByVocabulary) {
  const std::int64_t tokens = 600, vocabulary = kernels::kVocabularyChunk + 976;
  const Program p = compile(training(true, tokens, vocabulary), precision::Policy::parse("bf16-mixed"),
                            {tokens, tokens}, {});
  for (const Buffer& b : p.buffers) {
    EXPECT_FALSE(b.shape.has_tokens() && b.shape.count() >= tokens * vocabulary)
        << b.name << ' ' << b.shape.str();
  }
  int heads = 0;
  for (const Step& s : p.steps) {
    if (s.op->op != "log_prob") continue;
    EXPECT_GT(s.workspace, 0U);
    ++heads;
  }
  EXPECT_GT(heads, 0);
}

struct Life {
  std::int64_t first = -1, last = -1;
};

/// Returns true if `next`, a result of `s`, may reuse the memory of `old`, whose last reader is s.
bool may_replace(const Program& p, const Step& s, BufferId old, BufferId next) {
  const auto reads =
      std::count_if(s.inputs.begin(), s.inputs.end(), [&](const Operand& o) { return o.buffer == old; });
  const bool in_place = (s.op->in_place && reads == 1 && s.addend != old) || (reads == 0 && s.addend == old);
  return in_place && s.outputs[0] == next && p.buffer(old).offset == p.buffer(next).offset &&
         p.buffer(old).type == p.buffer(next).type && p.buffer(old).shape == p.buffer(next).shape;
}

void expect_no_overlap(const Program& p, const std::string& what) {
  std::vector<Life> lives(p.buffers.size());
  const auto end = static_cast<std::int64_t>(p.steps.size());
  for (std::int64_t i = 0; i < end; ++i) {
    const Step& s = p.steps[static_cast<std::size_t>(i)];
    std::vector<BufferId> touched = s.outputs;
    for (const Operand& o : s.inputs) touched.push_back(o.buffer);
    if (s.addend != kNoBuffer) touched.push_back(s.addend);
    for (const BufferId b : touched) {
      const BufferId parent = p.buffer(b).parent;  // a view's memory is its parent's
      Life& l = lives[static_cast<std::size_t>(parent == kNoBuffer ? b : parent)];
      l.first = l.first < 0 ? i : l.first;
      l.last = i;
    }
  }
  std::vector<BufferId> used;
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    const auto id = static_cast<BufferId>(b);
    const Home home = p.buffers[b].home;
    if (home == Home::master || home == Home::copy || (home == Home::activation && lives[b].first < 0))
      continue;
    const bool output =
        std::any_of(p.outputs.begin(), p.outputs.end(), [&](const auto& o) { return o.second == id; });
    if (home != Home::activation) lives[b] = {0, end};
    if (output) lives[b].last = end;
    EXPECT_LE(p.buffers[b].offset + p.buffers[b].bytes, p.work_offset) << what << ": " << p.buffers[b].name;
    EXPECT_EQ(p.buffers[b].offset % kAlignment, 0U);
    used.push_back(id);
  }
  for (const BufferId x : used) {
    for (const BufferId y : used) {
      const Buffer &a = p.buffer(x), &b = p.buffer(y);
      const Life &la = lives[static_cast<std::size_t>(x)], &lb = lives[static_cast<std::size_t>(y)];
      const bool alive_together = la.first <= lb.last && lb.first <= la.last;
      const bool share = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      if (x == y || la.first > lb.first || !alive_together || !share) continue;
      const bool handed_over =
          la.last == lb.first && may_replace(p, p.steps[static_cast<std::size_t>(lb.first)], x, y);
      EXPECT_TRUE(handed_over) << what << ": " << a.name << " and " << b.name << " lie on each other";
    }
  }
}

TEST(Memory, IsSharedOnlyByBuffersThatAreNotAliveTogether) {
  for (const std::string& policy : kPolicies) {
    for (const bool keep : {false, true}) {
      CompileOptions options{16, 16};
      options.keep_values = keep;
      expect_no_overlap(compile(training(true, 16), policy_of(policy), options, {}), policy);
      const model::ModelConfig gpt2 = model::parse_model_config({{"model_type", "gpt2"},
                                                                 {"vocab_size", 29},
                                                                 {"n_embd", 16},
                                                                 {"n_layer", 2},
                                                                 {"n_head", 4},
                                                                 {"n_positions", 16}},
                                                                "gpt2");
      expect_no_overlap(compile(model::build_log_prob(gpt2, 16, 16, true), policy_of(policy), options, {}),
                        "gpt2 " + policy);
    }
  }
}

TEST(Memory, EqualsTheForecast) {
  const Segments rows({16});
  for (const std::string& policy : kPolicies) {
    const Compiled c(training(false, 16), policy_of(policy), options_for(rows));
    EXPECT_EQ(c.program.memory.arena(), c.executor->bytes()) << policy;
    EXPECT_EQ(c.program.memory.weights(), c.weights.bytes()) << policy;
    EXPECT_GE(c.program.memory.arena(), c.program.work_offset + c.program.memory.work);
  }
}

TEST(Memory, OfActivationsIsReused) {
  const Program p = compile(training(true, 64), precision::Policy::parse("bf16-mixed"), {64, 64}, {});
  std::size_t all = 0;
  const auto writers = [&](BufferId id) {
    return std::any_of(p.steps.begin(), p.steps.end(), [&](const Step& s) {
      return std::find(s.outputs.begin(), s.outputs.end(), id) != s.outputs.end();
    });
  };
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    if (p.buffers[b].home == Home::activation && writers(static_cast<BufferId>(b))) all += p.buffers[b].bytes;
  }
  EXPECT_LT(p.memory.activations, all);
}

}  // namespace
}  // namespace mantissa::plan::passes_test
