// Observers: the same counts for any number of threads and parts, and no change of the observed run.
#include "mantissa/engine/runtime/observer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/runtime/program.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/engine/runtime/count_parts.h"
#include "mantissa/engine/runtime/nonfinite.h"
#include "mantissa/kernels/thread_pool.h"

namespace mantissa::runtime::observer_test {
namespace {

using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::Segments;
using mantissa::testing::tiny_llama;

kernels::Context threads(int n) {
  kernels::Context ctx{.simd = kernels::best_simd(), .threads = n};
  ctx.pool = std::make_shared<kernels::ThreadPool>(n);
  return ctx;
}

/// Normal numbers of rows × width, stored in `type` with `gap` elements between the rows.
struct Tensor {
  std::vector<double> values;
  std::vector<std::byte> memory;
  graph::Argument argument;

  Tensor(std::int64_t rows, std::int64_t width, std::int64_t gap, Scalar type, unsigned seed) {
    const auto stride = static_cast<std::size_t>(width + gap);
    memory.resize(static_cast<std::size_t>(rows) * stride * bytes_of(type));
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::vector<double> row(static_cast<std::size_t>(width));
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
      for (double& x : row) x = round_to(normal(random), type);
      store_row(row.data(), row.size(), memory.data(), type, r * stride);
      values.insert(values.end(), row.begin(), row.end());
    }
    argument.data = memory.data();
    argument.type = argument.rounded = type;
    argument.rows = rows;
    argument.width = width;
    argument.stride = width + gap;
  }
};

void expect_same(const ValueCounts& a, const ValueCounts& b) {
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.binades.counts, b.binades.counts);
  EXPECT_EQ(a.before.counts, b.before.counts);
  EXPECT_EQ(a.sum, b.sum);
  EXPECT_EQ(a.squares, b.squares);
  EXPECT_EQ(a.compared, b.compared);
  EXPECT_EQ(a.error_sum, b.error_sum);
  EXPECT_EQ(a.error_inward, b.error_inward);
  EXPECT_EQ(a.error_squares, b.error_squares);
  EXPECT_EQ(a.max_ulp, b.max_ulp);
  EXPECT_EQ(a.cancelled, b.cancelled);
}

/// Several parts, rows that cross their bounds, and a rest that fills no vector.
TEST(CountParts, CountTheResultOfEveryLayoutOnAnyThreads) {
  constexpr std::int64_t kRows = 37, kWidth = 1403;
  const Tensor stored(kRows, kWidth, 0, Scalar::bf16, 1), strided(kRows, kWidth, 5, Scalar::bf16, 1);
  for (const Scalar type : {Scalar::f32, Scalar::f64}) {
    const Tensor wide(kRows, kWidth, 0, type, 1), addend(kRows, kWidth, 3, Scalar::f32, 2);
    ValueCounts plain;
    plain.add(stored.values.data(), stored.values.size(), Scalar::bf16);
    plain.add_errors(wide.values.data(), stored.values.data(), stored.values.size(), Scalar::bf16);
    plain.add_sums(wide.values.data(), addend.values.data(), addend.values.size());
    const auto count = [&](const Tensor& tensor, int n) {
      ValueCounts c;
      count_result(threads(n), {&tensor.argument, Scalar::bf16, &wide.argument, &addend.argument}, c);
      return c;
    };
    const ValueCounts one = count(stored, 1);
    EXPECT_EQ(one.binades.counts, plain.binades.counts);
    EXPECT_EQ(one.before.counts, plain.before.counts);
    EXPECT_EQ(one.compared, plain.compared);
    EXPECT_EQ(one.cancelled, plain.cancelled);
    EXPECT_EQ(one.max_ulp, plain.max_ulp);
    expect_same(count(stored, 3), one);
    expect_same(count(strided, 1), one);
    expect_same(count(strided, 4), one);
  }
}

TEST(CountParts, RoundFactorsAsProductsDo) {
  for (const Scalar type : {Scalar::f32, Scalar::f64}) {
    Tensor factor(13, 2000, 0, type, 4);
    for (const bool saturate : {false, true}) {
      factor.argument.operand = Factor(Scalar::e4m3);
      factor.argument.operand.saturate = saturate;
      std::vector<double> rounded;
      for (const double x : factor.values)
        rounded.push_back(round_to(x, Scalar::e4m3, {Rounding::nearest, saturate}));
      ValueCounts plain, counts;
      plain.add(rounded.data(), rounded.size(), Scalar::e4m3);
      plain.add_errors(factor.values.data(), rounded.data(), rounded.size(), Scalar::e4m3);
      count_factor(threads(2), factor.argument, Scalar::e4m3, counts);
      EXPECT_EQ(counts.binades.counts, plain.binades.counts);
      EXPECT_EQ(counts.subnormal, plain.subnormal);
      EXPECT_EQ(counts.flushed, plain.flushed);
      EXPECT_EQ(counts.max_ulp, plain.max_ulp);
    }
  }
}

/// Returns what was seen of a forward and a backward pass, twice in one observation.
std::vector<ObservedValue> observed(const Compiled& c) {
  const std::int64_t tokens = 24;
  const Segments rows({9, 15});
  Data(tokens, 29, 5).feed(c, 0, static_cast<std::size_t>(tokens));
  Observer observer(*c.executor, [](const plan::Step&) { return true; });
  for (const bool accumulate : {false, true}) {
    c.executor->run(graph::Phase::forward, rows.extent());
    c.executor->run(graph::Phase::backward, rows.extent(), accumulate);
  }
  return observer.take();
}

/// Lowers intermediate results.
constexpr const char* kLowered = "bf16-mixed; *: op=softmax compute=bf16";

plan::CompileOptions options() {
  plan::CompileOptions o;
  o.longest_row = o.longest_leaf = 24;
  return o;
}

TEST(Observers, SeeTheSameOnAnyThreads) {
  for (const char* policy : {"64-true", "bf16-mixed", "bf16-true", "32-true compute=bf16", kLowered}) {
    SCOPED_TRACE(policy);
    const graph::Graph graph = model::build_log_prob(tiny_llama(true), 24, 24, true);
    const Compiled one(graph, precision::Policy::parse(policy), options(), threads(1));
    const Compiled three(graph, precision::Policy::parse(policy), options(), threads(3));
    const std::vector<ObservedValue> a = observed(one), b = observed(three);
    ASSERT_EQ(a.size(), b.size());
    ASSERT_FALSE(a.empty());
    EXPECT_EQ(std::ranges::any_of(a, [](const ObservedValue& v) { return v.interior_squares > 0; }),
              policy == kLowered);
    for (std::size_t i = 0; i < a.size(); ++i) {
      SCOPED_TRACE(a[i].step->scope);
      expect_same(a[i].counts, b[i].counts);
      EXPECT_EQ(a[i].interior, b[i].interior);
      EXPECT_EQ(a[i].interior_squares, b[i].interior_squares);
    }
  }
}

TEST(Observers, ChangeNoGradient) {
  for (const char* policy : {"bf16-mixed", "bf16-true", "16-true", kLowered, "fp8-hybrid",
                             "fp8-hybrid scaling=current", "bf16-mixed compute=nvfp4 scaling=current"}) {
    SCOPED_TRACE(policy);
    const graph::Graph graph = model::build_log_prob(tiny_llama(false), 24, 24, true);
    const Compiled seen(graph, precision::Policy::parse(policy), options()),
        unseen(graph, precision::Policy::parse(policy), options());
    observed(seen);
    const Segments rows({9, 15});
    Data(24, 29, 5).feed(unseen, 0, 24);
    for (const bool accumulate : {false, true}) {
      unseen.executor->run(graph::Phase::forward, rows.extent());
      unseen.executor->run(graph::Phase::backward, rows.extent(), accumulate);
    }
    for (const Compiled* c : {&seen, &unseen}) c->executor->run(graph::Phase::finish, rows.extent());
    EXPECT_TRUE(seen.gradients() == unseen.gradients());
    for (const plan::ScaleSlot& slot : seen.program.scales) {
      const TensorScale &a = *seen.weights.scales().find(slot.name),
                        &b = *unseen.weights.scales().find(slot.name);
      EXPECT_EQ(a.scale, b.scale) << slot.name;
      EXPECT_EQ(a.unscale, b.unscale) << slot.name;
      EXPECT_EQ(a.amax, b.amax) << slot.name;
    }
  }
}

/// The scale puts the largest magnitude at that of the format: nothing is lost but the last place, half of it
/// at most.
TEST(Observers, MeasureTheErrorsUnderAScaleOfTheSameStep) {
  const graph::Graph graph = model::build_log_prob(tiny_llama(false), 24, 24, true);
  const Compiled c(graph, precision::Policy::parse("fp8-hybrid scaling=current"), options());
  int quantized = 0;
  for (const ObservedValue& v : observed(c)) {
    if (v.step->op->op != "quantize") continue;
    SCOPED_TRACE(v.step->scope);
    ++quantized;
    EXPECT_GT(v.counts.compared, 0U);
    EXPECT_EQ(v.counts.absmax, traits(v.format).max_finite);
    EXPECT_LE(v.counts.max_ulp, 0.5);
    EXPECT_LE(v.counts.relative_error(), std::ldexp(1.0, -traits(v.format).mantissa_bits - 1));
  }
  EXPECT_GT(quantized, 0);
}

/// Writes every element of a master: value(i).
template <class Value>
void set_master(const Compiled& c, std::string_view name, const Value& value) {
  const auto slot = static_cast<std::size_t>(std::ranges::find(c.program.slots, name, &plan::Slot::name) -
                                             c.program.slots.begin());
  ASSERT_LT(slot, c.program.slots.size()) << name;
  std::vector<double> values(c.count(slot));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i);
  const Matrix master = c.weights.master(slot);
  store_row(values.data(), values.size(), master.data, master.type, 0);
}

/// Returns the value of a module in the forward pass with this name.
ObservedValue find(const Compiled& c, const std::vector<ObservedValue>& all, std::string_view scope,
                   std::string_view name) {
  const auto found = std::ranges::find_if(all, [&](const ObservedValue& v) {
    return v.step->scope == scope && v.step->phase == graph::Phase::forward && name_of(c.program, v) == name;
  });
  EXPECT_NE(found, all.end()) << scope << " " << name;
  return found == all.end() ? ObservedValue{} : *found;
}

TEST(Observers, SeeWhatTheCopyOfAWeightLost) {
  const graph::Graph graph = model::build_log_prob(tiny_llama(false), 24, 24, true);
  Compiled c(graph, precision::Policy::parse("16-mixed"), options());
  // A quarter below the least f16, a quarter beyond its range.
  set_master(c, "model.layers.1.mlp.up_proj.weight", [](std::size_t i) {
    return i % 4 == 0 ? 0x1p-26 : i % 4 == 1 ? 0x1p16 : 0.125;
  });
  c.weights.refresh_copies();
  const std::vector<ObservedValue> all = observed(c);
  const ObservedValue weight = find(c, all, "model.layers.1.mlp.up_proj", "weight");
  EXPECT_EQ(weight.format, Scalar::f16);
  EXPECT_EQ(weight.counts.count, 24U * 16) << "once, not for every micro-batch and pass";
  EXPECT_EQ(weight.counts.zeros, weight.counts.count / 4);
  EXPECT_EQ(weight.counts.flushed, weight.counts.count / 4);
  EXPECT_EQ(weight.counts.overflowed, weight.counts.count / 4);
  EXPECT_EQ(std::ranges::count_if(all,
                                  [&](const ObservedValue& v) {
                                    return v.kind == Observed::weight && v.step->scope == weight.step->scope;
                                  }),
            1);
}

TEST(Observers, CompareAScaledCopyOfAWeightWithItsScaledMaster) {
  const graph::Graph graph = model::build_log_prob(tiny_llama(false), 24, 24, true);
  const Compiled c(graph, precision::Policy::parse("fp8-hybrid scaling=current"), options());
  const ObservedValue weight = find(c, observed(c), "model.layers.0.mlp.up_proj", "weight");
  EXPECT_EQ(weight.format, Scalar::e4m3);
  EXPECT_EQ(weight.counts.absmax, 448);
  EXPECT_LE(weight.counts.max_ulp, 0.5);
  EXPECT_GT(weight.counts.error_squares, 0);
}

TEST(Observers, SeeWhatCopiesInBlocksLost) {
  const graph::Graph graph = model::build_log_prob(tiny_llama(false), 24, 24, true);
  const std::string name = "model.layers.1.mlp.up_proj";
  {
    Compiled c(graph, precision::Policy::parse("bf16-mixed compute=nvfp4 scaling=current"), options());
    // Beside an element of 1e6, blocks of 0.125 have a scale below the least e4m3.
    set_master(c, name + ".weight", [](std::size_t i) { return i == 5 ? 1e6 : 0.125; });
    c.weights.refresh_copies();
    const ObservedValue weight = find(c, observed(c), name, "weight");
    EXPECT_EQ(format_name(weight), "nvfp4");
    EXPECT_EQ(weight.counts.count, 24U * 16);
    EXPECT_EQ(weight.counts.flushed, 24U * 16 - 1);
    EXPECT_EQ(weight.counts.absmax, 2688) << "under the scale of the tensor";
  }
  Compiled c(graph, precision::Policy::parse("bf16-mixed compute=mxfp4"), options());
  // The scale of a block with the largest magnitude 0.125 is 2^-5, and half of the least element is 2^-7.
  set_master(c, name + ".weight", [](std::size_t i) { return i % 4 == 0 ? 0.007 : 0.125; });
  c.weights.refresh_copies();
  const std::vector<ObservedValue> all = observed(c);
  const ObservedValue weight = find(c, all, name, "weight");
  EXPECT_EQ(format_name(weight), "mxfp4");
  EXPECT_EQ(weight.counts.flushed, weight.counts.count / 4);
  EXPECT_EQ(weight.counts.zeros, weight.counts.count / 4);
  EXPECT_EQ(weight.counts.absmax, 0.125);
}

/// Rounding to the element's format at worst, and saturation by at most an eighth.
TEST(Observers, MeasureTheErrorsOfBlocks) {
  const graph::Graph graph = model::build_log_prob(tiny_llama(false), 24, 24, true);
  for (const BlockFormat format : kBlockFormats) {
    const std::string word(traits(format).name);
    const Compiled c(graph, precision::Policy::parse("bf16-mixed compute=" + word + " scaling=current"),
                     options());
    int quantized = 0;
    for (const ObservedValue& v : observed(c)) {
      if (v.step->op->op != "quantize") continue;
      SCOPED_TRACE(word + " " + v.step->scope + " " + name_of(c.program, v));
      ++quantized;
      EXPECT_EQ(format_name(v), word);
      EXPECT_GT(v.counts.compared, 0U);
      EXPECT_GT(v.counts.error_squares, 0);
      EXPECT_LE(v.counts.relative_error(), std::ldexp(1.0, -traits(format).mantissa_bits - 1) + 0.125);
    }
    EXPECT_GT(quantized, 0) << word;
  }
}

/// The step runs again to find it, which is not a part of the observed run.
TEST(Observers, DoNotSeeTheSearchForANonFiniteValue) {
  const graph::Graph graph = model::build_log_prob(tiny_llama(false), 24, 24, true);
  Compiled c(graph, precision::Policy::parse("32-true"), options());
  set_master(c, "model.layers.1.mlp.up_proj.weight", [](std::size_t i) { return i == 0 ? INFINITY : 0.125; });
  const Segments rows({9, 15});
  Data(24, 29, 5).feed(c, 0, 24);
  Observer observer(*c.executor, [](const plan::Step&) { return true; });
  int steps = 0;
  c.executor->after_step = [&](const plan::Step&, const graph::Call&) { ++steps; };
  const std::int64_t first_row = 0;
  const std::optional<NonFinite> first = find_first_non_finite(*c.executor, first_row, [&] {
    for (const bool accumulate : {false, true}) {
      c.executor->run(graph::Phase::forward, rows.extent());
      c.executor->run(graph::Phase::backward, rows.extent(), accumulate);
    }
  });
  ASSERT_TRUE(first);
  EXPECT_EQ(first->scope, "model.layers.1.mlp.up_proj");
  const auto counted = [&] {
    return std::ranges::any_of(observer.take(), [](const ObservedValue& v) { return v.counts.count > 0; });
  };
  EXPECT_FALSE(counted());
  const auto is_there = [&](const plan::Step& s) { return s.scope == first->scope && s.op->op == first->op; };
  const auto there = std::ranges::find_if(c.program.steps, is_there);
  EXPECT_EQ(steps, 2 * (there - c.program.steps.begin() + 1)) << "each micro-batch ends there";
  c.executor->run(graph::Phase::forward, rows.extent());
  EXPECT_TRUE(counted()) << "attached again";
}

/// Watching the first run finds what a repetition finds, and every step runs.
TEST(NonFiniteWatch, FindsWhatTheSearchFinds) {
  const graph::Graph graph = model::build_log_prob(tiny_llama(false), 24, 24, true);
  for (const char* broken : {"model.layers.1.mlp.up_proj.weight", "model.layers.0.self_attn.v_proj.weight"}) {
    SCOPED_TRACE(broken);
    Compiled c(graph, precision::Policy::parse("16-mixed"), options());
    set_master(c, broken, [](std::size_t i) { return i == 7 ? 1e5 : i % 2 == 0 ? 0.125 : -0.125; });
    c.weights.refresh_copies();
    const Segments rows({9, 15});
    Data(24, 29, 5).feed(c, 0, 24);
    std::int64_t first_row = 0;
    const auto step = [&] {
      for (first_row = 0; first_row < 4; first_row += 2) {
        c.executor->run(graph::Phase::forward, rows.extent());
        c.executor->run(graph::Phase::backward, rows.extent(), first_row > 0);
      }
    };
    const auto ran = [&](const auto& run) {
      int steps = 0;
      c.executor->after_step = [&](const plan::Step&, const graph::Call&) { ++steps; };
      run();
      c.executor->after_step = {};
      return steps;
    };
    const int all = ran(step);
    std::optional<NonFinite> watched;
    EXPECT_EQ(ran([&] {
                const NonFiniteWatch watch(*c.executor, first_row);
                EXPECT_FALSE(watch.found());
                step();
                watched = watch.found();
              }),
              all);
    const std::optional<NonFinite> searched = find_first_non_finite(*c.executor, first_row, step);
    ASSERT_TRUE(watched && searched);
    EXPECT_EQ(watched->text(), searched->text());
    EXPECT_EQ(watched->cure(), searched->cure());
    EXPECT_EQ(watched->inputs, searched->inputs);
    EXPECT_EQ(watched->rows, searched->rows);
    EXPECT_EQ(watched->scope + ".weight", broken);
    EXPECT_EQ(watched->rows, (std::vector<std::int64_t>{0, 1, 2, 3}));
  }
}

/// The products vanish in f16, the residual stream does not.
TEST(Observers, SeeTheTermThatIsAddedToASum) {
  for (const char* policy : {"16-mixed", "16-true"}) {
    SCOPED_TRACE(policy);
    const graph::Graph graph = model::build_log_prob(tiny_llama(false), 24, 24, true);
    Compiled c(graph, precision::Policy::parse(policy), options());
    for (const char* name : {"model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight"})
      set_master(c, name, [](std::size_t i) { return i % 3 == 0 ? 0x1p-20 : -0x1p-19; });
    c.weights.refresh_copies();
    const std::vector<ObservedValue> all = observed(c);
    const ObservedValue term = find(c, all, "model.layers.0.mlp.down_proj", "");
    EXPECT_EQ(term.kind, Observed::term);
    EXPECT_EQ(term.format, Scalar::f16);
    EXPECT_EQ(term.counts.zeros, term.counts.count);
    EXPECT_EQ(term.counts.flushed, term.counts.count);
    EXPECT_EQ(term.counts.sums, term.counts.count);
    EXPECT_EQ(term.counts.cancelled, 0U) << "the sum is the other term";
    const bool rounds_sum = std::string_view(policy) == "16-true";
    EXPECT_EQ(std::ranges::any_of(all, [](const ObservedValue& v) { return v.kind == Observed::sum; }),
              rounds_sum);
    if (!rounds_sum) continue;
    const ObservedValue sum = find(c, all, "model.layers.0.mlp.down_proj", "sum");
    EXPECT_EQ(sum.counts.zeros, 0U);
    EXPECT_EQ(sum.counts.error_squares, 0) << "a sum with zeros is exact";
    const ObservedValue other = find(c, all, "model.layers.1.mlp.down_proj", "sum");
    EXPECT_GT(other.counts.error_squares, 0);
    EXPECT_LE(other.counts.max_ulp, 0.5);
  }
}

TEST(Observers, GiveEveryValueAnotherName) {
  for (const char* policy : {"bf16-mixed", "bf16-true", "16-true", "fp8-hybrid", "32-true compute=bf16"}) {
    SCOPED_TRACE(policy);
    const graph::Graph graph = model::build_log_prob(tiny_llama(false), 24, 24, true);
    const Compiled c(graph, precision::Policy::parse(policy), options());
    std::vector<std::string> names;
    for (const ObservedValue& v : observed(c)) {
      names.push_back(v.step->scope + " " + std::string(v.step->op->op) + " " +
                      std::string(precision::name(pass_of(v))) + " " + name_of(c.program, v));
    }
    const auto has = [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
    for (const char* name : {"grad.q", "grad.k", "grad.v"})
      EXPECT_TRUE(has("model.layers.0.self_attn attention backward " + std::string(name))) << name;
    EXPECT_TRUE(has("model.layers.0.mlp swiglu backward grad.gate"));
    EXPECT_TRUE(has("model.layers.1.mlp.up_proj matmul backward grad.weight"));
    EXPECT_TRUE(has("model.norm rmsnorm forward rmsnorm"));
    EXPECT_TRUE(has("lm_head log_prob forward lse"));
    std::ranges::sort(names);
    const auto twice = std::ranges::adjacent_find(names);
    EXPECT_EQ(twice, names.end()) << (twice == names.end() ? "" : *twice);
  }
}

}  // namespace
}  // namespace mantissa::runtime::observer_test
